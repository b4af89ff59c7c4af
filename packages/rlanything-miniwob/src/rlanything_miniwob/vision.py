"""The domain of web pages that need vision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlanything.domains.screens import Observed
from rlanything_miniwob.domain import MiniWob
from rlanything_miniwob.pages import SEEN_OOD, SEEN_TRAIN
from rlanything_miniwob.tasks import splits_of

if TYPE_CHECKING:
    from rlanything_nano.teaching import StepTeacher


class MiniWobVision(MiniWob):
    """Pages of colors, shapes and places, from screenshots alone.

    The options are those of `MiniWob`; `observe` is `image` by default."""

    class Options(MiniWob.Options):
        observe: Observed = "image"

    splits = splits_of(SEEN_TRAIN, SEEN_OOD)

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything_miniwob.vision_teacher import MiniWobVisionTeacher

        return MiniWobVisionTeacher()
