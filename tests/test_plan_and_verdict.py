"""The plan adds up, its first fix is true alone, and the verdict follows from the plan: on every trace."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import Struct
from msgspec.structs import replace
from support.findings import outcome_of
from support.repeated import repeated
from support.traces import FILES, GENERATED, TWINS, AnalyzedTrace, GetExample, over

from fixtures.real_traces import TRACES, load
from traceopt.analyzer.attribution.limits import grouped
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.vocabulary.causes.table import (
    CAUSE_OF_KEY,
    COMMUNICATION,
    COPIES,
    IDLE_CAUSES,
    LOADER_STARTUP,
    QUEUED,
    STARTUP,
    UNRECORDED,
    UNTRACED_PYTHON,
)
from traceopt.document import verdict
from traceopt.document.rank_document import rank_document
from traceopt.errors import InputError
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import PlanRow
from traceopt.result.words.quantities import percent
from traceopt.rules.engine import RulesOutcome
from traceopt.rules.plan import MAX_ROWS, MIN_PLAN_SHARE, MIN_ROW_SHARE, Plan
from traceopt.rules.savings.known_error import MAX_SAVED_SHARE
from traceopt.rules.savings.potential import treated_cause
from traceopt.rules.savings.pricing import gain_ns
from traceopt.what_if import what_if

ROUNDING_US = 0.002
MOSTLY_IDLE = 0.9
# Why nothing can be fixed although the GPU hardly works.
REASONS = [cause.verdict for cause in (UNRECORDED, QUEUED, UNTRACED_PYTHON, STARTUP, LOADER_STARTUP)]
REASONS += [verdict._NO_LAUNCHES, verdict._PASSING]


class Analysis(Struct, frozen=True):
    facts: Facts
    outcome: RulesOutcome
    result: Result


def analysis_of(events: bytes) -> Analysis:
    facts = Facts(read_trace(io.BytesIO(events), "trace.json"))
    outcome = outcome_of(facts)
    return Analysis(facts, outcome, rank_document(facts, outcome))


def faults_of(analysis: Analysis | AnalyzedTrace) -> list[str]:
    found = [
        *sums(analysis.result),
        *rows(analysis.result),
        *too_sure(analysis.result),
        *first_fix(analysis),
        *better_plans(analysis),
        *idle_share(analysis.result),
    ]
    said = [
        *limit_left(analysis.result),
        *no_larger_part(analysis),
        *named_limit(analysis),
        *named_fix(analysis.result),
        *later_fix(analysis.result),
        *silence(analysis),
    ]
    return [*found, *said]


def sums(document: Result) -> Iterator[str]:
    """What does not add up: the rows, and the step after each."""
    if not document.plan:
        if document.combined is not None:
            yield "fixes are combined without a plan"
        return
    if document.combined is None or document.step.typical_us is None:
        yield "a plan without the fixes combined"
        return
    step_us = document.step.typical_us
    for row in document.plan:
        step_us -= row.saving_us
        if row.step_us_after != pytest.approx(step_us, abs=ROUNDING_US * len(document.plan)):
            yield f"{row.code}: the step after it is {row.step_us_after}, not {step_us}"
    together_us = sum(row.saving_us for row in document.plan)
    if document.combined.saving_us != pytest.approx(together_us, abs=ROUNDING_US):
        yield f"the rows save {together_us}, together {document.combined.saving_us}"
    if document.combined.step_us_after != document.plan[-1].step_us_after:
        yield "the step after all fixes is not that after the last row"
    if document.combined.codes != [row.code for row in document.plan]:
        yield "the combined fixes differ from the plan"
    if document.combined.share != pytest.approx(together_us / document.step.typical_us, abs=1e-5):
        yield f"{document.combined.saving_us} are not {document.combined.share} of the step"
    left_us = sum(part.us_per_step for part in document.combined.breakdown_after)
    if document.combined.breakdown_after and left_us != pytest.approx(step_us, abs=1):
        yield f"the parts that are left take {left_us} of {step_us}"
    if len(document.plan) > MAX_ROWS:
        yield f"{len(document.plan)} rows"


def rows(document: Result) -> Iterator[str]:
    """Rows that name another finding or one twice, need a later row, share a cause, or add too little to the others."""
    of_id = {finding.id: finding for finding in document.findings}
    if [row.finding for row in document.plan] != list(of_id)[: len(document.plan)]:
        yield "the findings begin with others than the plan's"
    least_us = MIN_ROW_SHARE * (document.step.typical_us or 0.0)
    for number, row in enumerate(document.plan, 1):
        if row.finding not in of_id or of_id[row.finding].code != row.code:
            yield f"row {number} names another finding"
        if row.finding in [earlier.finding for earlier in document.plan[: number - 1]]:
            yield f"row {number} names the finding of an earlier row"
        if any(not 1 <= needed < number for needed in row.needs):
            yield f"row {number} needs {row.needs}"
        if row.needs and row.alone_us >= row.saving_us:
            yield f"row {number} needs no other: alone it saves {row.alone_us} of {row.saving_us}"
        if not 0 <= row.low_us <= row.saving_us <= row.high_us:
            yield f"row {number}: {row.low_us} <= {row.saving_us} <= {row.high_us}"
        if number == len(document.plan) and row.saving_us < least_us - ROUNDING_US:  # others may need an earlier one
            yield f"the last row saves only {row.saving_us}"
    for row, finding in document.planned:
        if finding.saving is None or row.alone_us != pytest.approx(finding.saving.est_us, abs=ROUNDING_US):
            yield f"{row.code} saves {row.alone_us} alone, its finding {finding.saving}"
    for one, other in combinations([finding for _, finding in document.planned], 2):
        if one.code in other.shares_cause_with or other.code in one.shares_cause_with:
            yield f"{one.code} and {other.code} share a cause"


def too_sure(document: Result) -> Iterator[str]:
    """Findings with high confidence that may save nothing, alone or after the fixes above."""
    least_us = {finding.id: finding.saving.low_us for finding in document.findings if finding.saving is not None}
    least_us |= {row.finding: row.low_us for row in document.plan}
    for finding in document.findings:
        if finding.confidence == "high" and least_us.get(finding.id, 1.0) <= 0:
            yield f"{finding.code} is sure, and saves {least_us[finding.id]} at least"


def first_fix(analysis: Analysis | AnalyzedTrace) -> Iterator[str]:
    """Whether the first row saves alone what it states."""
    if not analysis.result.plan:
        return
    row, fix, facts = analysis.result.plan[0], analysis.outcome.priced[0], analysis.facts
    if row.needs or row.saving_us > row.alone_us + ROUNDING_US:
        yield f"{row.code} saves {row.alone_us} alone, {row.saving_us} as the first"
    if fix.price is not None and fix.changes and facts.replay_error is not None:
        most_ns = min(fix.price.bounds_ns[1], MAX_SAVED_SHARE * facts.step_ns)
        alone_us = min(gain_ns(facts, fix.changes), most_ns) / 1e3
        if row.alone_us != pytest.approx(alone_us, abs=ROUNDING_US):
            yield f"{row.code} states {row.alone_us}, its replay {alone_us}"


def better_plans(analysis: Analysis | AnalyzedTrace) -> Iterator[str]:
    """Sets of fixes that save more than the plan, by more than 1 % of the step."""
    plan, facts = analysis.outcome.plan, analysis.facts
    if plan is None or not facts.replay_trusted or facts.quality.sampled_share is not None:
        return
    enough_ns = max(plan.saving_ns + MIN_ROW_SHARE * plan.step_ns, MIN_PLAN_SHARE * plan.step_ns)
    fixes = [one for one in analysis.outcome.priced if one.price is not None]
    for count in range(1, MAX_ROWS + 1):
        for others in combinations(fixes, count):
            rivals = any(one.shares_cause_with(other) for one, other in combinations(others, 2))
            if not rivals and plan.savings.of(others) > enough_ns + 1:
                saved_ns = plan.savings.of(others)
                yield f"{[one.finding.code for one in others]} save {saved_ns}, the plan {plan.saving_ns}"


def idle_share(document: Result) -> Iterator[str]:
    """Whether the verdict's idle time is the sum of the parts."""
    said = re.search(r"GPU (?:is|seems) idle for (\S+) of", document.verdict)
    parts = percent(sum(part.share for part in document.breakdown if not part.busy))
    if said is not None and said[1] != parts:
        yield f"idle for {said[1]} in the verdict, {parts} in the parts"


def no_larger_part(analysis: Analysis | AnalyzedTrace) -> Iterator[str]:
    """Whether exposed communication or copies that are called the bottleneck take more than compute."""
    said = re.search(
        r"Exposed \(non-overlapped\) (\w+) takes? \S+ of .*(?:It is|They are) the bottleneck", analysis.result.verdict
    )
    shares = {part.name: part.share for part in analysis.result.breakdown}
    if said is not None and shares.get(said[1], 0.0) <= shares.get("compute", 0.0):
        yield f"{said[1]} are the bottleneck, but compute takes more"


def named_limit(analysis: Analysis | AnalyzedTrace) -> Iterator[str]:
    """Whether the first fix treats the limit that the verdict names."""
    said = analysis.result.verdict
    named = {cause for cause in IDLE_CAUSES if cause.verdict in said}
    named |= {cause for cause in (COMMUNICATION, COPIES) if said.startswith(cause.verdict.partition("{")[0])}
    replayed = analysis.facts.replay_error is not None  # or else nothing shows what a fix treats
    if not named or not analysis.result.plan or not analysis.outcome.priced[0].changes or not replayed:
        return
    treated = treated_cause(analysis.facts, analysis.outcome.priced[0].changes)
    if treated not in named:
        names = " or ".join(sorted(cause.label for cause in named))
        yield f"{names} is the bottleneck, but {analysis.outcome.priced[0].finding.code} treats {treated}"


def named_fix(document: Result) -> Iterator[str]:
    """Whether the fix that the verdict names is the first of the plan that matters, and none if it names none."""
    said = re.search(r"(?:First fix|Biggest lever): (.+?)\.(?: |$)", document.verdict)
    fixes = [finding for _, finding in document.planned]
    first = next((fix for fix in fixes if fix.impact in ("high", "medium")), None)
    if said is not None and (first is None or said[1].lower() != first.title.lower()):
        yield f"{said[1]!r} is not the first fix, {first.code if first is not None else 'of none'}"


def limit_left(document: Result) -> Iterator[str]:
    """Whether the limit after the fixes is the largest part that is left, or a cause of a step that is mostly idle."""
    combined = document.combined
    if combined is None or combined.limit_after is None:
        return
    left = combined.breakdown_after
    shares = {CAUSE_OF_KEY[part.name]: part.share for part in left}
    groups = grouped(shares) if document.gpu.busy_share is not None else {}
    idle = sum(part.share for part in left if not part.busy)
    if not left:
        yield "a limit after the fixes, but it is not known what is left"
    elif groups and idle < 0.5 and groups[CAUSE_OF_KEY[combined.limit_after]] < max(groups.values()) - 1e-6:
        yield f"the step is said to be limited by {combined.limit_after}, which is not the largest part"


def later_fix(document: Result) -> Iterator[str]:
    """Whether the fix that the verdict names for exposed communication is one."""
    said = re.search(r"The fix for exposed communication \(\S+\), (\w+),", document.verdict)
    if said is not None and not said[1].startswith("CM"):
        yield f"{said[1]} is no fix for communication"


def silence(analysis: Analysis | AnalyzedTrace) -> Iterator[str]:
    """A GPU that hardly works, and nothing to fix: why?"""
    said, state = analysis.result.verdict, analysis.facts.state
    idle = analysis.result.gpu.idle_share or 0.0
    sampled = analysis.result.quality.sampled_share is not None
    explained = sampled or state is not None or any(reason in said for reason in REASONS)
    fixes = [one for one in analysis.result.findings if one.saving is not None and one.impact in ("high", "medium")]
    if idle >= MOSTLY_IDLE and not fixes and not explained:
        yield f"idle for {percent(idle)}, and nothing to fix: {said}"


@over(GENERATED, TWINS, FILES)
def test_of_every_trace(trace: AnalyzedTrace) -> None:
    assert faults_of(trace) == []


@over(GENERATED[::3], FILES)
def test_what_if_gives_what_the_plan_states(trace: AnalyzedTrace) -> None:
    assert_what_if_agrees(trace.path, trace.result)


Events = list[dict[str, Any]]

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
LARGEST_BYTES = 400_000  # of the files of which parts are removed: these are quick, and three of four


def is_a_mark(event: dict[str, Any]) -> bool:
    return str(event.get("name")).startswith("ProfilerStep") and event.get("cat") != "gpu_user_annotation"


def without_the_start(events: Events) -> Events:
    times = sorted(float(event["ts"]) for event in events if event.get("ph") != "M" and "ts" in event)
    from_us = times[len(times) * 2 // 5]
    return [event for event in events if event.get("ph") == "M" or float(event.get("ts", 0)) >= from_us]


def without_operators(events: Events) -> Events:
    return [event for event in events if event.get("cat") not in ("cpu_op", "Operator", "python_function")]


def without_launches(events: Events) -> Events:
    return [event for event in events if event.get("cat") not in ("cuda_runtime", "cuda_driver", "Runtime", "ac2g")]


def without_marks(events: Events) -> Events:
    return [event for event in events if not is_a_mark(event)]


def on_one_stream(events: Events) -> Events:
    return [
        {**event, "tid": 7, "args": {**event.get("args", {}), "stream": 7}} if event.get("cat") in ON_DEVICE else event
        for event in events
    ]


CHANGED = [without_the_start, without_operators, without_launches, without_marks, on_one_stream]
SMALL = [file for file in FILES if (TRACES / file).stat().st_size <= LARGEST_BYTES]


@pytest.mark.real_traces
@pytest.mark.parametrize("file", SMALL)
def test_real_traces_of_which_parts_are_missing(file: str) -> None:
    """What the report then says still agrees with itself. Two of the changes for each file, by turns."""
    document = load(TRACES / file)
    document = {"traceEvents": document} if isinstance(document, list) else document
    turn = SMALL.index(file)
    for change in (CHANGED[turn % len(CHANGED)], CHANGED[(turn + 2) % len(CHANGED)]):
        changed = {**document, "traceEvents": change(document["traceEvents"])}
        assert faults_of(analysis_of(json.dumps(changed).encode())) == [], change.__name__


# Whose last steps are unlike the others: the fault is one of some steps, or no mark shows where they begin.
UNLIKE = ("cudnn_search", "slow_steps", "recompilation", "module_load", "no_profiler_step")
RARE = ("gc_churn",)  # whose fault is not in every step
# Small real traces whose marked steps are alike and leave the device nothing to do. In the others, a copy has a seam.
ALIKE = [
    "public/leimao_5080_nograph_man2.json.gz",
    "public/tb_a100_trace1.json.gz",
    "public/tb_a100_trace2.json.gz",
    "public/tb_a100_trace3.json.gz",
]


@over([scenario for scenario in GENERATED[::2] if scenario not in UNLIKE], ALIKE)
def test_more_steps_give_the_same_plan(trace: AnalyzedTrace) -> None:
    """And nothing saves or takes more per step there. Savings may differ by as much as the step does."""
    once, is_real = trace.result, trace.path.suffix == ".gz"
    document = load(trace.path) if is_real else orjson.loads(trace.path.read_bytes())
    times = 10 if trace.path.stem in RARE else 4
    more = analysis_of(orjson.dumps(repeated(document, times, steps=3)))
    assert more.facts.steps.count >= times * min(3, trace.facts.steps.count) - 2
    assert faults_of(more) == []
    assert [row.code for row in more.result.plan] == [row.code for row in once.plan]
    step_ns, steps_ns = trace.facts.step_ns, more.facts.step_ns
    for row, other in zip(more.result.plan, once.plan, strict=True):
        assert row.saving_us == pytest.approx(other.saving_us, abs=(0.01 * steps_ns + abs(steps_ns - step_ns)) / 1e3)
    seen, before = sums_per_step(more.result), sums_per_step(once)
    for what in seen.keys() & before.keys():  # some work belongs to the first or the last step alone
        assert seen[what] == pytest.approx(before[what], rel=0.5, abs=0.01 * step_ns / 1e3), what


def sums_per_step(part: Any, *place: str) -> Counter[tuple[str, ...]]:
    """All numbers per step of a document, added up by the fields that lead to them and the codes of findings."""
    sums: Counter[tuple[str, ...]] = Counter()
    for item in part if isinstance(part, list) else [part]:
        for field in item.__struct_fields__ if isinstance(item, Struct) else ():
            value, inside = getattr(item, field), (*place, getattr(item, "code", None) or "", field)
            if field.endswith("_per_step") and isinstance(value, int | float):
                sums[inside] += value
            else:
                sums.update(sums_per_step(value, *inside))
    return sums


def assert_what_if_agrees(path: Path, document: Result) -> None:
    """`traceopt whatif` for the fixes of the plan gives its step, rows and parts, to the last digit."""
    if document.combined is None:
        return
    fixes = [row.finding for row in document.plan]
    try:
        replayed = what_if(str(path), fixes[::-1])
    except InputError as error:
        assert "nothing can be replayed" in str(error)  # noqa: PT017
        return
    assert replayed.before_us == document.step.typical_us
    assert replayed.after_us == document.combined.step_us_after
    assert replayed.saving_us == document.combined.saving_us
    rows = [(row.code, row.alone_us, row.saving_us, row.capped) for row in document.plan]
    assert [(fix.code, fix.alone_us, fix.saving_us, fix.capped) for fix in replayed.fixes] == rows
    now = {part.name: part.us_per_step for part in document.breakdown if part.us_per_step}
    assert {part.name: part.before_us for part in replayed.parts if part.before_us} == now
    left = {part.name: part.us_per_step for part in document.combined.breakdown_after if part.us_per_step}
    assert {part.name: part.after_us for part in replayed.parts if part.after_us} == left
    assert replayed.limit_after == document.combined.limit_after


@pytest.mark.parametrize("factor", [0.65, 2.0])
@pytest.mark.parametrize("scenario", ["five_faults", "slow_loader", "item_stall", "launch_bound", "exposed_allreduce"])
def test_times_that_are_all_longer_or_shorter_keep_the_plan(example: GetExample, scenario: str, factor: float) -> None:
    """Only rates of the device and of its links, and the cost of a launch, are the same on each machine. Half the time
    would be impossible: matmuls reach 62 % of the peak.
    """
    document = example(scenario).trace.document
    events = [stretched(event, factor) for event in document["traceEvents"]]
    longer = analysis_of(json.dumps({**document, "traceEvents": events}).encode()).result.plan
    plan = example(scenario).result.plan
    assert [row.code for row in longer] == [row.code for row in plan]
    assert longer[0].saving_us == pytest.approx(factor * plan[0].saving_us, rel=0.15)


def stretched(event: dict[str, Any], factor: float) -> dict[str, Any]:
    return event | {key: factor * event[key] for key in ("ts", "dur") if key in event and event["ph"] != "M"}


class TestTheChecksSeeWhatTheyLookFor:
    @pytest.fixture
    def analysis(self, example: GetExample) -> Analysis:
        trace = example("five_faults")
        assert len(trace.result.plan) > 1
        return Analysis(trace.facts, trace.outcome, trace.result)

    @staticmethod
    def changed(analysis: Analysis, place: int, **values: object) -> list[str]:
        """The faults after some values of a row have changed."""
        plan: list[PlanRow] = list(analysis.result.plan)
        plan[place] = replace(plan[place], **values)
        return faults_of(replace(analysis, result=replace(analysis.result, plan=plan)))

    @pytest.mark.parametrize(
        ("place", "values"),
        [
            (0, {"saving_us": 1.0}),
            (0, {"alone_us": 1.0}),
            (0, {"step_us_after": 1.0}),
            (0, {"needs": [1]}),
            (1, {"needs": [2]}),
            (1, {"finding": "DL001-000000"}),
            (1, {"low_us": 1e9}),
        ],
    )
    def test_wrong_rows(self, analysis: Analysis, place: int, values: dict[str, object]) -> None:
        assert self.changed(analysis, place, **values)

    def test_a_shared_cause(self, analysis: Analysis) -> None:
        first, second, *others = analysis.result.findings
        findings = [replace(first, shares_cause_with=[second.code]), second, *others]
        assert faults_of(replace(analysis, result=replace(analysis.result, findings=findings)))

    @pytest.mark.parametrize(
        "said",
        [
            "The GPU is idle for 3% of the step.",
            "Exposed (non-overlapped) communication takes 50% of the step. It is the bottleneck.",
            "Allocating device memory is the bottleneck.",
            "The fix for exposed communication (19%), LB003, saves 4.7 ms alone.",
            "CPU-only run: model work takes 97% of the step. First fix: write less code.",
        ],
    )
    def test_wrong_verdicts(self, analysis: Analysis, said: str) -> None:
        assert faults_of(replace(analysis, result=replace(analysis.result, verdict=said)))

    def test_silence(self, analysis: Analysis) -> None:
        gpu = replace(analysis.result.gpu, idle_share=0.98)
        document = replace(analysis.result, gpu=gpu, findings=[], plan=[], verdict="It is idle.")
        assert faults_of(replace(analysis, result=document))

    def test_a_better_plan(self, analysis: Analysis) -> None:
        plan = analysis.outcome.plan
        assert plan is not None
        outcome = replace(analysis.outcome, plan=Plan(plan.rows[1:], plan.savings))
        assert [*better_plans(replace(analysis, outcome=outcome))]

    def test_another_step_than_that_of_what_if(self, example: GetExample) -> None:
        trace = example("five_faults")
        assert trace.result.combined is not None
        combined = replace(trace.result.combined, step_us_after=1.0)
        with pytest.raises(AssertionError):
            assert_what_if_agrees(trace.path, replace(trace.result, combined=combined))
