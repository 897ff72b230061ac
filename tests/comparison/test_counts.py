"""What a step does more or less often than before."""

from __future__ import annotations

from msgspec.structs import replace
from sample import cpu_only, rich

from traceopt.comparison.compare import compare_runs
from traceopt.comparison.counts import count_changes
from traceopt.document.tables.tables import MAX_ROWS
from traceopt.reports.html.comparison_page import render_comparison_html
from traceopt.reports.text.comparison_markdown import render_comparison_markdown
from traceopt.reports.text.comparison_terminal import render_comparison
from traceopt.result.comparison import CountChange
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Op
from traceopt.run_comparison import runs_of

EQUAL = Op("aten::equal", 1.0, None, 0.5, 0.0, None)


def with_ops(result: Result, *ops: Op) -> Result:
    return replace(result, ops=[*result.ops, *ops])


def test_the_same_work_has_no_changes() -> None:
    for result in (rich(), cpu_only()):
        assert count_changes(result, result) == []


def test_one_more_call_in_a_step_is_seen_although_its_time_is_not() -> None:
    before = rich()
    found = count_changes(before, with_ops(before, EQUAL))
    assert CountChange("aten::equal", "calls", 0.0, 1.0, named=True) in found
    assert count_changes(with_ops(before, EQUAL), before)[-1].head == 0.0


def test_a_call_in_one_of_many_steps_is_not_a_change() -> None:
    before = rich()
    assert count_changes(before, with_ops(before, replace(EQUAL, calls_per_step=0.1))) == []


def test_garbage_collections_have_a_name() -> None:
    before = rich()
    found = count_changes(with_ops(before, replace(EQUAL, name="traceopt: gc")), before)
    assert CountChange("Garbage collections", "calls", 1.0, 0.0) in found
    assert not any(one.named for one in found)


def test_a_name_that_a_full_table_may_hide_is_not_new() -> None:
    many = [replace(EQUAL, name=f"aten::op{number}") for number in range(MAX_ROWS)]
    full = replace(rich(), ops=many)
    assert [one for one in count_changes(full, replace(full, ops=[*many[1:], EQUAL])) if one.named] == []


def test_every_text_has_the_counts() -> None:
    before = rich()
    comparison = compare_runs(runs_of([before]), runs_of([with_ops(before, EQUAL)]))
    for text in (
        render_comparison(comparison, width=80, color=False, unicode=True),
        render_comparison_markdown(comparison),
        render_comparison_html(comparison),
    ):
        assert "what a step does" in text.lower()
