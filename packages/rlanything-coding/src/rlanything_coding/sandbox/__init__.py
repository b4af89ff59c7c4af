"""Runs model-written programs, and reports their results.

`base` defines the terms, `local` runs programs in boxes on this machine, `remote` on a server.
"""
