"""The page of metrics says just what is registered."""

from __future__ import annotations

import pytest

from helpers.paths import ROOT
from rlanything.runs.metrics import registry
from rlanything.runs.metrics.registry import metrics
from rlanything.runs.results import IterationRecord, Numbers
from rlanything_lab import metrics_page
from rlanything_lab.metrics_page import write_page


def test_the_page_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == write_page(), "python -m rlanything_lab.metrics_page > docs/metrics.md"


def test_a_metric_from_outside_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = dict(registry.REGISTERED)
    monkeypatch.setattr(registry, "REGISTERED", registered)
    monkeypatch.setattr(metrics_page, "REGISTERED", registered)

    @metrics(IterationRecord, "Mine", {"mine/groups": ("groups", "rollout groups")})
    def groups(record: IterationRecord) -> Numbers:
        return {"mine/groups": len(record.groups)}

    assert groups
    assert "| `mine/groups` | groups | rollout groups |" in write_page()
