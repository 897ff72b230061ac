"""The headline of a result: a fact and its cause, in at most two sentences after one about the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from traceopt.analyzer.attribution.limits import grouped
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import (
    CAUSE_OF_KEY,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    DATA_LOADING,
    DISPATCH,
    HOST_ACTIVITIES,
    HOST_SYNC,
    IDLE_CAUSES,
    LAUNCH,
    OPTIMIZER,
    PROFILER,
    PYTHON,
    QUEUED,
)
from traceopt.document.efficiency import against_reference, cpu_lever, kind_of_work, utilization
from traceopt.document.filling_work import filling_work, ways_of_copies
from traceopt.document.quality import caveat_of_file, stated
from traceopt.document.run.whole_run import fewer_threads_first, lacks_cores
from traceopt.result.document import Quality
from traceopt.result.finding import Finding, impact_of_share
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words.message import percent
from traceopt.result.words.quantities import in_sentence
from traceopt.rules.evidence import by_calling_site, functions_inside, running_in
from traceopt.rules.savings.potential import side_of, treated_cause
from traceopt.rules.savings.price import Priced

HEALTHY_IDLE_SHARE = 0.10
# From here on idle time is the headline, however much faster the GPU's own work could be. A cause that takes less is
# named as the largest, not as the bottleneck.
MOSTLY_IDLE_SHARE = 0.20
NAMED_SHARE = 0.5  # of the largest limit: the limit that the first fix treats is named if it is not far smaller
SMALL_PART = 0.1  # of a limit: its smaller parts are not named
RECURS_SHARE = 0.5  # of the time of a cause: with less of it all through the recording, the cause may pass

_NO_LAUNCHES = "The file holds no launch of its GPU work, so it does not show why."
_MORE_THAN_COMPUTE = {COMMUNICATION: " It is the bottleneck.", COPIES: " They are the bottleneck."}
_PASSING = "in a part of the recording. Without step marks, it is unknown whether it recurs."
NAMED_LIMIT_SHARE = 0.10  # of the step: a larger limit is named without a price, and a larger saving is much


def verdict(
    facts: Facts,
    quality: Quality,
    breakdown: Sequence[BreakdownPart],
    priced: Sequence[Priced],
    plan: Sequence[Priced],
    of_the_run: tuple[str, str] = ("", ""),
) -> str:
    """What limits the step, or why that is unknown. It names the limit that the first fix treats; if a larger one
    cannot be treated first, it says why. `priced`: all findings, `plan`: those of the plan, in its order. `of_the_run`:
    what is said before and after of the run beside its steps.
    """
    before, after = of_the_run
    evaluation = _evaluation(priced)
    if evaluation is not None:
        before += _start_with(facts, evaluation)
        plan = ()
    step = _of_the_step(facts, quality, breakdown, priced, plan)
    return step if quality.verdict == "unusable" else f"{before} {step}{against_reference(facts)} {after}".strip()


def _of_the_step(
    facts: Facts, quality: Quality, breakdown: Sequence[BreakdownPart], priced: Sequence[Priced], plan: Sequence[Priced]
) -> str:
    caveat = quality.caveat
    if caveat is not None and (quality.verdict == "unusable" or quality.sampled_share is not None):
        return caveat
    state = stated(facts, breakdown)
    if state is not None:
        few = state.name == "few_events"
        whole = (facts.gpu.busy.total, "the GPU's time") if few else (facts.steps.window_ns, _unit(facts))
        text = state.sentence + filling_work(facts, priced, *whole)
    else:
        of_device = _gpu_verdict if facts.has_gpu else _cpu_verdict
        text = (
            of_device(facts, breakdown, priced, plan) + _where_workers_do_not_help(facts, priced) + _without_load(facts)
        )
    return text if caveat_of_file(facts, state) is None else f"{caveat} As recorded: {text}"


def _gpu_verdict(
    facts: Facts, breakdown: Sequence[BreakdownPart], priced: Sequence[Priced], plan: Sequence[Priced]
) -> str:
    said = _GpuVerdict(facts, breakdown, priced, plan)
    reached = utilization(facts, computes=said.computes and not said.filling)
    return said.text + _without_gradients(facts, priced, said.first) + reached


class _GpuVerdict(Struct, frozen=True, dict=True):
    facts: Facts
    breakdown: Sequence[BreakdownPart]
    priced: Sequence[Priced]
    plan: Sequence[Priced]

    @property
    def text(self) -> str:
        start, lever = self._limit_and_lever
        return start + self.filling + lever

    @property
    def _limit_and_lever(self) -> tuple[str, str]:
        first, largest, limits = self.first, self.largest, self.limits
        exceeds = largest.busy and limits[largest] > self.compute
        if exceeds and (first is None or self.treated in (None, largest)):
            return self._bottleneck(largest), ""
        waits = exceeds or max(self.idle, limits[COMMUNICATION]) >= MOSTLY_IDLE_SHARE
        treated = self.treated if self.treated is not None or first is None or not waits else largest
        if treated in limits and limits[treated] >= NAMED_SHARE * limits[largest]:
            later = self._of_other_work if treated is largest else f" {self._why_later(largest)}"
            if self.filling and not waits and not treated.busy:
                return self._busy, f" {self._rank_of(treated, ' of idle time')}{later}"
            return self._bottleneck(treated), later
        if first is None:
            if self.idle < MOSTLY_IDLE_SHARE and limits[largest] < MOSTLY_IDLE_SHARE:
                return self._busy + self._unpriced(largest), ""
            return self._bottleneck(largest), ""
        if not waits:
            return self._busy, f" {self._lever(first)}: {in_sentence(first.finding.title)}."
        start = f" First fix: {in_sentence(first.finding.title)}."
        return self._state(largest), f"{start} {self._why_later(largest)}"

    def _lever(self, first: Priced) -> str:
        """What the first fix is called: the biggest lever if it saves much of the step, and no other saves more."""
        shares = [row.price.share for row in self.plan if row.price is not None]
        largest = first.price is not None and first.price.share == max(shares) >= NAMED_LIMIT_SHARE
        return "Biggest lever" if largest else "First fix"

    @property
    def _of_other_work(self) -> str:
        """The first fix, if it is for launches of a kind that "launch-bound" does not name, such as the optimizer's, or
        for syncs of copies.
        """
        first, treated = self.first, self.treated
        if first is None or treated is None or treated not in (LAUNCH, HOST_SYNC):
            return ""
        if first.finding.code in treated.rules and first.finding.code not in COPIES.rules:
            return ""
        return f" First fix: {in_sentence(first.finding.title)}."

    @cached_property
    def filling(self) -> str:
        """A sentence on the work that fills the step, if no fix shortens it."""
        return filling_work(self.facts, self.priced, self.facts.steps.window_ns, self.unit)

    @cached_property
    def limits(self) -> dict[Cause, float]:
        """What holds the compute up, as shares of the step: idle causes, exposed communication and copies."""
        groups = grouped({CAUSE_OF_KEY[part.name]: part.share for part in self.breakdown})
        wanted = (*IDLE_CAUSES, COMMUNICATION, COPIES)
        return {cause: groups.get(cause, 0.0) for cause in wanted if cause not in DISPATCH or cause is LAUNCH}

    @property
    def idle(self) -> float:
        return sum(part.share for part in self.breakdown if not part.busy)

    @property
    def compute(self) -> float:
        return sum(part.share for part in self.breakdown if part.name == COMPUTE.key)

    @property
    def computes(self) -> bool:
        """Whether no wait takes much of the step, so that the compute is the question."""
        return max(self.idle, *self.limits.values()) < MOSTLY_IDLE_SHARE

    @property
    def largest(self) -> Cause:
        return max(self.limits, key=lambda cause: self.limits[cause])

    @property
    def first(self) -> Priced | None:
        return _first_fix(self.plan)

    @cached_property
    def treated(self) -> Cause | None:
        """The cause that the first fix treats: the largest if its rule is about that, else what a replay shows."""
        if self.first is None:
            return None
        if self.first.finding.code in self.largest.rules:
            return self.largest
        return treated_cause(self.facts, self.first.changes)

    @property
    def unit(self) -> str:
        return _unit(self.facts)

    @property
    def _busy(self) -> str:
        bound = "GPU-bound" if self.idle < HEALTHY_IDLE_SHARE else "Mostly GPU-bound"
        return f"{bound}: {self._who} busy for {percent(1 - self.idle)} of {self.unit}{self._each}."

    @property
    def _who(self) -> str:
        gpu = self.facts.gpu
        number = len(gpu.computing)
        if number < 2:
            return "the GPU is" if len(gpu.devices) < 2 or not number else f"GPU {gpu.computing[0]} is"
        turns = f"{number} GPUs take turns, and one of them is"
        return turns if self._takes_turns else f"at least one of {number} GPUs is"

    @property
    def _each(self) -> str:
        """How busy each of several GPUs is that do not take turns."""
        areas = [self.facts.gpu.busy_by_device[device].total for device in self.facts.gpu.computing]
        if len(areas) < 2 or self._takes_turns:
            return ""
        return f", each for {percent(sum(areas) / len(areas) / self.facts.steps.window_ns)} on average"

    @property
    def _takes_turns(self) -> bool:
        return any(one.finding.code == "PH003" for one in self.priced)

    def _state(self, limit: Cause) -> str:
        if limit.busy:
            return f"{self.facts.label(limit)}: {percent(self.limits[limit])} of {self.unit}."
        number = len(self.facts.gpu.computing)
        is_idle = "seems idle" if limit is QUEUED else "is idle"
        who = f"The GPU {is_idle}" if number < 2 else f"None of the {number} GPUs works"
        by_profiler = sum(part.share for part in self.breakdown if part.name == PROFILER.key)
        of_it = f" ({percent(by_profiler)} for the profiler)" if by_profiler >= NAMED_LIMIT_SHARE else ""
        return f"{who} for {percent(self.idle)} of {self.unit}{of_it if limit is not PROFILER else ''}."

    def _bottleneck(self, limit: Cause) -> str:
        if limit.busy:
            waits_ns, exposed_ns = self.facts.stage_waits.total_ns, self.facts.overlap.exposed_ns.sum()
            if limit is COMMUNICATION and waits_ns > NAMED_SHARE * exposed_ns:
                share = percent(waits_ns / self.facts.steps.window_ns)
                return f"The GPU waits for other pipeline stages for {share} of {self.unit}."
            late_ns = self.facts.late_waits.exposed_ns.sum()
            if limit is COMMUNICATION and late_ns > NAMED_SHARE * exposed_ns:
                share = percent(late_ns / self.facts.steps.window_ns)
                return f"The GPU waits for another rank for {share} of {self.unit}."
            most = _MORE_THAN_COMPUTE[limit] if self.limits[limit] > self.compute else ""
            ways = ways_of_copies(self.facts) if limit is COPIES else ""
            return limit.verdict.format(share=percent(self.limits[limit]), unit=self.unit + ways) + most
        if limit.host_label and self.facts.replay_error is None:
            return f"{self._state(limit)} {_NO_LAUNCHES}"
        if limit is not QUEUED and self.limits[limit] < MOSTLY_IDLE_SHARE:
            return f"{self._state(limit)} {self._rank_of(limit)}"
        if limit.may_pass and self._passes(limit):
            return f"{self._state(limit)} Largest cause: {self._parts(limit)}, {_PASSING}"
        return f"{self._state(limit)} {limit.verdict}"

    def _rank_of(self, limit: Cause, of: str = "") -> str:
        rank = f"Largest cause{of}" if limit is self.largest else "First cause to treat"
        return f"{rank}: {self._parts(limit)}."

    def _passes(self, cause: Cause) -> bool:
        """Whether most of the time of a cause lies in a part of a recording without step marks."""
        idle = self.facts.idle
        return not self.facts.has_step_marks and idle.recurring_ns(cause) < RECURS_SHARE * idle.typical_ns(cause)

    def _unpriced(self, limit: Cause) -> str:
        """Names the largest limit if it takes much of the step, although what its fix saves is not known."""
        if self.limits[limit] < NAMED_LIMIT_SHARE:
            return ""
        return f" {self.facts.label(limit)}: {percent(self.limits[limit])} of {self.unit}."

    def _why_later(self, limit: Cause) -> str:
        """Why the largest limit is not treated first."""
        parts = self._parts(limit)
        later = next((row for row in self.plan[1:] if self._is_for(limit, row)), None)
        if later is not None:
            return f"A later fix is for {parts}: {in_sentence(later.finding.title)}."
        if any(self._is_for(limit, one) for one in self.priced):
            return f"The plan has no fix for what takes most, {parts}."
        return f"No fix was found for what takes most, {parts}."

    def _parts(self, limit: Cause) -> str:
        """The parts of the step that are this limit: "launching GPU work (8.4%), untraced between launches (3.1%)"."""
        causes = DISPATCH if limit is LAUNCH else (limit,)
        shares = {CAUSE_OF_KEY[part.name]: part.share for part in self.breakdown}
        found = sorted((cause for cause in causes if cause in shares), key=lambda cause: -shares[cause])
        named = [cause for cause in found if shares[cause] >= SMALL_PART * self.limits[limit]]
        return ", ".join(f"{in_sentence(self.facts.label(cause))} ({percent(shares[cause])})" for cause in named)

    def _is_for(self, limit: Cause, one: Priced) -> bool:
        """Whether a fix treats this limit. Less compute before a collective shortens exposed communication as well, but
        is no fix for it.
        """
        if one.finding.code in limit.rules:
            return True
        another = limit is COMMUNICATION and side_of(one, self.facts) != "communication"
        return not another and treated_cause(self.facts, one.changes) is limit


def _first_fix(plan: Sequence[Priced]) -> Priced | None:
    """The first fix of the plan, if it is worth a headline."""
    return next((row for row in plan if row.price and row.finding.impact in ("high", "medium")), None)


def _evaluation(priced: Sequence[Priced]) -> Finding | None:
    """The evaluations if they take more of the run than its steps, so that they come before all fixes of the step."""
    return next((one.finding for one in priced if one.finding.code == "EF005" and one.finding.impact == "high"), None)


def _start_with(facts: Facts, finding: Finding) -> str:
    """The first fix, or the next after another number of threads."""
    return f" {'Next' if fewer_threads_first(facts) else 'First fix'}: {in_sentence(finding.title)}."


def _without_gradients(facts: Facts, priced: Sequence[Priced], first: Priced | None) -> str:
    """Names forward passes that train nothing if they take more than the first fix saves. They have no saving, because
    only the author knows whether each step needs them.
    """
    found = [one.finding for one in priced if one.finding.code == "EF007"]
    if not found:
        return ""
    kinds = {
        None: ("without gradients", facts.calls_without_gradients),
        "unused gradients": ("whose gradients nothing uses", facts.calls_without_backward),
        "frozen layers": ("of frozen layers", facts.calls_of_frozen_layers),
    }
    calls = [(of.total_ns / facts.steps.count, kind, one) for one in found for kind, of in [kinds[one.aspect]] if of]
    ns, kind, largest = max(calls, key=lambda call: call[0])
    if first is not None and first.price is not None and ns <= first.price.est_ns:
        return ""
    where = f" ({largest.locations[0]})" if largest.locations else ""
    return f" Forward passes {kind} take {percent(ns / facts.step_ns)} of {_unit(facts)}{where}."


def _where_workers_do_not_help(facts: Facts, priced: Sequence[Priced]) -> str:
    """What helps if the loop waits long for data and more workers would not change it: no saving follows from the
    trace.
    """
    if impact_of_share(facts.stalls.typical_ns(DATA_LOADING) / max(facts.step_ns, 1)) != "high":
        return ""
    found = next((one.finding for one in priced if one.finding.code == "DL001" and one.finding.saving is None), None)
    if found is None:
        return ""
    where = f" ({found.locations[0]})" if found.locations else ""
    return f" More workers would gain little: {in_sentence(found.title)}{where}."


def _without_load(facts: Facts) -> str:
    """What to do if the step may only wait for requests, so that no fix shortens it."""
    if not facts.may_wait_for_requests:
        return ""
    return " A server that waits for requests has nothing to compute: record it under load."


def _unit(facts: Facts) -> str:
    return "the step" if facts.has_step_marks else "the trace"


def _cpu_verdict(
    facts: Facts, breakdown: Sequence[BreakdownPart], priced: Sequence[Priced], plan: Sequence[Priced]
) -> str:
    limit = _cpu_limit(facts, breakdown)
    if facts.quality.gpu_expected:
        limit = f"No GPU work was recorded. {limit}"
    else:
        machine = facts.trace.meta.device_properties()
        limit = f"{'CPU run on a machine with a GPU' if machine else 'CPU-only run'}: {in_sentence(limit)}"
    first = _first_fix(plan)
    limit += _without_gradients(facts, priced, first)
    if first is not None:
        return limit + _start_with(facts, first.finding)
    return limit if _evaluation(priced) is not None else limit + cpu_lever(facts, lacks_cores(facts))


def _cpu_limit(facts: Facts, breakdown: Sequence[BreakdownPart]) -> str:
    work = sum(p.share for p in breakdown if p.busy and p.name != COMMUNICATION.key)
    waits = [p for p in breakdown if not p.busy or p.name == COMMUNICATION.key]
    longest = max(waits, key=lambda p: p.share, default=None)
    if longest is not None and longest.share >= max(HEALTHY_IDLE_SHARE, 0.5 * work):
        label = f"{longest.label}{_where(facts, CAUSE_OF_KEY[longest.name])}"
        return f"{label} takes {percent(longest.share)} of {_unit(facts)}; model work takes {percent(work)}."
    optimizer = sum(p.share for p in breakdown if p.name == OPTIMIZER.key)
    kind = f", most of it the optimizer ({percent(optimizer)})" if optimizer > 0.5 * work else kind_of_work(facts)
    return f"Model work takes {percent(work)} of {_unit(facts)}{kind}."


def _where(facts: Facts, phase: Cause) -> str:
    """The line with most of a phase of the main thread, in brackets: the line that runs, the innermost function, or the
    line that calls. None of what runs in few of the steps: a thread that waits for a core seems to run Python.
    """
    area = facts.cpu_phases.areas[phase]
    found = [*running_in(facts, area)]
    if phase in HOST_ACTIVITIES and phase is not PYTHON:
        calls = facts.host.rows_of(phase)
        calls = calls[facts.slices.thread[calls] == facts.steps.thread]
        in_phase = area.within(facts.slices.start[calls], facts.slices.end[calls])
        found += [functions_inside(facts, calls)[::-1], by_calling_site(facts, calls, in_phase)]
    most = (site for sites in found for site in sites if site.location and site.cost_ns >= NAMED_SHARE * area.total)
    largest = next(most, None)
    return f" ({largest.location})" if largest is not None else ""
