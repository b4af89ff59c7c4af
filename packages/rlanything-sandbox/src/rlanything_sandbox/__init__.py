"""Boxes and system call filters for untrusted programs."""
