"""The optimizer that trains all nano models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

WARMUP = 0.03
"""Share of the updates with a rising learning rate."""


def decaying_rates(learning_rate: float, updates: int) -> list[float]:
    """Returns the learning rate of every update: warm-up, then cosine decay to a twentieth."""
    return [learning_rate * _schedule(update / updates) for update in range(updates)]


def _schedule(progress: float) -> float:
    if progress < WARMUP:
        return progress / WARMUP + 1e-3
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (progress - WARMUP) / (1 - WARMUP)))


def run_updates(
    network: torch.nn.Module,
    rates: Sequence[float],
    losses_of: Callable[[int], tuple[torch.Tensor, torch.Tensor]],
    on_update: Callable[[int], None],
) -> float:
    """Runs one AdamW update for each learning rate of `rates`, with gradients clipped to norm 1.

    `losses_of` maps an update's number to its loss (scalar) and a reported loss (scalar). Returns
    the mean reported loss over the last tenth of the updates. `on_update` is called with an
    update's number after it."""
    network.train()
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=rates[0], betas=(0.9, 0.98), weight_decay=0.01
    )
    reported: list[float] = []
    for update, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        loss, report = losses_of(update)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        reported.append(report.item())
        on_update(update)
    network.eval()
    tail = reported[-max(1, len(reported) // 10) :]
    return sum(tail) / len(tail)
