"""`python -m rlanything.runs.metrics > docs/metrics.md` writes the page of metrics."""

from __future__ import annotations

from rlanything.runs.metrics.measuring import Meter
from rlanything.runs.metrics.page import write_page
from rlanything.terminal import write, write_line

if __name__ == "__main__":
    Meter(lambda line: write_line(line, stderr=True))  # imports what other packages bring
    write(write_page())
