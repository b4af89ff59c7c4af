"""What torch holds at the peak of a piece of work, on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def peak_of(work: Callable[[], object], trace: Path) -> int:
    """Most bytes that torch held at once for `work`, beside what it held before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    profiled.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    return max(e["args"]["Total Allocated"] for e in events if e["name"] == "[memory]")
