"""EF002: some steps take far longer than the others."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.run_log.step_ledger import LONG
from traceopt.analyzer.stalls.idle import CAUSES
from traceopt.analyzer.timeline.cpu_phases import PHASES
from traceopt.analyzer.timeline.gpu_work import BUSY_LABELS
from traceopt.analyzer.vocabulary.host_activities import ACTIVITY_NAMES, DISPATCH, LABELS
from traceopt.rules import (
    F8,
    I8,
    UNUSUAL_DEVIATIONS,
    UNUSUAL_FACTOR,
    Evidence,
    Facts,
    Findings,
    Fix,
    Ledger,
    Location,
    Mask,
    Price,
    Rule,
    Saving,
    SiteCost,
    by_site,
    mean_step_ns,
    median,
    ms,
    percent,
    priced,
    saving,
    site_evidence,
    site_locations,
    threshold,
    unusual,
    us,
    usual_interval,
    without_calls,
)

# What to change if this part is larger in the slow steps.
ADVICE = {
    "data_loading": "Use more loader workers or cheaper items, so that the queue never runs empty.",
    "input_work": "Move the input work into the loader's workers.",
    "checkpoint": "Write checkpoints asynchronously, or less often.",
    "logging": "Log less often, or from a thread with a queue.",
    "gc": "Freeze long-lived objects and collect at steps you choose: gc.freeze(), gc.collect().",
    "allocation": "Keep shapes the same, so that the allocator needs no memory from the driver.",
    "compile": "Mark varying dimensions as dynamic, so that nothing is recompiled.",
    "module_load": "Warm up all shapes before the loop: the first call of a kernel loads its code.",
    "os_wait": "Find what the thread waits for: another thread or process, a lock, a file or the network.",
    "host_sync": "Read results from the GPU less often.",
    "communication": "Find the rank that is late in these steps.",
    "compute": "Compare the inputs: longer sequences or other shapes take longer. Bucket or pad them.",
}
SAME_CAUSE = {
    "data_loading": ["DL005"],
    "checkpoint": ["LG003"],
    "gc": ["PY001"],
}  # rules that report this cause themselves
OTHERWISE = (
    "Record these steps with stacks and look for what runs only in them: evaluation, logging, checkpoints, garbage "
    "collection."
)

COSTLY = 0.25  # of the mean excess of slow steps: what adds less is noise, not the cost
ENDS = " The long steps end at the line named here."


class SlowSteps(Rule):
    """Compares each step with the median step. A step is slow if it takes far longer, by more than the usual spread.
    The rule then compares slow steps with usual ones: GPU busy time, and idle time by cause (on a CPU-only run, the
    phases of the main thread). If `traceopt run` recorded the run and the trace has no slow step, the rule looks at
    all steps of the run and reports steps that are slow at a regular interval.

    Why it costs: a single slow step is no part of the typical step, but the run pays for it. A regular interval points
    to something that happens every N steps: loader workers that deliver in bursts, logging, evaluation, checkpoints.

    How to fix: find out what runs only in these steps. For a loader, for example:

        DataLoader(dataset, num_workers=8, prefetch_factor=4, persistent_workers=True)

    When it is wrong: in a short recording a single slow step may be a one-off, so it is reported without a saving. If
    only the first step is slow, it is not reported. Steps with more work (longer sequences, or a host that waits in one
    step for the GPU's work of several) have no saving either, nor have slow steps without a known cause if the main
    thread waited for a free core (PY002): other programs make steps slow at random. The rule does not apply to a
    serving engine's prefill.

    Sources: Amazon SageMaker Debugger's StepOutlier rule (3 standard deviations); here the median and the median
    absolute deviation, which outliers do not move (Leys et al. 2013).
    """

    code = "EF002"
    name = "slow-steps"
    title = "Find out why some steps are slow"
    family = "efficiency"
    effort = "Depends on the cause"

    min_steps: int = threshold(5, "fewest recorded steps needed to compare them")
    slow_factor: float = threshold(UNUSUAL_FACTOR, "multiple of the median step above which a step is slow")
    min_rounds: int = threshold(3, "fewest slow steps outside the trace that count as regular")
    min_regular: float = threshold(0.6, "smallest share of these that are the same number of steps apart")
    min_share: float = threshold(0.03, "smallest cost of these, as a share of the run's mean step, to report")
    min_core_wait: float = threshold(
        0.03, "smallest wait for a free core, as a share of the run, that explains slow steps without another cause"
    )
    slow_deviations: float = threshold(
        UNUSUAL_DEVIATIONS, "robust standard deviations above the median from which a step is slow"
    )

    def applies(self, facts: Facts) -> str | None:
        if facts.serving is not None and [phase.phase for phase in facts.serving.phases] != ["decode"]:
            return "Prefill takes as long as its prompts require, so these steps do not compare."
        count, ledger = facts.recorded_steps.count, facts.captured.ledger
        if count >= self.min_steps or (ledger is not None and len(ledger.usual) >= self.min_steps):
            return None
        return f"Too few recorded steps to compare ({count})."

    def check(self, facts: Facts) -> Findings:
        duration, names = facts.recorded_steps.duration, facts.recorded_steps.names
        slow = self._slow(duration)
        if len(duration) < self.min_steps or not len(slow):
            yield from self._of_the_run(facts)
            return
        period = _period(slow)
        grown = _what_grew(facts, slow)
        cause, label, _ = grown[0]
        sites = _sites(facts, cause, slow)
        ends = [] if sites else _ends(facts, slow)
        wait = 0.0 if cause in ADVICE or facts.captured.ledger is None else facts.captured.ledger.core_wait_share or 0.0
        contended = wait >= self.min_core_wait
        yield self.finding(
            why=_why(facts, slow, period) + _cause_sentence(grown) + (_wait_sentence(wait) if contended else ""),
            saving=None if cause == "compute" or contended else _saving(facts, slow, cause),
            evidence=[
                *(Evidence(names[i], us(duration[i]), detail=_times(duration[i] / median(duration))) for i in slow[:5]),
                *(Evidence(f"{what}: more than in a usual step", us(ns)) for _, what, ns in grown[:3] if ns > 0),
                *site_evidence(facts, sites, lambda _: label, 3),
            ],
            locations=site_locations(sites) or ends,
            fix=Fix(ADVICE.get(cause, OTHERWISE) + (ENDS if ends else "")),
            confidence="high" if cause in ADVICE and cause not in BUSY_LABELS else "low",
            shares_cause_with=["PY002"] if contended else SAME_CAUSE.get(cause),
            occasional=True,
        )

    def _of_the_run(self, facts: Facts) -> Findings:
        """Steps outside the trace that are slow at a regular interval, from the step ledger of the run.

        Other rules judge the time of the loader, the garbage collector and torch.save.
        """
        ledger = facts.captured.ledger
        if ledger is None or len(ledger.usual) < self.min_rounds * 2:
            return
        known = ledger.gc_ns + ledger.save_ns + (0 if ledger.fetch_ns is None else ledger.fetch_ns)
        rest = np.maximum(ledger.step_ns - known, 0)[ledger.usual]
        usual_ns = median(rest)
        slow = _costly(self._slow(rest), rest - usual_ns)
        if len(slow) < self.min_rounds:
            return
        period, regular = usual_interval(ledger.usual[slow])
        excess_ns = float((rest[slow] - usual_ns).sum()) / len(rest)
        if period < 2 or regular < self.min_regular or excess_ns < self.min_share * mean_step_ns(ledger):
            return
        yield self.finding(
            why=(
                f"Outside the trace, one step in {period} takes {ms(float(rest[slow].mean()))} instead of "
                f"{ms(usual_ns)}, which costs {ms(excess_ns)} per step on average. The data loader, the garbage "
                "collector, torch.save and evaluations are not the cause."
            ),
            saving=None,  # the work may be needed, and the recorded steps do not have it
            evidence=[
                Evidence(
                    f"{len(slow)} slow steps of {len(rest)}",
                    us(excess_ns),
                    detail=f"{percent(regular)} of them {period} steps apart",
                )
            ],
            locations=_places(ledger),
            fix=Fix(
                f"Find out what the script does every {period} steps: rollouts or self-play, logging, images or "
                "histograms for a dashboard." + ENDS
                if ledger.long_ends
                else f"Find out what the script does every {period} steps: rollouts or self-play, logging, images or "
                "histograms for a dashboard."
            ),
            confidence="low",
        )

    def passed(self, facts: Facts) -> str:
        duration = facts.recorded_steps.duration
        slowest = float(duration.max()) / median(duration)
        return f"The slowest of {len(duration)} steps takes {percent(slowest)} of the median step."

    def _slow(self, duration: I8) -> I8:
        """Indices of the slow steps; none if only the first step is slow, because that is start-up."""
        slow = np.flatnonzero(unusual(duration, self.slow_factor, self.slow_deviations)[0])
        return slow if slow.any() else slow[:0]


def _costly(slow: I8, excess_ns: F8) -> I8:
    """The slow steps without those that add little to the cost: other programs make single steps slow at random, which
    would hide a regular interval. A step counts from a quarter of the mean excess, weighted by the excess itself.
    """
    more = excess_ns[slow]
    costly: Mask = more >= COSTLY * (more**2).sum() / max(1.0, more.sum())
    return slow[costly]


def _why(facts: Facts, slow: I8, period: int | None) -> str:
    steps = facts.recorded_steps
    names = ", ".join(steps.names[i] for i in slow[:4]) + (", ..." if len(slow) > 4 else "")
    regular = f"; every {period} steps" if period else ""
    took, usual = ms(float(np.mean(steps.duration[slow]))), ms(median(steps.duration))
    verb = "takes" if len(slow) == 1 else "take"
    return f"{len(slow)} of {steps.count} steps {verb} {took} instead of {usual} ({names}{regular})."


def _cause_sentence(grown: list[tuple[str, str, float]]) -> str:
    _, label, more = grown[0]
    return f" The part that grew most is {label[:1].lower()}{label[1:]}, by {ms(more)}." if more > 0 else ""


def _wait_sentence(share: float) -> str:
    return f" The main thread waited for a free core for {percent(share)} of the run, which may be the reason."


def _period(slow: I8) -> int | None:
    """Number of steps from one slow step to the next; None if it varies."""
    period, regular = usual_interval(slow)
    return period if len(slow) > 2 and regular == 1.0 and period > 1 else None


def _saving(facts: Facts, slow: I8, cause: str) -> Price | Saving | None:
    """Spread over the typical steps; None if slow steps do not recur. The low end drops the slowest as a one-off."""
    recurring = np.intersect1d(slow, facts.recorded_steps.typical_rows)
    if not len(recurring):
        return None
    duration = facts.recorded_steps.duration
    excess = duration[recurring] - median(duration)
    total, count = float(excess.sum()), facts.steps.count
    bounds = (total - float(excess.max())) / count, total / count, total / count
    basis = "The time above the median step, spread over all steps; the slowest step may be a one-off."
    rows = _rows(facts, cause, slow)
    if not len(rows):
        return saving(facts, *bounds, basis)
    return priced(facts, bounds, without_calls(facts, rows), basis)


def _what_grew(facts: Facts, slow: I8) -> list[tuple[str, str, float]]:
    """Name, label and mean increase (ns) of each part in slow steps over usual ones, largest first."""
    facts = facts.of_every_step
    if facts.has_gpu:
        gpu = facts.gpu
        busy = {"compute": gpu.compute, "communication": gpu.exposed_communication, "copies": gpu.exposed_copies}
        parts = [(name, BUSY_LABELS[name], facts.steps.within(area)) for name, area in busy.items()]
        parts += [(name, LABELS[name], facts.idle.by_step[:, i]) for i, name in enumerate(CAUSES)]
    else:
        parts = [(name, label, facts.cpu_phases.by_step[:, i]) for i, (name, label, _) in enumerate(PHASES)]
    usual = np.setdiff1d(np.arange(facts.steps.count), slow)
    grown = [(name, label, float(ns[slow].mean() - median(ns[usual]))) for name, label, ns in parts]
    return sorted(grown, key=lambda part: -part[2])


def _rows(facts: Facts, cause: str, slow: I8) -> I8:
    """Slices of the cause in the slow steps; empty if the cause has no place in the code."""
    if cause not in ACTIVITY_NAMES or cause in DISPATCH:
        return np.empty(0, np.int64)
    rows = facts.of_every_step.host.rows_of(cause)
    return rows[facts.recorded_steps.host_in(slow, facts.slices.start[rows])]


def _sites(facts: Facts, cause: str, slow: I8) -> list[SiteCost]:
    """Call sites of the cause in the slow steps; empty if the cause has no place in the code."""
    rows = _rows(facts, cause, slow)
    cost = facts.of_every_step.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
    return by_site(facts, rows, cost)


def _ends(facts: Facts, slow: I8) -> list[Location]:
    """Where the long steps of the run ended, if a recorded slow step is so long that it is one of them."""
    duration, ledger = facts.recorded_steps.duration, facts.captured.ledger
    if ledger is None or duration[slow].max() <= LONG * median(duration):
        return []
    return _places(ledger)


def _places(ledger: Ledger) -> list[Location]:
    return [Location(place.file, place.line, place.function) for place in ledger.long_ends[:1]]


def _times(factor: float) -> str:
    return f"{factor:.2f} x the median"
