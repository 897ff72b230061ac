"""Steps of a run without a GPU, made by hand, and what a rule says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from traceopt.analyzer.facts import Facts
from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.rules.engine import run_rules
from traceopt.rules.registry import builtin_rules
from traceopt.testing import events as build

RULES = {rule.code: rule for rule in builtin_rules()}
STEP_US, STEPS = 10_000, 4
Events = Iterator[build.Json]


def cpu_facts(step: Callable[[float, int], Events], **metadata: object) -> Facts:
    """Four steps; `step(start, index)` yields the events of one."""
    events = []
    for index in range(STEPS):
        start = index * STEP_US
        events.append(build.annotation(f"ProfilerStep#{index}", start, STEP_US))
        events.append(build.python("train.py(5): train", start, STEP_US))
        events += step(start, index)
    return Facts(build.read(build.document(events, **metadata)))


def cpu_answer(code: str, step: Callable[[float, int], Events], **metadata: object) -> tuple[Check, list[Finding]]:
    """What a rule says of such steps."""
    outcome = run_rules([RULES[code]()], cpu_facts(step, **metadata), debug=True)
    return outcome.checks[0], outcome.findings


def the(code: str, step: Callable[[float, int], Events]) -> tuple[Finding, float, list[str]]:
    """The only finding, what it saves of a step (us), and its places."""
    check, findings = cpu_answer(code, step)
    assert len(findings) == 1, check.reason
    [finding] = findings
    assert finding.saving is not None
    return finding, finding.saving.est_us, [str(place) for place in finding.locations]


def silent(code: str, step: Callable[[float, int], Events]) -> bool:
    return cpu_answer(code, step)[0].status in ("passed", "not_applicable")
