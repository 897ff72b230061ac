"""What limits a step, by the time of its causes."""

from __future__ import annotations

from collections.abc import Mapping

from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import COMPUTE, DISPATCH, LAUNCH

MOSTLY_IDLE_SHARE = 0.5  # a step with so much idle time is limited by its largest cause, whatever part is larger
IDLE_LIMIT_SHARE = 0.2  # with at least this much idle time, an idle cause limits the step; else device work does


def limit_of(parts: Mapping[Cause, float]) -> Cause:
    """What limits the step: its largest part. Only idle causes count if idle time is a large part of the step, else
    only busy parts.

    For a CPU-only step it is the largest of all parts.
    """
    if COMPUTE not in parts:
        return max(parts, key=lambda cause: parts[cause])
    groups = grouped(parts)
    waits = _idle(groups) >= IDLE_LIMIT_SHARE * sum(groups.values())
    return max((cause for cause in groups if cause.busy is not waits), key=lambda cause: groups[cause])


def clear_limit(parts: Mapping[Cause, float]) -> Cause | None:
    """What limits the step, if it is also the largest part, or a cause of a step that is mostly idle; else None."""
    limit = limit_of(parts)
    if COMPUTE not in parts:
        return limit
    groups = grouped(parts)
    mostly_idle = _idle(groups) >= MOSTLY_IDLE_SHARE * sum(groups.values())
    return limit if mostly_idle or groups[limit] >= max(groups.values()) else None


def grouped(parts: Mapping[Cause, float]) -> dict[Cause, float]:
    """The parts of a step with a GPU, with the host's ordinary work as one: LAUNCH."""
    groups = {cause: amount for cause, amount in parts.items() if cause not in DISPATCH}
    groups[LAUNCH] = sum(parts.get(cause, 0.0) for cause in DISPATCH)
    return groups


def _idle(parts: Mapping[Cause, float]) -> float:
    return sum(amount for cause, amount in parts.items() if not cause.busy)
