"""The domain of web pages that only looking solves."""

from __future__ import annotations

from rlanything.domains.miniwob.domain import MiniWob
from rlanything.domains.miniwob.pages import SEEN_OOD, SEEN_TRAIN
from rlanything.domains.miniwob.tasks import splits_of
from rlanything.domains.screens import Observed
from rlanything.domains.teaching import StepTeacher


class MiniWobVision(MiniWob):
    """Pages of colors, shapes and places, from screenshots alone.

    The options are those of `MiniWob`; `observe` is `image` unless another is given."""

    class Options(MiniWob.Options):
        observe: Observed = "image"

    splits = splits_of(SEEN_TRAIN, SEEN_OOD)

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything.domains.miniwob.vision_teacher import MiniWobVisionTeacher

        return MiniWobVisionTeacher()
