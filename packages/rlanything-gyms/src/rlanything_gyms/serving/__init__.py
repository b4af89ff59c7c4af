"""Domains as servers of other standards."""
