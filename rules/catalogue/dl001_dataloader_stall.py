"""DL001: the GPU is idle while the training loop waits for the next batch."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules import (
    Confidence,
    Effort,
    Facts,
    Findings,
    Fix,
    Price,
    RemoveHost,
    Risk,
    Rule,
    ScaleWork,
    SiteCost,
    area_of,
    each_step,
    functions_inside,
    lines_inside,
    ms,
    name_of,
    named,
    percent,
    priced,
    site_evidence,
    site_locations,
    slowest_line_of,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.constructed import loader_places
from traceopt.rules.fixes.advice.loading.items import cheaper_items, longest_of
from traceopt.rules.fixes.advice.loading.loader_plans import loader_rows, loader_sites, loading_plan, waits_in
from traceopt.rules.fixes.advice.loading.loader_workers import (
    BEST,
    CROWDED_SHARE,
    EXPECTED,
    RECEIVING,
    SAMPLING,
    WORST,
    Left,
    LoaderPlan,
)
from traceopt.rules.fixes.advice.loading.pinning import pinning_in_waits
from traceopt.rules.savings.pricing import over_all_steps
from traceopt.rules.savings.work.pinned_copies import pageable_copies

NAMED_LEFT = 0.01  # of the wait: less of it that remains is not named
CHEAPER_BATCHES = "Make batches cheaper to load"  # the title where more workers would not help


class Wait(Struct, frozen=True):
    """The wait for batches in the typical step, ns, and what remains of it with the workers of the plan."""

    ns: float
    plan: LoaderPlan
    worst: Left
    expected: Left
    best: Left
    helps: bool  # workers save enough

    @property
    def left_ns(self) -> float:
        return min(self.ns, self.expected.ns)

    @property
    def saved_ns(self) -> float:
        return self.ns - self.left_ns

    @property
    def needs_cheaper_batches(self) -> bool:
        """Whether more workers are not the answer."""
        return self.plan.exhausted if self.plan.multiprocess else not self.helps


class DataloaderStall(Rule):
    """Measures the time in which the GPU waits while the main thread is inside the DataLoader's `__next__`. On a
    CPU-only run all of that time counts, because the thread does no model work in it.

    Why it costs: a step cannot start before its batch is ready. With `num_workers=0` the training process builds each
    batch itself. With too few workers the queue runs empty.

    How to fix: load data in enough worker processes:

        loader = DataLoader(
            dataset, batch_size=64, shuffle=True,
            num_workers=8,             # enough that workers x step time >= time to build a batch
            persistent_workers=True,   # do not restart them every epoch
            prefetch_factor=4,
            pin_memory=True,
        )

    The saving assumes as many workers as the cores can run. It excludes the time to receive a batch from a worker:
    `traceopt run` measures that time on your machine for a batch of the same size. If workers would not save more than
    that, there is no finding.

    With pinned memory, as proposed on a GPU, a thread receives the batches while the GPU works; the low end of the
    range counts that time all the same. Copies of pinned batches are faster, which the saving counts as well if the run
    said that they are not pinned yet.

    If workers would not help because too few cores are free, or because an epoch has few batches, the finding has no
    saving and the advice is to make batches cheaper.

    On a CPU, workers also slow the model down, because they share caches, memory bandwidth and often cores. At worst,
    all computing beside the model takes 1.5 times as long, as two threads on one core do. `traceopt run` measures how
    much slower two processes compute side by side on your machine; without that measure, half of the worst is assumed.
    With recorded shapes, a core counts as free for workers only while no operator of the model uses it: an operator on
    large tensors runs on all threads, and ends with the slowest of them. The range covers both ends.

    The estimate is of the typical step. If unusual steps wait less, the range begins at the mean of all recorded steps.
    If they wait longer, the estimate names that mean, but no fix saves more than the typical wait. The first batch of
    each epoch is not ready when the epoch begins: that wait is spread over its steps. If the script constructs a new
    DataLoader for each epoch, workers would be started each time. How long that takes is unknown, so the range begins
    at 0 and the confidence is low.

    If more workers do not help, make batches cheaper: decode once and cache, store packed data on a fast local disk, or
    move augmentation to the GPU.

    With `pin_memory=True`, a thread of the training process copies each batch to pinned memory, tensor by tensor. If
    Python stacks show that it is busy with that in most of the wait, more workers do not help: the finding then advises
    to pin fewer tensors, and the range begins at 0, because workers may be the next limit.

    The sampler runs in the main process even with workers, so its time remains; DL007 covers it.

    With workers, there is no finding if the time in which the main thread was ready but no core was free may explain
    the wait: batches may have been ready. If the workers waited for cores, the finding says so, and its confidence is
    low.

    When it is wrong: in the first step after the workers start, the wait is start-up time. The rule judges the typical
    step, so a single long wait does not count. The profiler slows Python in the loader, most of all with stacks.

    Sources: PyTorch documentation, "torch.utils.data" and the performance tuning guide; Marr et al., "Hyper-Threading
    Technology Architecture and Microarchitecture" (2002).
    """

    code = "DL001"
    name = "dataloader-stall"
    title = "Load data in worker processes"
    family = "input pipeline"
    effort = Effort.ONE_LINE
    risk = Risk.MEMORY
    risk_note = "More CPU memory"

    min_share: float = threshold(0.03, "smallest wait for data, as a share of the step, to report")
    named_share: float = threshold(0.5, "smallest share of the loading at one line of the data set to name the line")
    pinning_share: float = threshold(
        0.5,
        "share of the main thread's time in the loader in which another thread pins batches, from which that limits",
    )
    hand_over_ms: float = threshold(
        1.0, "time to receive a ready batch from a worker, in ms, if it was not measured; it cannot be saved"
    )

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.host.rows_of(DATA_LOADING)) else "No DataLoader in this trace."

    def check(self, facts: Facts) -> Findings:
        wait = self._wait(facts)
        if wait is None:
            return
        plan, rows = wait.plan, loader_rows(facts)
        durations_ns = facts.slices.duration_of(rows)
        sites, inside, lines = loader_sites(facts), functions_inside(facts, rows), lines_inside(facts, rows)
        most_ns = self.named_share * int(durations_ns.sum())
        line = slowest_line_of(facts, lines, most_ns)
        function = None if line else next((one for one in reversed(inside[1:]) if one.cost_ns >= most_ns), None)
        who = "The GPU" if facts.has_gpu else "The main thread"
        title, cause = _title_and_cause(wait)
        pinning = pinning_in_waits(facts)
        if pinning.wait_share >= self.pinning_share:
            yield self.finding(
                title=pinning.title,
                effort=Effort.FEW_LINES,
                risk=Risk.NONE,
                why=f"{who} waits {ms(wait.ns)} of {each_step(facts)} for the next batch. {pinning.cause}.",
                saving=pinning.saving(facts, wait.ns),
                confidence="medium",
                evidence=site_evidence(facts, sites),
                locations=[*loader_places(facts), *site_locations(sites, 2)],
                fix=pinning.fix,
            )
            return
        slowest = [one for one in (line, function) if one is not None]
        yield self.finding(
            title=title,
            effort=Effort.FEW_LINES if title == CHEAPER_BATCHES else None,
            risk=Risk.NONE if title == CHEAPER_BATCHES else None,
            why=f"{who} waits {ms(wait.ns)} of {each_step(facts)} for the next batch. {cause}."
            + _slow_place(line, function, int(durations_ns.sum())),
            saving=None if wait.needs_cheaper_batches else _saving(facts, wait),
            confidence=_confidence(wait, uncertain=wait.left_ns > self._hand_over_ns(plan)),
            evidence=[
                *site_evidence(facts, sites),
                *site_evidence(
                    facts,
                    waits_in(facts, inside),
                    lambda s: named(s.location.function or "") if s.location else "",
                    3,
                    inside=True,
                ),
                *site_evidence(facts, waits_in(facts, lines), lambda site: _calls(facts, site), 3, inside=True),
            ],
            locations=[
                *loader_places(facts),
                *site_locations(sites, 2),
                *site_locations(slowest or lines or inside, 1),
            ],
            fix=Fix(
                (plan.advice if wait.helps or plan.multiprocess else plan.advice_without_workers(wait.expected))
                + cheaper_items(facts, lines, function, int(durations_ns.sum())),
                edits=plan.edits if wait.helps else [],
            ),
            shares_cause_with=["DL006"] if plan.keeps_up and _restarted(facts) else None,
        )

    def _wait(self, facts: Facts) -> Wait | None:
        """None if the wait is too short to report, or workers would not help for a reason that no advice changes."""
        least_ns = self.min_share * facts.step_ns
        stall_ns = facts.stalls.typical_ns(DATA_LOADING)
        if stall_ns < least_ns:
            return None
        plan = loading_plan(facts)
        if plan.inline_ns is not None and stall_ns - plan.inline_ns >= least_ns:
            return None  # DL009: workers are what the loop waits for
        ready_ns = _ready_ns(facts) if plan.keeps_up else 0.0
        hand_over_ns = self._hand_over_ns(plan)
        stall_ns -= min(ready_ns, hand_over_ns)
        if stall_ns - (_core_wait_ns(facts) if plan.multiprocess else 0.0) < least_ns:
            return None
        received_ns = ready_ns or (0.0 if plan.multiprocess else hand_over_ns)
        at_worst_ns = _exposed_ns(received_ns, plan.wait_ns - stall_ns)
        receiving_ns = max(0.0, at_worst_ns - plan.rest_ns) if _pins(plan) else at_worst_ns
        worst, expected, best = (
            Left(min(stall_ns, receive_ns), RECEIVING) if plan.keeps_up else plan.left(receive_ns, contention)
            for contention, receive_ns in ((WORST, at_worst_ns), (EXPECTED, receiving_ns), (BEST, receiving_ns))
        )
        saved_ns = stall_ns - min(stall_ns, expected.ns)
        helps = saved_ns >= max(least_ns, receiving_ns)  # the cost of receiving is uncertain
        if not plan.multiprocess and not helps and expected.why in (RECEIVING, SAMPLING):
            return None
        return Wait(stall_ns, plan, worst, expected, best, helps)

    def _hand_over_ns(self, plan: LoaderPlan) -> float:
        """Time of a step to receive its batches from workers."""
        measured = plan.settings.hand_over
        return plan.fetches * (self.hand_over_ms * 1e6 if measured is None else measured.receive_ns)

    def passed(self, facts: Facts) -> str:
        stall = facts.stalls.typical_ns(DATA_LOADING)
        text = f"Waiting for data takes {percent(stall / facts.step_ns)} of {the_step(facts)}"
        if stall < self.min_share * facts.step_ns:
            return f"{text}."
        plan = loading_plan(facts)
        if plan.inline_ns is not None and stall - plan.inline_ns >= self.min_share * facts.step_ns:
            return f"{text}. The training process would build these batches faster than it gets them (DL009)."
        if plan.multiprocess:
            waited = _core_wait_ns(facts) / facts.step_ns
            note = f", and the main thread waits for a free core for {percent(waited)}, which may be in it"
            return f"{text}{note if waited else ': the batches are ready'}."
        if plan.sampling_ns > 0.5 * plan.wait_ns:
            return f"{text}, but {percent(plan.sampling_ns / plan.wait_ns)} of it is the sampler (DL007)."
        receiving_ns = _exposed_ns(self._hand_over_ns(plan), plan.wait_ns - stall)
        return f"{text}. Receiving batches from workers would take about as long ({ms(receiving_ns)})."


def _title_and_cause(wait: Wait) -> tuple[str | None, str]:
    """The title, None for the rule's own, and what makes the step wait."""
    plan = wait.plan
    if not plan.multiprocess:
        return CHEAPER_BATCHES if wait.needs_cheaper_batches else None, "Batches are built inside the main process"
    if plan.keeps_up:
        title, cause = "Prefetch more batches in the data loader", "Batches arrive late from the worker processes"
    elif plan.exhausted:
        title, cause = CHEAPER_BATCHES, "The worker processes already use all free cores"
    else:
        title, cause = "Use more data loader workers", "The worker processes build batches too slowly"
    if plan.core_wait_share >= CROWDED_SHARE:
        cause += f"; they waited for a free core for {percent(plan.core_wait_share)} of the time"
    return title, cause


def _saving(facts: Facts, wait: Wait) -> Price:
    low, high = (max(0.0, wait.ns - left.ns) / wait.ns for left in (wait.worst, wait.best))
    if wait.plan.starts_often:
        low = 0.0
    area = area_of(facts, loader_rows(facts))
    pins = facts.has_gpu and wait.plan.settings.pin_memory is False and bool(wait.plan.edits)
    copies = pageable_copies(facts) if pins else None
    pinned_ns = copies.exposed_ns * (1 - copies.factor) if copies is not None else 0.0
    pinned = [ScaleWork(copies.work, copies.factor)] if copies is not None else []
    remains = ""
    if wait.left_ns >= NAMED_LEFT * wait.ns:
        remains = f" {ms(wait.left_ns)} of it remains, because {wait.expected.why}."
    if pinned_ns >= NAMED_LEFT * wait.ns:
        remains += f" Pinned memory makes the copies of the batches {ms(pinned_ns)} shorter."
    return over_all_steps(
        facts,
        priced(
            facts,
            (0.8 * low * wait.ns, wait.saved_ns + pinned_ns, high * wait.ns + pinned_ns),
            [RemoveHost(area, wait.saved_ns / wait.ns), *pinned],
            f"Assumes the wait goes away, or 80% of it if receiving batches costs more time.{remains}",
            low=[RemoveHost(area, 0.8 * low)],
            high=[RemoveHost(area, high), *pinned],
        ),
        facts.stalls.typical_ns(DATA_LOADING),
        facts.of_every_step.stalls.typical_ns(DATA_LOADING),
    )


def _pins(plan: LoaderPlan) -> bool:
    """Whether a thread receives and pins the batches of the workers that are proposed, beside the steps. Without a
    measured time for that, none is taken off the default.
    """
    return plan.gpu and not plan.multiprocess and plan.settings.hand_over is not None


def _exposed_ns(receiving_ns: float, hidden_ns: float) -> float:
    """The time to receive batches that the step waits for: GPU work hides as much of it as it hides of loading."""
    return max(0.0, receiving_ns - hidden_ns)


def _slow_place(line: SiteCost | None, function: SiteCost | None, loading_ns: int) -> str:
    """Where most of the loading is: a line, or else a function that the items call."""
    if line is not None:
        return f" {percent(line.cost_ns / loading_ns)} of the loading is at {line.location}."
    if function is None or function.location is None:
        return ""
    return f" {percent(function.cost_ns / loading_ns)} of the loading is in {function.location.function}."


def _calls(facts: Facts, site: SiteCost) -> str:
    """What a line calls: its longest call, and whether there are others, whose time and number count too."""
    names = facts.slices_by_name(site.rows, facts.slices.end[site.rows] - facts.slices.start[site.rows])
    return named(name_of(facts, longest_of(facts, site))) + (" and other calls" if len(names) > 1 else "")


def _confidence(wait: Wait, *, uncertain: bool) -> Confidence | None:
    """None: the rule's own. Workers without a core of their own may be fast enough on a machine that is not busy, or
    save nothing at worst. What it takes to start workers for each epoch is unknown.
    """
    plan = wait.plan
    if wait.worst.ns >= wait.ns and not wait.needs_cheaper_batches:
        return "low"
    if plan.starts_often or (plan.multiprocess and plan.core_wait_share >= CROWDED_SHARE):
        return "low"
    return "medium" if uncertain else None


def _restarted(facts: Facts) -> bool:
    """Whether workers of the training loader were started in a recorded step: the queue is empty for a while then."""
    ledger, loader = facts.captured.ledger, facts.captured.training_loader
    if ledger is None or loader is None:
        return False
    return any(w.start <= start.step < w.until for w in ledger.windows for start in loader.starts[1:])


def _core_wait_ns(facts: Facts) -> float:
    """Time per step in which the main thread was ready but had no core: at most so much of its wait for a batch is the
    machine's. 0: not known.
    """
    ledger = facts.captured.ledger
    return (ledger.core_wait_share or 0.0) * facts.step_ns if ledger is not None else 0.0


def _ready_ns(facts: Facts) -> float:
    """Time in the loader per step when the batch is ready, ns: 10th percentile of the run's steps. 0: not known."""
    ledger = facts.captured.ledger
    if ledger is None or ledger.fetch_ns is None or not len(ledger.usual):
        return 0.0
    return float(np.percentile(ledger.fetch_ns[ledger.usual], 10))
