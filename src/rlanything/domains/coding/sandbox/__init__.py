"""Runs programs that a model wrote, and says what came of them.

`base` holds the terms, `local` runs programs in boxes on this machine, `remote` on a server.
"""
