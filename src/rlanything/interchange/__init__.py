"""Rollouts from other frameworks in, step-wise signals out."""
