"""Commands that ask a judge, one file each."""
