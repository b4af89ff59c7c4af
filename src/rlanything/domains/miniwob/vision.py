"""The domain of web pages that only looking solves."""

from __future__ import annotations

from types import MappingProxyType

from rlanything.domains.miniwob.domain import MiniWob
from rlanything.domains.miniwob.pages import SEEN_OOD, SEEN_TRAIN
from rlanything.domains.screens import Observed
from rlanything.domains.teaching import StepTeacher


class MiniWobVision(MiniWob):
    """Pages of colors, shapes and places, from screenshots alone.

    The options are those of `MiniWob`; `observe` is `image` unless another is given."""

    splits = MappingProxyType(
        {"train": SEEN_TRAIN, "tune": SEEN_TRAIN, "in_domain": SEEN_TRAIN, "ood": SEEN_OOD}
    )

    def __init__(
        self, observe: Observed = "image", screenshots: int = 0, prompts: str | None = None
    ) -> None:
        super().__init__(observe, screenshots, prompts)

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything.domains.miniwob.vision_teacher import MiniWobVisionTeacher

        return MiniWobVisionTeacher()
