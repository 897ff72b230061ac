"""Fixes the random seeds of a timed run, so that the runs of `traceopt try` train on the same numbers.

A script that sets a seed itself overrides this one.
"""

from __future__ import annotations

import functools
import os
import random
from typing import Any

from ..recording.timed_steps import TimedSteps
from .imports import when_imported


def fix(torch: Any, timed: TimedSteps) -> None:
    """Each rank has a seed of its own."""
    rank = os.environ.get("RANK", "")
    seed = int(rank) if rank.isdigit() else 0
    random.seed(seed)
    torch.manual_seed(seed)
    when_imported("numpy.random", lambda numpy_random: numpy_random.seed(seed))
    original = torch.manual_seed

    @functools.wraps(original)
    def manual_seed(*args: Any, **kwargs: Any) -> Any:
        timed.seeded_by_script = True
        return original(*args, **kwargs)

    torch.manual_seed = torch.random.manual_seed = manual_seed
