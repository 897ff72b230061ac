"""What keeps a step from being captured as one CUDA graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.attribution.syncs import BLOCKING_COPY, DATA_DEPENDENT, EXPLICIT, SCALAR_READ, TO_DEVICE
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.causes.table import ALLOCATION
from traceopt.result.finding import Evidence
from traceopt.result.words.rounding import rate
from traceopt.rules.evidence import by_site
from traceopt.rules.step_words import times

EDGE = 0.05  # of a step's kernels: earlier and later events are at the step's edge, outside a capture
BLOCKERS = {
    SCALAR_READ: "reads single values from the GPU",
    DATA_DEPENDENT: "has operators whose size depends on the data",
    BLOCKING_COPY: "copies tensors to the host",
    TO_DEVICE: "copies tensors to the GPU and waits",
    EXPLICIT: "synchronizes",
}
FEW_READS = 3  # by a line per step: with as many, they may decide what the step does next
FEW_KERNELS, MANY_KERNELS = 5, 100  # between two reads
UNEVEN = "all_to_all"  # each rank may put in another size in each step


def blockers(facts: Facts) -> tuple[list[str], list[Evidence]]:
    """What blocks a capture, in words and with its locations. Events at a step's edge stay outside the capture."""
    syncs, count = facts.syncs, facts.steps.count
    amid = _amid_launches(facts, syncs.start)
    words, evidence = [], []
    for reason, text in BLOCKERS.items():
        rows = np.flatnonzero((syncs.reason == reason) & amid)
        if len(rows) < count:  # not in every step
            continue
        words.append(text)
        sites = by_site(facts, syncs.cause_slice[rows], (syncs.end - syncs.start)[rows])
        what = f"Blocks capture: the step {text}"
        evidence += [Evidence(what, calls_per_step=rate(s.calls / count), location=s.location) for s in sites[:2]]
    calls = facts.host.rows_of(ALLOCATION)
    calls = calls[_amid_launches(facts, facts.slices.start[calls])]
    if len(calls) >= count:
        words.append(f"allocates driver memory {times(facts, len(calls) / count)}")
        evidence.append(Evidence("Blocks capture: driver allocations", calls_per_step=rate(len(calls) / count)))
    uneven = sum(collective.calls for collective in facts.collectives if collective.name == UNEVEN)
    if uneven >= count:
        words.append("exchanges tensors whose sizes may vary (all_to_all)")
        evidence.append(Evidence("May block capture: all_to_all", calls_per_step=rate(uneven / count)))
    return words, evidence


def rounds_in_turn(facts: Facts) -> bool:
    """Whether a line reads values again and again amid the launches of a step, as a solver or an environment does: each
    of its rounds waits for the one before. A round with many kernels, such as of a token, gains much by a graph of its
    own.
    """
    reads = (facts.syncs.reason == SCALAR_READ) & ~facts.reporting_syncs & ~facts.gradient_syncs
    sites = facts.syncs_by_site(reads & _amid_launches(facts, facts.syncs.start))
    often = [facts.syncs.start[rows] for rows in sites if len(rows) >= FEW_READS * facts.steps.count]
    return any(_kernels_of_a_round(facts, np.sort(reads)) < MANY_KERNELS for reads in often)


def _kernels_of_a_round(facts: Facts, reads: I8) -> float:
    """Kernels between two reads, the median. Reads that follow each other at once are of one round."""
    between = np.diff(facts.launch_calls.count_before(reads))
    rounds = between[between > FEW_KERNELS]
    return median(rounds) if len(rounds) else float(FEW_KERNELS)


def _amid_launches(facts: Facts, at: I8) -> npt.NDArray[np.bool_]:
    """Whether more than `EDGE` of the step's kernels are launched before, and more than `EDGE` after, each time."""
    share = facts.launch_calls.share_before(at)
    return np.asarray((share > EDGE) & (share < 1 - EDGE))
