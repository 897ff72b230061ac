"""What one run measured: the files that its processes wrote (capture/recording/timed_steps.py)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from msgspec import Struct

from traceopt.analyzer.run_log.step_ledger import AHEAD
from traceopt.analyzer.tables.json_values import MOST_US, amount, table, times_ns, whole
from traceopt.analyzer.timeline.steps import typical_of

SUFFIX = ".timed.json"
LEAST_STEPS = 3
MOST_BYTES = 64 << 20  # of a file: the script could have written it


class MeasuredRun(Struct, frozen=True):
    """One run of one side. `steps_us` are the typical steps of the slowest rank, once the script is warm.

    `losses` are those of each step from step 0, as means over its backwards and all ranks. `core_wait_share` is the
    largest share of a rank's time in which its training thread was ready but had no core. `clock_share` is the clock of
    the GPUs as a part of its maximum. `start_us` is the time from the start of the process to the end of its first
    step, `extra_us` that of all further steps beyond as many typical ones, such as compiling.
    """

    steps_us: list[float]
    losses: list[float] = []
    peak_device_bytes: int | None = None
    peak_host_bytes: int | None = None
    core_wait_share: float | None = None
    seeded_by_script: bool = False
    switches_used: tuple[str, ...] = ()
    clock_share: float | None = None
    throttled: str | None = None
    start_us: float = 0.0
    extra_us: float = 0.0

    @property
    def step_us(self) -> float:
        return fmean(self.steps_us)

    def mean_us(self, run_steps: int | None) -> float:
        """A step of a run with so many steps, with its part of `extra_us`; None: a typical step."""
        return self.step_us + self.extra_us / run_steps if run_steps else self.step_us


class Failure(Struct, frozen=True):
    """A run that measured nothing: why, and the last lines that it printed."""

    reason: str
    output: list[str] = []


def read_run(control: Path) -> MeasuredRun | str:
    """The measurement in a control folder; a reason if there is none. What the files hold is not trusted."""
    ranks: dict[int | None, dict[str, Any]] = {}
    for path in sorted(control.glob(f"*{SUFFIX}")):
        document = _read(path)
        rank = whole(document.get("rank")) if document is not None else None
        if document is not None and _step_count(document) >= _step_count(ranks.get(rank, {})):
            ranks[rank] = document  # of several processes of a rank, the one that trains has most steps
    if not ranks:
        return "no training step was seen"
    documents = list(ranks.values())
    timed = [(steps, document) for document in documents if (steps := _steps_us(document)) is not None]
    if not timed:
        count = max(map(_step_count, documents))
        return f"it ended after {count} {'step' if count == 1 else 'steps'}, which are too few"
    steps_us, slowest = max(timed, key=lambda one: fmean(one[0]))
    return MeasuredRun(
        steps_us,
        _losses(documents),
        max((n for d in documents if (n := whole(d.get("peak_device_bytes"))) is not None), default=None),
        max((n for d in documents if (n := whole(d.get("peak_host_bytes"))) is not None), default=None),
        max((share for d in documents if (share := _wait_share(d)) is not None), default=None),
        any(d.get("seeded_by_script") is True for d in documents),
        tuple(sorted({str(name) for d in documents for name in _list(d.get("switches_used"))})),
        start_us=_start_us(slowest),
        extra_us=_extra_us(slowest, fmean(steps_us)),
    )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _step_count(document: dict[str, Any]) -> int:
    return len(_list(document.get("step_us")))


def _steps_us(document: dict[str, Any]) -> list[float] | None:
    """The typical steps after the first ones; None if there are too few.

    Where the host ran ahead of the GPU, a step takes the mean of all, with the work that was left at the end: there,
    the host's times only say how fast it gave work to the GPU's queue.
    """
    step_ns = times_ns(document.get("step_us"))
    settled = whole(document.get("settled")) or 0
    if step_ns is None or len(step_ns) - settled < LEAST_STEPS:
        return None
    steps = step_ns[settled:]
    left_us = amount(document.get("drained_us"), MOST_US) or 0.0
    typical = steps[typical_of(steps)]
    if left_us * 1e3 > AHEAD * steps.sum():
        typical = np.full(len(steps), steps.mean())
    if len(typical) < LEAST_STEPS or not (typical > 0).all():
        return None
    return [float(us) for us in typical / 1e3 + left_us / len(steps)]


def _start_us(document: dict[str, Any]) -> float:
    step_ns = times_ns(document.get("step_us"))
    return 0.0 if step_ns is None or not len(step_ns) else float(step_ns[0]) / 1e3


def _extra_us(document: dict[str, Any], typical_us: float) -> float:
    step_ns = times_ns(document.get("step_us"))
    return 0.0 if step_ns is None else max(0.0, float(step_ns[1:].sum()) / 1e3 - len(step_ns[1:]) * typical_us)


def _wait_share(document: dict[str, Any]) -> float | None:
    wait = table(document.get("core_wait"))
    waited, wall = amount(wait.get("us"), MOST_US), amount(wait.get("wall_us"), MOST_US)
    return min(1.0, waited / wall) if waited is not None and wall else None


def _losses(documents: Sequence[dict[str, Any]]) -> list[float]:
    """The mean loss of each step, up to the first step without one."""
    found: dict[int, list[float]] = {}
    for document in documents:
        for pair in _list(document.get("losses")):
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], (int, float)):
                step = whole(pair[0])
                if step is not None:
                    found.setdefault(step, []).append(float(pair[1]))
    losses = []
    for step in range(len(found)):
        if step not in found:
            break
        losses.append(float(np.mean(found[step])))
    return losses


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
