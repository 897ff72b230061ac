"""EF002: some steps take far longer than the others."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.run_log.step_ledger import LONG
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import BUSY_PARTS, COMPUTE, DISPATCH, HOST_ACTIVITIES, LAUNCH
from traceopt.rules import (
    F8,
    I8,
    UNUSUAL_DEVIATIONS,
    UNUSUAL_FACTOR,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Ledger,
    Location,
    Mask,
    Rule,
    SiteCost,
    by_site,
    mean_step_ns,
    median,
    ms,
    named,
    percent,
    site_evidence,
    site_locations,
    threshold,
    unusual,
    us,
    usual_interval,
)

HOST_SLOW = (
    "The host launches the same GPU work more slowly in these steps. See if other threads or processes take its core: "
    "traceopt run records how long the main thread waits for one."
)
SAME_WORK = 0.1  # of the excess: with less growth of the compute kernels, slow steps do the same GPU work
ONE_CAUSE = 0.8  # of the growth: what the other causes add is then no second cause
OTHERWISE = (
    "Record these steps with stacks and look for what runs only in them: evaluation, logging, checkpoints, garbage "
    "collection."
)
ONLY_THERE = (
    "Call this function less often, or make it faster. For an evaluation, use larger batches and torch.no_grad(), and "
    "read the result once."
)

MORE_KERNELS = 1.5  # times those of a usual step: from here on a slow step does other work too
COSTLY = 0.25  # of the mean excess of slow steps: what adds less is noise, not the cost
CAUSES_TOLD = 3
STEPS_NAMED = 4
ENDS = " The long steps end at the line named here."


class SlowSteps(Rule):
    """Compares each step with the median step. A step is slow if it takes far longer, by more than the usual spread.
    The rule then compares each slow step with the usual ones: GPU busy time, and idle time by cause (on a CPU-only run,
    the phases of the main thread). If `traceopt run` recorded the run and the trace has no slow step, the rule looks at
    all steps of the run and reports steps that are slow at a regular interval.

    Why it costs: a single slow step is no part of the typical step, but the run pays for it. A regular interval points
    to something that happens every N steps: loader workers that deliver in bursts, logging, evaluation, checkpoints.

    How to fix: find out what runs only in these steps. For a loader, for example:

        DataLoader(dataset, num_workers=8, prefetch_factor=4, persistent_workers=True)

    There is no saving: rules that know a fix price its part of all steps, also of slow ones.

    When it is wrong: in a short recording a single slow step may be a one-off. If only the first step is slow, it is
    not reported. Steps with more work (longer sequences, or a host that waits in one step for the GPU's work of
    several) may need it, and if the main thread waited for a free core (PY002), other programs make steps slow at
    random. The rule does not apply to a serving engine's prefill.

    Sources: Amazon SageMaker Debugger's StepOutlier rule (3 standard deviations); here the median and the median
    absolute deviation, which outliers do not move (Leys et al. 2013).
    """

    code = "EF002"
    name = "slow-steps"
    title = "Find out why some steps are slow"
    family = "efficiency"
    effort = Effort.DEPENDS

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
        parts = _what_grew(facts, slow)
        causes = _causes(parts, slow)
        known = all(cause.part.advice is not None for cause in causes)
        sites = [(cause, _sites(facts, cause)) for cause in causes]
        places = [location for _, of_cause in sites for location in site_locations(of_cause)]
        function = None if places else facts.slow_step_function
        if function is not None:
            places = [function]
        ends = [] if places else _ends(facts, slow)
        wait = 0.0 if known or facts.captured.ledger is None else facts.captured.ledger.core_wait_share or 0.0
        contended = wait >= self.min_core_wait
        computes = any(cause.part is COMPUTE for cause in causes)
        advice = OTHERWISE if computes and _run_more_kernels(facts, slow) else _advice(causes, parts)
        if function is not None:
            advice = ONLY_THERE
        yield self.finding(
            why=_why(facts, slow, period)
            + ("" if computes or contended else _mean_cost(facts, slow))
            + _in_the_run(facts)
            + (
                _cause_sentence(facts, causes)
                if function is None
                else f" {function.function}() runs only in slow steps."
            )
            + (_wait_sentence(wait) if contended else ""),
            saving=None,  # rules that know a fix price the causes
            evidence=[
                *(
                    Evidence(named(names[i]), us(duration[i]), detail=_times(duration[i] / median(duration)))
                    for i in slow[:5]
                ),
                *(
                    Evidence(f"{part.label}: more than in a usual step", us(part.mean_ns))
                    for part in parts[:3]
                    if part.mean_ns > 0
                ),
                *(row for cause, of_cause in sites for row in _site_rows(facts, cause, of_cause)),
            ],
            locations=places or ends,
            fix=Fix(advice + (ENDS if ends else "")),
            confidence="high" if known and not any(cause.part in BUSY_PARTS for cause in causes) else "low",
            shares_cause_with=["PY002"]
            if contended
            else [code for cause in causes for code in cause.part.slow_step_rules],
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
        return f"The slowest of {len(duration)} steps takes {slowest:.2f} times as long as the median step."

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
    regular = f"; every {period} steps" if period else ""
    took, usual = ms(float(np.mean(steps.duration[slow]))), ms(median(steps.duration))
    verb = "takes" if len(slow) == 1 else "take"
    return f"{len(slow)} of {steps.count} steps {verb} {took} instead of {usual} ({_some(steps.names, slow)}{regular})."


def _in_the_run(facts: Facts) -> str:
    """What the few recorded steps cannot show: whether it recurs."""
    found = facts.regular_steps
    if found is None:
        return ""
    return f" In the whole run, one step in {found.every} takes {ms(found.long_ns)} instead of {ms(found.usual_ns)}."


def _cause_sentence(facts: Facts, causes: list[_Growth]) -> str:
    """The part that grew most; if the steps have several causes, each with its steps."""
    if len(causes) == 1:
        (one,) = causes
        return f" The part that grew most is {_lower(one.label)}, by {ms(one.mean_ns)}." if one.mean_ns > 0 else ""
    names = facts.recorded_steps.names
    told = [
        f"{_lower(cause.label)} grew by {ms(cause.mean_ns)} in {_some(names, cause.steps)}"
        for cause in causes[:CAUSES_TOLD]
    ]
    others = ["others in the rest"] if len(causes) > CAUSES_TOLD else []
    return f" They have different causes: {'; '.join([*told, *others])}."


def _run_more_kernels(facts: Facts, slow: I8) -> bool:
    """Whether slow steps do other work too: longer sequences run as many kernels."""
    count = facts.kernels_of_recorded_steps
    return bool(count[slow].mean() >= MORE_KERNELS * np.median(np.delete(count, slow)))


def _advice(causes: list[_Growth], parts: list[_Growth]) -> str:
    """What to change for each cause; where to look if none is known."""
    compute_ns = next((part.mean_ns for part in parts if part.part is COMPUTE), 0.0)
    same_work = compute_ns <= SAME_WORK * sum(max(part.mean_ns, 0.0) for part in parts)
    known = [(cause, HOST_SLOW if cause.part is LAUNCH and same_work else cause.part.advice) for cause in causes]
    advised = [(cause, advice) for cause, advice in known if advice is not None]
    if len(causes) == 1 or not advised:
        return advised[0][1] if advised else OTHERWISE
    return " ".join(f"{cause.label}: {_lower(advice)}" for cause, advice in advised)


def _lower(label: str) -> str:
    """The label within a sentence: "CPU operators" stays."""
    return f"{label[:1].lower()}{label[1:]}" if label[1:2].islower() else label


def _some(names: list[str], rows: I8) -> str:
    return ", ".join(names[row] for row in rows[:STEPS_NAMED]) + (", ..." if len(rows) > STEPS_NAMED else "")


def _wait_sentence(share: float) -> str:
    return f" The main thread waited for a free core for {percent(share)} of the run, which may be the reason."


def _period(slow: I8) -> int | None:
    """Number of steps from one slow step to the next; None if it varies."""
    period, regular = usual_interval(slow)
    return period if len(slow) > 2 and regular == 1.0 and period > 1 else None


def _mean_cost(facts: Facts, slow: I8) -> str:
    """What slow steps cost that are not start-up: spread over the typical steps. Empty if only one is slow."""
    recurring = np.intersect1d(slow, facts.recorded_steps.typical_rows)
    if len(recurring) < 2:
        return ""
    duration = facts.recorded_steps.duration
    cost_ns = float((duration[recurring] - median(duration)).sum()) / facts.steps.count
    return f" That costs {ms(cost_ns)} per step on average."


class _Growth(Struct, frozen=True):
    """A part of the step, and how much more of it the `steps` (indices of recorded steps) have than a usual one."""

    part: Cause
    label: str
    steps: I8
    more_ns: F8  # in each of these steps

    @property
    def mean_ns(self) -> float:
        return float(self.more_ns.mean())


def _what_grew(facts: Facts, slow: I8) -> list[_Growth]:
    """The parts and their growth in the slow steps over the median of the usual ones, largest mean first."""
    facts = facts.of_every_step
    usual = np.setdiff1d(np.arange(facts.steps.count), slow)
    grown = [
        _Growth(part, facts.label(part), slow, np.asarray(ns[slow] - median(ns[usual]), np.float64))
        for part, ns in facts.parts_by_step.items()
    ]
    return sorted(grown, key=lambda part: -part.mean_ns)


def _causes(parts: list[_Growth], slow: I8) -> list[_Growth]:
    """The part that grew most in each slow step, with the steps in which it did, largest growth first.

    One part with all slow steps if the others add little.
    """
    most = np.argmax([part.more_ns for part in parts], axis=0)  # by slow step
    causes = [
        _Growth(part.part, part.label, slow[most == i], part.more_ns[most == i])
        for i, part in enumerate(parts)
        if (most == i).any()
    ]
    causes.sort(key=lambda cause: -cause.more_ns.sum())
    growth_ns = sum(cause.more_ns.sum() for cause in causes)
    if causes[0].more_ns.sum() >= ONE_CAUSE * growth_ns:
        return [next(part for part in parts if part.part is causes[0].part)]
    return causes


def _rows(facts: Facts, cause: _Growth) -> I8:
    """Slices of the cause in its steps; empty if the cause has no place in the code."""
    if cause.part not in HOST_ACTIVITIES or cause.part in DISPATCH:
        return np.empty(0, np.int64)
    rows = facts.of_every_step.host.rows_of(cause.part)
    return rows[facts.recorded_steps.host_in(cause.steps, facts.slices.start[rows])]


def _sites(facts: Facts, cause: _Growth) -> list[SiteCost]:
    """Call sites of the cause in its steps; empty if the cause has no place in the code."""
    rows = _rows(facts, cause)
    cost = facts.of_every_step.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
    return by_site(facts, rows, cost)


def _site_rows(facts: Facts, cause: _Growth, sites: list[SiteCost]) -> list[Evidence]:
    return site_evidence(facts, sites, lambda _: cause.label, 3)


def _ends(facts: Facts, slow: I8) -> list[Location]:
    """Where the long steps of the run ended, if a recorded slow step is so long that it is one of them."""
    duration, ledger = facts.recorded_steps.duration, facts.captured.ledger
    if ledger is None or duration[slow].max() <= LONG * median(duration):
        return []
    return _places(ledger)


def _places(ledger: Ledger) -> list[Location]:
    return [place.location for place in ledger.long_ends[:1]]


def _times(factor: float) -> str:
    return f"{factor:.2f} x the median"
