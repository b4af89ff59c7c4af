"""Devices that a plan can be made for, and how fast they are at a role's work."""

from __future__ import annotations

from dataclasses import dataclass

from rlanything.config.roles import RoleConfig
from rlanything.planning.figures import Figure, PlanError, scaled


@dataclass(frozen=True, slots=True)
class Device:
    """Public data sheets: dense matrix products (no sparsity), of the form with most power."""

    float32: float
    """FLOP/s. TensorFloat-32 is not counted: torch leaves it off."""
    bfloat16: float
    """FLOP/s, accumulated in float32."""
    memory: float
    """Bytes."""
    bandwidth: float
    """Bytes/s."""


GPUS = {
    "a100-40gb": Device(19.5e12, 312e12, 40e9, 1555e9),
    "a100-80gb": Device(19.5e12, 312e12, 80e9, 2039e9),
    "h100": Device(67e12, 989e12, 80e9, 3350e9),
    "h200": Device(67e12, 989e12, 141e9, 4800e9),
    "l4": Device(30.3e12, 121e12, 24e9, 300e9),
    "l40s": Device(91.6e12, 362e12, 48e9, 864e9),
    "rtx-4090": Device(82.6e12, 165.2e12, 24e9, 1008e9),
}
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast a role's model computes. 0 seconds: not known, and not counted."""

    forward: float
    """FLOP/s of prefill."""
    decode: float
    """FLOP/s of a pass with one token a row."""
    training: float
    """FLOP/s forward and backward; 0 where nothing trains."""
    bandwidth: float
    """Bytes/s."""
    pass_seconds: float
    """Of a forward pass of one token through one layer: what does not shrink with the work."""
    draw_seconds: float
    """To draw one token from its logits."""
    source: str

    def figures(self, role: str) -> list[Figure]:
        unknown = "not known for this device before it is measured; not counted"
        return [
            Figure(f"{role}: prefill", self.forward, "FLOP/s", self.source),
            Figure(f"{role}: decoding", self.decode, "FLOP/s", self.source),
            *(
                [Figure(f"{role}: training", self.training, "FLOP/s", self.source)]
                if self.training
                else []
            ),
            Figure(f"{role}: memory read", self.bandwidth, "bytes/s", self.source),
            *(
                Figure(f"{role}: {name}", value or None, "s", self.source if value else unknown)
                for name, value in (
                    ("a layer's overhead", self.pass_seconds),
                    ("drawing a token", self.draw_seconds),
                )
            ),
        ]


def gpu(name: str) -> Device:
    """Raises `PlanError` for a device nobody has entered."""
    if name not in GPUS:
        raise PlanError(
            f"device {name!r} is not known: use {CPU} (this machine) or {', '.join(GPUS)}"
        )
    return GPUS[name]


def sheet_rates(name: str, role: RoleConfig, efficiency: float) -> Rates:
    """Of a GPU, by its data sheet."""
    device = gpu(name)
    peak = device.bfloat16 if role.dtype == "bfloat16" else device.float32
    return Rates(
        forward=peak * efficiency,
        decode=peak * efficiency,
        training=peak * efficiency,
        bandwidth=device.bandwidth * efficiency,
        pass_seconds=0.0,
        draw_seconds=0.0,
        source=f"data sheet: {scaled(peak, 'FLOP/s')} in {role.dtype}, "
        f"{scaled(device.bandwidth, 'B/s')}; x efficiency {efficiency:g}",
    )
