"""The end of a run that was asked to stop. It imports nothing heavy: the command line needs it."""

from __future__ import annotations

import signal


class Stopped(BaseException):
    """The run was asked to stop. Not an `Exception`, so that no handler takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM, as shells report them."""
        return 128 + self.number
