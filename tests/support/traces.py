"""The traces that tests go over: those of fixtures/scenarios.py and other people's, each analyzed once.

    @over(GENERATED, REAL)
    def test_something(trace: AnalyzedTrace) -> None:

All tests of a trace run in one process of `pytest -n`, so they share its facts, findings and result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from pathlib import Path

import orjson
import pytest

from fixtures.generate import GeneratedTrace, Planted
from fixtures.real_traces import TRACES, expected, public, unseen
from fixtures.scenarios import SCENARIOS
from traceopt.analysis import Analysis
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.recordings.rank_trace import read_recording
from traceopt.analyzer.unprofiled import without_profiler
from traceopt.api import analyze, find_runs
from traceopt.document.merge import MergedRun
from traceopt.document.run_document import run_document
from traceopt.reports.html.page import render_html
from traceopt.rules.engine import RulesOutcome, check_rules, planned
from traceopt.rules.registry import builtin_rules
from traceopt.workers import rank_analysis

FIXED = "_fixed"  # ends the name of a twin without its scenario's fault
LEGACY = "public/pl_0trace.json.gz"  # of torch.autograd.profiler, which is refused

GENERATED = list(SCENARIOS)
TWINS = [f"{scenario}{FIXED}" for scenario in GENERATED]
READABLE = [file for file, seen in expected().items() if all(one["kind"] != "not_a_trace" for one in seen["present"])]
REAL = [*READABLE, *(file for name in public() if (file := f"public/{name}") != LEGACY), *unseen()]
FILES = [file for file in REAL if (TRACES / file).is_file()]
FILES += [path.relative_to(TRACES).as_posix() for path in sorted((TRACES / "public").glob("*/*.json.gz"))]


class AnalyzedTrace:
    """A trace in a file, or a folder with the ranks of a run. Rules that raise fail the test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def result(self) -> Analysis:
        """As `analyze` returns it, from the same facts and the same answers of the rules."""
        if self.path.is_dir():
            return analyze(str(self.path), debug=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rank_analysis, "check_rules", lambda *_, **__: self._checked)
            patch.setattr(rank_analysis, "planned", self._planned)
            return result_of_facts(self.facts)

    @cached_property
    def page(self) -> str:
        """The HTML report of the result."""
        return render_html(self.result, static=True)

    @cached_property
    def facts(self) -> Facts:
        (run,) = find_runs(str(self.path))
        return without_profiler(Facts(read_recording(run.recordings[0], [])))

    @cached_property
    def outcome(self) -> RulesOutcome:
        return planned(self._checked, self.facts)

    @cached_property
    def _checked(self) -> RulesOutcome:
        return check_rules([rule() for rule in builtin_rules()], self.facts, debug=True)

    def _planned(self, checked: RulesOutcome, facts: Facts) -> RulesOutcome:
        """`checked` may also be what is left if other ranks refute a fix."""
        return self.outcome if checked is self._checked else planned(checked, facts)


class Example(AnalyzedTrace):
    """One generated trace in a file, and what was planted in it."""

    def __init__(self, path: Path, planted: Planted) -> None:
        super().__init__(path)
        self.planted = planted

    @property
    def trace(self) -> GeneratedTrace:
        return GeneratedTrace(orjson.loads(self.path.read_bytes()), lambda: self.planted)


GetExample = Callable[..., Example]


def result_of_facts(facts: Facts) -> Analysis:
    rules, merged = [rule() for rule in builtin_rules()], MergedRun()
    merged.add(0, rank_analysis.answer(facts, rules, [], debug=True))
    assert merged.shown is not None
    return Analysis.of(run_document(merged, merged.shown, rules, [], several=False, debug=True))


@lru_cache(maxsize=4)  # the tests of one come one after the other
def real_trace(file: str) -> AnalyzedTrace:
    return AnalyzedTrace(TRACES / file)


def over(*names: Iterable[str]) -> pytest.MarkDecorator:
    """The test, or all tests of the class, once for each of these traces: its argument is `trace`."""
    generated = {*GENERATED, *TWINS}
    marks = {False: pytest.mark.real_traces, True: ()}
    traces = [pytest.param(name, marks=marks[name in generated], id=name) for some in names for name in some]
    return pytest.mark.parametrize("trace", traces, indirect=True)
