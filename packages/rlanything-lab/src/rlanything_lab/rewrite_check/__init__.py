"""Comparison of adapters by how far their rewrites move tasks, beyond chance."""
