"""`python -m rlanything.runs.metrics > docs/metrics.md` writes the page of metrics."""

from __future__ import annotations

import sys

from rlanything.runs.metrics.measuring import Meter
from rlanything.runs.metrics.page import write_page

if __name__ == "__main__":
    Meter(lambda line: print(line, file=sys.stderr))  # imports what other packages bring
    sys.stdout.write(write_page())
