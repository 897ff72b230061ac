"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(happened: Callable[[], object]) -> None:
    """Fails if it does not happen within a minute."""
    give_up = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < give_up
        time.sleep(0.005)
