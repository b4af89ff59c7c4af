"""Runs programs that a model wrote, and reports their results.

`base` holds the terms, `local` runs programs in boxes on this machine, `remote` on a server.
"""
