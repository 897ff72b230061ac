"""CM004: ranks wait for one that is late, or that has more to compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceopt.analyzer.ranks.run_experts import RunExperts
from traceopt.analyzer.ranks.run_facts import Straggler
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import COMPUTE, LAUNCH, QUEUED
from traceopt.rules import (
    Change,
    Confidence,
    Effort,
    Evidence,
    Findings,
    Fix,
    Former,
    Location,
    Ranks,
    RemoveHost,
    RunFacts,
    RunRule,
    ScaleWork,
    median,
    ms,
    of_ranks,
    on_rank,
    percent,
    place_on,
    rank_name,
    rank_names,
    ranks_saving,
    step_of_ranks,
    threshold,
)

LONGER = 1.01  # times the steps of the late ranks: a step that much longer is explained
BETWEEN, BETWEEN_GROUPS = "between the last two ranks", "from the last other rank to the last of these"
SLOW_GPU = Fix(
    "Compare clocks, temperature and power limit of this GPU with those of the others, and look for another process on "
    "it. If it stays slower, run the job without it."
)
HOT_EXPERTS = Fix(
    "Place a hot expert beside cold ones, or copy it to several ranks. Or balance the router by an auxiliary loss, or "
    "a bias per expert that follows its load: this changes the model."
)
DIFFERENCE = "what this rank does that the others do not"


class StragglerRank(RunRule):
    """Compares when the ranks enter the same collectives, on clocks aligned at the collectives' ends. If one rank comes
    last in most of them, or several ranks come late together (those of one node, or of one pipeline stage), the rule
    measures how long the others wait and names what these ranks spend more time on.

    The first collective of each process group does not count: ranks enter it at different times because their
    recordings start at different times.

    Also compares how long each rank's GPU computes in the same step, and measures the waits in collectives that the
    difference causes (load imbalance).

    Why it costs: a collective ends when the last rank has arrived. One late rank sets the pace for all of them, and on
    the others the wait looks like slow communication. Inputs of unequal length, uneven shards of a table or uneven
    experts have the same effect.

    How to fix: fix the cause on the late rank. Data: shards of equal cost, enough workers, a local disk. Host: its own
    cores and NUMA node. Device: clocks and temperature.

        torchrun --nproc-per-node 8 train.py
        numactl --cpunodebind=$NODE --membind=$NODE python train.py     # each rank on the node of its GPU
        nvidia-smi -q -d PERFORMANCE,CLOCK                               # is a GPU throttled?

    If the work is uneven, give all ranks about the same amount in each step. For sharded tables and experts, use a
    planner that knows their cost, or capacity limits.

        sampler = DistributedLengthGroupedSampler(dataset, ...)      # batches of similar length on all ranks
        batches = pack(sequences, max_tokens=8192)                   # a budget of tokens, not of samples

    If the sizes of the parts of all-to-alls are recorded (`record_shapes=True`), and the rank with the most compute is
    also the one whose experts get the most tokens, the rule says so.

    When it is wrong: a rank that is late by design (the last stage of a pipeline) is not a fault. Ranks that were
    recorded at different steps cannot be compared. A rank with slower kernels (clocks, another process on the GPU)
    looks as if it had more to compute. If it runs kernels of as many blocks as the others, its GPU seems to be slower.
    Blocks may also have more to do (longer sequences), so the confidence is then medium. Without a GPU, threads that
    wait for a CPU core look the same, too; if they do, or `traceopt run` did not record that they do not, the
    confidence is low.

    Sources: Zhang et al., "Understanding Stragglers in Large Model Training" (2025); NCCL documentation, collective
    operations; TorchRec documentation, sharding planner; Rajbhandari et al., "DeepSpeed-MoE" (2022).
    """

    code = "CM004"
    name = "straggler-rank"
    title = "Fix the straggler"
    family = "communication"
    effort = Effort.DEPENDS
    former = (Former("CM005", "load-imbalance", {"min_share": "min_imbalance_share"}),)

    min_share: float = threshold(0.03, "smallest wait for the straggler, as a share of the step, to report")
    min_blame: float = threshold(0.6, "share of all waiting for late ranks that the same ranks must cause")
    min_imbalance_share: float = threshold(
        0.03, "smallest excess over the mean rank, as a share of the step, to report"
    )

    def check_run(self, run: RunFacts) -> Findings:
        yield from self._late(run)
        yield from self._uneven(run)

    def _late(self, run: RunFacts) -> Findings:
        late = run.straggler
        if late is None or late.share < self.min_blame:
            return
        wait = late.own_wait_ns
        if wait < self.min_share * run.step_ns or (late.parts and late.parts[0][0] is COMPUTE):
            return  # more to compute is uneven work
        names, one = rank_names(run, late.ranks), len(late.ranks) == 1
        cause, more = late.parts[0] if late.parts else (None, 0.0)
        known = late.cause
        spends = "It spends" if one else "They spend"
        does = f" {spends} {ms(more)} more than the other ranks on this: {_inside(known)}." if known else ""
        place = _place(run, late, known) if known else None
        longer = sum(ns for part, ns in late.parts if part is not COMPUTE) - late.recording_ns
        gain = min(0.95 * wait, max(0.0, longer)) if known else 0.95 * wait
        finding = self.finding(
            title=f"Fix the straggler{'' if one else 's'}: {of_ranks(names)}",
            why=(
                f"The other ranks wait {ms(wait)} of {step_of_ranks(run)} for {names}. "
                f"{'It is' if one else 'They are'} the last to enter the collectives that cause {percent(late.share)} "
                f"of all waiting. The first one is left out: recordings do not start together.{does}"
                f"{_longer_step(run, late)}"
            ),
            saving=ranks_saving(
                run,
                0.7 * min(gain, more) if known else 0.5 * wait,
                gain,
                1.1 * wait,
                f"The time {BETWEEN if one else BETWEEN_GROUPS} to enter each collective in the median step, without "
                "the time in which the other ranks compute and without the straggler's recording overhead."
                + (
                    f" At most the {ms(longer)} that the straggler spends more than the others outside of compute."
                    if gain < 0.95 * wait
                    else ""
                ),
            ),
            evidence=_evidence(run, late),
            locations=[place] if place else [],
            fix=Fix(
                f"{'Look' if one else 'On each of them, look'} at {known.straggler or DIFFERENCE}."
                if known
                else "Compare this rank's host, clocks and data with the others'.",
                "numactl --cpunodebind=$NODE --membind=$NODE python train.py" if cause in (LAUNCH, QUEUED) else None,
            ),
            confidence="high" if known and len(run.step_names) > 1 else "medium",
            shares_cause_with=["CM001", "CM003", *(known.rules if known else ())],
        )
        yield on_rank(finding, run, *late.ranks)

    def _uneven(self, run: RunFacts) -> Findings:
        waits = run.waits.sum(axis=1)
        excess = median(np.minimum(run.imbalance_ns, waits))
        if excess < self.min_imbalance_share * run.step_ns:
            return
        compute = run.part(COMPUTE)
        mean = compute.mean(axis=0)
        most, least = int(mean.argmax()), int(mean.argmin())
        always = bool((compute.argmax(axis=1) == most).all())
        who = f"{rank_name(run, most)} in every step" if always else "a different rank from step to step"
        wait = float(np.median(np.minimum(waits, compute.max(axis=1) - compute.min(axis=1))))
        free_cores = all(rank.free_cores for rank in run.ranks)
        hot = run.hot_experts if always else None
        slow_gpu = always and hot is None and run.computes_the_same
        surest: Confidence = "medium" if slow_gpu else "high"
        finding = self.finding(
            title=f"Find out why the GPU of {rank_name(run, most)} is slower"
            if slow_gpu
            else "Balance the experts"
            if hot is not None
            else "Give all ranks the same amount of work",
            effort=Effort.DEPENDS if slow_gpu else Effort.REFACTORING,
            why=(
                f"In {step_of_ranks(run)}, the rank with the most compute ({who}) takes {ms(excess)} longer "
                f"than the mean of all {len(run.ranks)} ranks. The others wait for it in collectives."
                + (" Its kernels have as many blocks as theirs, so its GPU seems to be slower." if slow_gpu else "")
                + (_hot_experts(hot) if hot else "")
            ),
            saving=ranks_saving(
                run,
                0.7 * excess,
                excess,
                wait,
                "The slowest rank's compute time above the mean in the median step; at most its difference to the "
                "fastest rank.",
            ),
            evidence=[
                Evidence(f"Compute on {rank_name(run, i)}", round(float(mean[i]) / 1e3, 3))
                for i in dict.fromkeys((most, least, *run.longest_first(mean)[:3]))
            ],
            fix=SLOW_GPU
            if slow_gpu
            else HOT_EXPERTS
            if hot is not None
            else Fix(
                "Balance by cost: the same number of tokens (not samples) on every rank, shards of similar cost."
                + ("" if free_cores else " First make sure that the threads of all ranks fit on the CPU cores."),
                "sampler = DistributedLengthGroupedSampler(dataset, ...)",
            ),
            confidence=surest if len(run.step_names) > 1 and free_cores else "low",
            shares_cause_with=["CM001", "CM003"],
        )
        yield on_rank(finding, run, most) if always else finding

    def remedy(self, ranks: Ranks) -> list[Sequence[Change]] | None:
        """What makes a rank late is gone, and the work is even, where either of them is found."""
        remedies = [
            _on_time(ranks) if [*self._late(ranks.run)] else None,
            _evenly(ranks) if [*self._uneven(ranks.run)] else None,
        ]
        known = [changes for changes in remedies if changes is not None]
        return [[change for own in of_rank for change in own] for of_rank in zip(*known, strict=True)] or None

    def passed_run(self, run: RunFacts) -> str:
        late, excess = run.straggler, median(run.imbalance_ns) / run.step_ns if len(run.imbalance_ns) else 0.0
        even = f" The rank that computes longest is {percent(excess)} of the step above the mean."
        if late is None:
            shared = run.matched.count
            return f"None of the {len(run.ranks)} ranks is late to the {shared} collectives that they share.{even}"
        wait = late.own_wait_ns / run.step_ns
        makes = "makes" if len(late.ranks) == 1 else "make"
        names = rank_names(run, late.ranks).capitalize()
        return f"{names} {makes} the others wait longest: {percent(wait)} of the step.{even}"


def _hot_experts(experts: RunExperts) -> str:
    whole = f" Its experts get {experts.of_mean:.1f} times the mean tokens."
    if len(experts.layers) < 2:
        return whole
    worst = max(experts.layers, key=lambda layer: layer.of_mean)
    return f"{whole} The most uneven layer is {worst.name}, with {worst.of_mean:.1f} times."


def _on_time(ranks: Ranks) -> list[Sequence[Change]] | None:
    """The stragglers no longer spend more than the others on the part that makes them late."""
    late = ranks.run.straggler
    if late is None or not late.parts:
        return None
    cause, more = late.parts[0]
    changes: list[Sequence[Change]] = [[] for _ in ranks.facts]
    for rank in late.ranks:
        facts = ranks.facts[rank]
        area = facts.flow_areas.get(cause)
        spent = facts.recorded_steps.host_mean_ns(area) if area is not None else 0.0
        if area is not None and spent:
            changes[rank] = [RemoveHost(area, min(1.0, more / spent))]
    return changes if any(changes) else None


def _evenly(ranks: Ranks) -> list[Sequence[Change]] | None:
    """Every rank computes for the mean time of all ranks."""
    if not all(facts.has_gpu for facts in ranks.facts):
        return None
    spent = ranks.run.part(COMPUTE).mean(axis=0)
    factors = spent.mean() / np.maximum(spent, 1)
    return [
        [ScaleWork(facts.gpu.is_compute, float(factor))] for facts, factor in zip(ranks.facts, factors, strict=True)
    ]


def _evidence(run: RunFacts, late: Straggler) -> list[Evidence]:
    rows = [
        Evidence(
            f"{_label(part)}: more than on the other ranks", round(more / 1e3, 3), location=_place(run, late, part)
        )
        for part, more in late.parts[:3]
    ]
    waits = run.waits_in_median_step
    together = late.ranks if len(late.ranks) > 1 else []
    alone = [i for i in run.longest_first(waits) if waits[i] and i not in together]
    waited_for = [(rank_name(run, i), float(waits[i])) for i in alone[:3]]
    if together:
        waited_for.insert(0, (rank_names(run, together), late.wait_ns))
    return [*rows, *(Evidence(f"Waiting for {who}", round(wait_ns / 1e3, 3)) for who, wait_ns in waited_for)]


def _place(run: RunFacts, late: Straggler, part: Cause) -> Location | None:
    """The line behind a part of the straggler's step; None if it is unknown, or not the same on all late ranks."""
    first, *others = (place_on(run, rank, part) for rank in late.ranks)
    return first if all(other == first for other in others) else None


def _longer_step(run: RunFacts, late: Straggler) -> str:
    """Why the rank with the longest step is not late, where its waits in collectives explain the difference."""
    steps, waits = np.array([rank.step_ns for rank in run.ranks]), np.median(run.late_starts, axis=0)
    longest, own = int(steps.argmax()), late.ranks
    waits_longer, takes_longer = (float(times[longest] - times[own].mean()) for times in (waits, steps))
    if steps[longest] < LONGER * steps[own].max() or waits_longer < takes_longer:
        return ""
    who = "this rank" if len(own) == 1 else "these ranks"
    return (
        f" The step of {rank_name(run, longest)} is longer because it waits longer in collectives: "
        f"{ms(float(waits[longest]))}, and {who} {ms(float(waits[own].mean()))}."
    )


def _label(part: Cause) -> str:
    return "Compute" if part is COMPUTE else part.label  # also of a CPU


def _inside(part: Cause) -> str:
    label = _label(part)
    return label[:1].lower() + label[1:]
