"""Small summary of one rank for comparing ranks: steps, collectives, compute and waits per step. On a CPU-only run the
model's work is the compute, and the other phases of the training thread are the waits.

A collective is identified by its process group, its kind, and its sequence number in the group. If that was not
recorded, by the step that launched it and its position among those of its kind in that step.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.communication.experts import ExpertLoad
from traceopt.analyzer.communication.pipeline import PipelineStage
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.rank_history import RankHistory, rank_history
from traceopt.analyzer.ranks.rank_phases import RankPhases, find_rank_phases
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.causes.table import COMPUTE, DISPATCH, HOST_ACTIVITIES
from traceopt.result.finding import Location

_MOST_PLACES = 3
_FIGHTING_SHARE = 0.03  # of the run in which the training thread is ready but has no core


class Collectives(Struct, frozen=True):
    """Collectives launched in the steps of one rank; arrays have shape (len,). Times in ns on the machine's clock."""

    labels: list[str]  # process group, its ranks, and kind
    label: I8  # index into labels
    step: I8  # index of the step that launched it
    number: I8  # sequence number in its group, -1: not recorded
    place: I8  # position among those with the same label in its step
    start: I8
    end: I8
    exposed: I8  # not overlapped by compute
    work: I8  # row of the device's work, -1 on a CPU-only run

    def __len__(self) -> int:
        return len(self.step)


class RankSummary(Struct, frozen=True):
    """One rank. `parts` holds the compute time and each idle cause per step, shape (steps,), ns; `places` holds the
    user's lines behind the longest waits. Both name causes by their key. `profiler_ns` is the profiler's cost on the
    host; `free_cores`: waits for a core do not stretch the compute time. `blocks`: of the compute kernels of every
    step, which show how much a GPU computes.
    """

    rank: int | None
    path: str
    world_size: int | None
    step_names: list[str]
    step_ns: float  # the typical step
    has_step_marks: bool
    durations: I8  # of every recorded step, ns
    parts: dict[str, I8]
    profiler_ns: I8
    places: dict[str, Location]
    collectives: Collectives
    has_clock: bool  # the file says when it was recorded
    sampled: bool  # the file holds only a sample of the events
    trains: bool
    free_cores: bool
    blocks: I8 | None = None
    phases: RankPhases | None = None  # of reinforcement learning
    stage: PipelineStage | None = None
    experts: ExpertLoad | None = None
    history: RankHistory | None = None  # of the whole run
    engine: str | None = None  # name of an inference engine's process beside a training


def summarize(facts: Facts) -> RankSummary:
    """The summary of all recorded steps of a rank, so that they can be compared step by step."""
    typical_ns, phases = facts.step_ns, find_rank_phases(facts)
    stage, experts = facts.pipeline_stage, facts.expert_load
    facts = facts.of_every_step
    meta, steps = facts.trace.meta, facts.steps
    compute = facts.gpu.compute if facts.has_gpu else facts.cpu_phases.model_work
    parts = {COMPUTE.key: steps.within(compute), **_waits(facts)}
    return RankSummary(
        rank=meta.rank,
        path=meta.path,
        world_size=meta.world_size,
        step_names=steps.names,
        step_ns=typical_ns,
        has_step_marks=facts.has_step_marks,
        durations=steps.duration,
        parts=parts,
        profiler_ns=steps.host_within(facts.profiler_cost),
        places=_places(facts, parts),
        collectives=_collectives(facts),
        has_clock=meta.start_ns is not None,
        sampled=facts.quality.sampled_share is not None,
        trains=facts.trains,
        free_cores=facts.has_gpu or _fits_the_cores(facts),
        blocks=_blocks(facts) if facts.has_gpu else None,
        phases=phases,
        stage=stage,
        experts=experts,
        history=rank_history(facts.captured),
        engine=meta.engine,
    )


def no_steps(path: str) -> RankSummary:
    """The summary of a run without a trace."""
    none = np.empty(0, np.int64)
    return RankSummary(
        rank=None,
        path=path,
        world_size=None,
        step_names=[],
        step_ns=0.0,
        has_step_marks=False,
        durations=none,
        parts={},
        profiler_ns=none,
        places={},
        collectives=Collectives([], *(none,) * 8),
        has_clock=False,
        sampled=False,
        trains=True,
        free_cores=False,
    )


def _fits_the_cores(facts: Facts) -> bool:
    """Whether the recorded rank has a core for each thread of an operator, and its training thread hardly waited."""
    environment, ledger = facts.captured.environment, facts.captured.ledger
    if environment.cores is None or ledger is None or ledger.core_wait_share is None:
        return False
    return (environment.threads or 1) <= environment.cores and ledger.core_wait_share < _FIGHTING_SHARE


def _blocks(facts: Facts) -> I8:
    work, rows = facts.gpu.work, np.flatnonzero(facts.gpu.is_compute)
    return facts.steps.per_step(facts.steps.step_of(work.start[rows]), work.grid[rows].astype(np.int64).prod(axis=1))


def _waits(facts: Facts) -> dict[str, I8]:
    return {cause.key: facts.stalls.of_steps(cause) for cause in facts.stalls.causes if not cause.busy}


def _places(facts: Facts, parts: dict[str, I8]) -> dict[str, Location]:
    """For the longest idle causes, the most expensive line of each. Ordinary host work happens everywhere."""
    waits = [cause for cause in HOST_ACTIVITIES if cause.key in parts and cause not in DISPATCH]
    longest = sorted(waits, key=lambda cause: -int(parts[cause.key].sum()))[:_MOST_PLACES]
    out = {}
    for cause in longest:
        rows = facts.host.rows_of(cause)
        sites = facts.call_sites.of(rows)
        cost = facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
        known = (sites >= 0) & (cost > 0)
        if known.any():
            total = np.bincount(sites[known], weights=cost[known])
            out[cause.key] = facts.call_sites.sites[int(total.argmax())]
    return out


def _collectives(facts: Facts) -> Collectives:
    """Collectives that the steps launched and that ran inside the window, in order of launch."""
    empty = np.empty(0, np.int64)
    found = facts.collectives
    rows, launch, exposed = (
        np.concatenate([empty, *(getattr(calls, name) for calls in found)]) for name in ("rows", "launch", "exposed")
    )
    kinds = np.repeat(np.array([calls.name for calls in found] or [""]), [calls.calls for calls in found] or [0])
    at = facts.slices.start[np.maximum(launch, 0)] if len(facts.slices) else np.zeros(len(rows), np.int64)
    step = np.where(launch >= 0, facts.steps.host_step_of(at), -1)
    keep = np.flatnonzero(step >= 0)
    keep = keep[np.argsort(at[keep], kind="stable")]
    rows, exposed, step = rows[keep], exposed[keep], step[keep]
    labels, label = _labels([_label(facts, int(row), str(kind)) for row, kind in zip(rows, kinds[keep], strict=True)])
    ran, clock = facts.gpu.work if facts.has_gpu else facts.slices, facts.trace.meta.start_ns or 0
    return Collectives(
        labels=labels,
        label=label,
        step=step,
        number=facts.gpu.work.collective_sequence[rows] if facts.has_gpu else np.full(len(rows), -1, np.int64),
        place=_places_in_step(label, step),
        start=ran.start[rows] + clock,
        end=ran.end[rows] + clock,
        exposed=exposed,
        work=rows if facts.has_gpu else np.full(len(rows), -1, np.int64),
    )


def _label(facts: Facts, row: int, kind: str) -> str:
    if not facts.has_gpu:
        return f"||{kind}"
    work, texts = facts.gpu.work, facts.trace.texts
    group, ranks = int(work.process_group[row]), int(work.process_group_ranks[row])
    return "|".join((texts[group] if group >= 0 else "", texts[ranks] if ranks >= 0 else "", kind))


def _labels(texts: list[str]) -> tuple[list[str], I8]:
    """The distinct texts, and the index of each."""
    labels = list(dict.fromkeys(texts))
    codes = {text: code for code, text in enumerate(labels)}
    return labels, np.array([codes[text] for text in texts], np.int64)


def _places_in_step(label: I8, step: I8) -> I8:
    """How many with the same label and step come before each."""
    order = np.lexsort((label, step))  # lexsort is stable: order of launch within a label and step
    same = np.append(False, (np.diff(label[order]) == 0) & (np.diff(step[order]) == 0))[: len(order)]
    at = np.arange(len(order))
    place = np.empty(len(order), np.int64)
    place[order] = at - np.maximum.accumulate(np.where(same, 0, at)) if len(order) else at
    return place
