"""A policy that learns while it is served."""
