"""`python -m rlanything`: the command line."""

from rlanything.cli import main

main()
