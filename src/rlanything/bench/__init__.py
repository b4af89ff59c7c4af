"""Our speed beside that of others, on the same work."""
