"""Stopping by a signal: at once, or at the end of what must not be interrupted."""

from __future__ import annotations

import os
import signal

import pytest

from rlanything.runs.stopping import Stopped, Stopper


def test_a_signal_in_a_deferred_section_that_fails_is_not_forgotten() -> None:
    stopper = Stopper()
    with stopper.listening():
        with pytest.raises(OSError, match="full"):
            fail_while_stopped(stopper)
        with pytest.raises(Stopped) as stopped:
            stopper.check()
    assert stopped.value.exit_code == 143


def fail_while_stopped(stopper: Stopper) -> None:
    with stopper.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        raise OSError("full")


def test_without_a_signal_nothing_stops() -> None:
    stopper = Stopper()
    with stopper.listening(), stopper.deferred():
        stopper.check()
