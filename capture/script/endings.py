"""The ways in which a process ends or splits: a normal exit, os._exit, a fork.

A signal that kills immediately loses the current recording, on purpose: a Python handler for SIGTERM would keep a rank
that hangs in a collective from dying.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import weakref
from contextlib import suppress
from typing import NoReturn

from ..recording.recorder import Recorder
from .step_tracker import StepTracker


def watch(recorder: Recorder, tracker: StepTracker) -> None:
    """Registered when torch is imported, so it runs after exit handlers that the script registers later."""

    def finish(how: str) -> None:
        status = recorder.status
        status.fetches, status.updates, status.backwards = tracker.fetches, tracker.updates, tracker.backwards
        error = getattr(sys, "last_type", None)  # of an exception that nothing has caught
        recorder.ledger.ended_early |= error is not None
        with suppress(Exception):  # the script may have replaced what it calls, such as open()
            recorder.finish(f"{how} with {error.__name__}" if error is not None else how)

    atexit.register(finish, "the run ended")
    leave = os._exit

    @functools.wraps(leave)
    def leave_at_once(status: int) -> NoReturn:
        try:
            finish("the run ended with os._exit")
        finally:
            leave(status)

    os._exit = leave_at_once

    watch_forks(recorder, tracker)


def watch_forks(recorder: Recorder, tracker: StepTracker | None = None) -> None:
    """Stops recording in forked children, which would only fill their memory."""
    still_there = weakref.ref(recorder)

    def in_child() -> None:
        recorder = still_there()
        if recorder is not None:
            recorder.forget()
        if tracker is not None:
            tracker.reset()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)
