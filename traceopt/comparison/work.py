"""How much work a step of each side does: FLOP, tokens, samples, or the sizes of the same kernels and copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from traceopt.result.comparison import StepChange, WorkChange, WorkUnit
from traceopt.result.document import Result
from traceopt.result.words.quantities import count, rate_number

SAME_WORK = 0.05  # smallest difference that makes it another amount of work, as a share of the larger
SAME_CALLS = 0.02  # largest difference in the calls of a kernel whose grids are compared, as a share of the larger
SAME_RATIO = 0.05  # ratios of grids this close agree
AGREEING = 2 / 3  # of the time of the compared kernels must agree on one ratio
FEWEST_KERNELS = 3  # names that agree
LEAST_TIME = 0.1  # of the GPU's work must be in kernels that show another amount
LEAST_TIME_SAME = 0.5  # and in kernels that show the same amount: other kernels may hide a difference
NOT_OF_BATCH = ("optimizer", "communication", "collective")  # kinds whose grids do not depend on the batch
HOST_COPIES = ("HtoD", "DtoH")
FREE_TILES = "triton_"  # names of compiled kernels do not have the size of their tiles, which sets the grid


class Work(Struct, frozen=True):
    """`ratio`: the work of a step of HEAD as a multiple of BASE's. `told`: the two amounts; empty if they agree."""

    unit: WorkUnit
    ratio: float
    told: str = ""


class Sized(Struct, frozen=True):
    """Work of one name with a size that depends on the batch: blocks per call of a kernel, bytes per step of copies."""

    size: float
    calls_per_step: float
    us_per_step: float


def work_of(base: Result, head: Result) -> list[Work]:
    """The amounts that both sides know: FLOP, tokens and samples. If there are none, what the grids show.

    Empty for a sample of the events, and if only one side has steps: the other's amounts are of its whole recording.
    """
    sampled = any(side.quality.sampled_share is not None for side in (base, head))
    if sampled or (base.step.source == "window") != (head.step.source == "window"):
        return []
    known = [*_flops(base, head), *_served(base, head), *_processed(base, head)]
    return known or _by_grids(base, head)


def work_change(work: Sequence[Work], step: StepChange) -> WorkChange | None:
    """The change of the time per unit of work; None if the amounts agree, or both sides have no step time."""
    other = next((one for one in work if one.told), None)
    if other is None or step.base_us is None or step.head_us is None:
        return None
    return WorkChange(other.unit, round(other.ratio, 6), round(step.head_us / step.base_us / other.ratio - 1, 6))


def _flops(base: Result, head: Result) -> list[Work]:
    before, after = base.efficiency.flops_per_step, head.efficiency.flops_per_step
    if not before or not after:
        return []
    unit, scale = ("T", 1e12) if max(before, after) >= 1e12 else ("G", 1e9)
    told = f"FLOP{_per_step(base, head)} ({rate_number(before / scale)} {unit} and {rate_number(after / scale)} {unit})"
    return [Work("FLOP", after / before, _if_other(before, after, told))]


def _served(base: Result, head: Result) -> list[Work]:
    """Tokens of the typical step of a serving engine, if it is of the same phase on both sides."""
    if base.serving is None or head.serving is None or not base.serving.phases or not head.serving.phases:
        return []
    one, other = base.serving.phases[0], head.serving.phases[0]
    if one.phase != other.phase or not one.tokens_per_step or not other.tokens_per_step:
        return []
    return [_amount("token", f"tokens per {one.phase} step", one.tokens_per_step, other.tokens_per_step)]


def _processed(base: Result, head: Result) -> list[Work]:
    """The tokens and samples per step that the user named for both sides."""
    found = []
    units: tuple[tuple[WorkUnit, str], ...] = (("token", "tokens_per_s"), ("sample", "samples_per_s"))
    for unit, rate in units:
        amounts = [
            (getattr(side.throughput, rate, None) or 0.0) * (side.step.typical_us or 0.0) / 1e6 for side in (base, head)
        ]
        if all(amounts):
            found.append(_amount(unit, f"{unit}s{_per_step(base, head)}", *amounts))
    return found


def _amount(unit: WorkUnit, what: str, before: float, after: float) -> Work:
    return Work(unit, after / before, _if_other(before, after, f"{what} ({count(before)} and {count(after)})"))


def _by_grids(base: Result, head: Result) -> list[Work]:
    """What the grids of kernels with the same name and number of calls show, if most of their time agrees."""
    before, after = (sum(kernel.us_per_step for kernel in side.kernels) for side in (base, head))
    pairs = _pairs(_sized(base), _sized(head))
    if not pairs or before <= 0 or after <= 0:
        return []
    ratios = np.array([two.size / one.size for one, two in pairs])
    weights = np.array([(one.us_per_step / before + two.us_per_step / after) / 2 for one, two in pairs])
    order = np.argsort(ratios)
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    ratio = float(ratios[order][min(middle, len(pairs) - 1)])
    agreeing = np.abs(np.log(ratios / ratio)) <= math.log1p(SAME_RATIO)
    together = float(weights[agreeing].sum())
    same = abs(ratio - 1) <= SAME_RATIO
    enough, fewest = (LEAST_TIME_SAME, 1) if same else (LEAST_TIME, FEWEST_KERNELS)
    if together < max(AGREEING * float(weights.sum()), enough) or agreeing.sum() < fewest:
        return []
    return [Work("unit", ratio, _if_other(1.0, ratio, _grid_words(base, head, ratio)))]


def _grid_words(base: Result, head: Result, ratio: float) -> str:
    side, times = ("HEAD", ratio) if ratio > 1 else ("BASE", 1 / ratio)
    amount = f"amounts of work{_per_step(base, head)}"
    return f"{amount} (the same kernels launch {count(times)} times as many thread blocks in {side})"


def _sized(side: Result) -> dict[str, Sized]:
    """Kernels by name with their grids, and copies between host and GPU by direction, which show the batch's size."""
    found = {
        kernel.name: Sized(kernel.blocks_per_call or 0.0, kernel.calls_per_step, kernel.us_per_step)
        for kernel in side.kernels
        if (kernel.blocks_per_call or 0) > 0
        and kernel.kind not in NOT_OF_BATCH
        and not kernel.name.startswith(FREE_TILES)
    }
    for copy in side.copies:
        direction = copy.kind.partition(" ")[0]
        if direction in HOST_COPIES and (copy.bytes_per_step or 0) > 0:
            one = found.get(direction, Sized(0.0, 0.0, 0.0))
            found[direction] = Sized(
                one.size + (copy.bytes_per_step or 0.0),
                one.calls_per_step + copy.calls_per_step,
                one.us_per_step + copy.us_per_step,
            )
    return found


def _pairs(base: dict[str, Sized], head: dict[str, Sized]) -> list[tuple[Sized, Sized]]:
    """What both sides have, with the same number of calls per step."""
    both = [(one, head[name]) for name, one in base.items() if name in head]
    return [pair for pair in both if not _other(pair[0].calls_per_step, pair[1].calls_per_step, SAME_CALLS)]


def _if_other(before: float, after: float, told: str) -> str:
    return told if _other(before, after, SAME_WORK) else ""


def _other(before: float, after: float, share: float) -> bool:
    return abs(after - before) > share * max(before, after)


def _per_step(base: Result, head: Result) -> str:
    return "" if "window" in (base.step.source, head.step.source) else " per step"
