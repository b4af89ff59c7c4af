"""`python -m rlanything.config > docs/recipes.md` writes the page of all recipe keys."""

from __future__ import annotations

from rlanything.config.page import write_page
from rlanything.terminal import write

if __name__ == "__main__":
    write(write_page())
