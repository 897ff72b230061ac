"""Fixes the random seeds of a timed run, so that the runs of `traceopt try` train on the same numbers.

A script that sets a seed itself overrides this one. With the switch `seed` N, every seed is another one, also those of
the script.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

from ...recording.timed_steps import TimedSteps
from ..imports import when_imported

SHIFT = 7919  # from one N to the next: more than there are ranks, whose seeds often differ by 1
MOST = 1 << 32  # all generators take smaller seeds


def fix(torch: Any, timed: TimedSteps) -> None:
    """Each rank has a seed of its own."""
    rank = os.environ.get("RANK", "")
    shift = SHIFT * timed.switches.get("seed", 0)
    seed = shift + (int(rank) if rank.isdigit() else 0)
    random.seed(seed)
    torch.manual_seed(seed)

    def fix_numpy(numpy_random: Any) -> None:
        numpy_random.seed(seed)
        if shift:
            numpy_random.seed = _shifted(numpy_random.seed, shift)

    def set_by_script() -> None:
        timed.seeded_by_script = True

    when_imported("numpy.random", fix_numpy)
    if shift:
        random.seed = _shifted(random.seed, shift)
    torch.manual_seed = torch.random.manual_seed = _shifted(torch.manual_seed, shift, set_by_script)


def _shifted(set_seed: Callable[..., Any], shift: int, note: Callable[[], None] = lambda: None) -> Callable[..., Any]:
    @functools.wraps(set_seed)
    def shifted(*args: Any, **kwargs: Any) -> Any:
        note()
        if shift and args and isinstance(args[0], int):
            args = ((args[0] + shift) % MOST, *args[1:])
        return set_seed(*args, **kwargs)

    return shifted
