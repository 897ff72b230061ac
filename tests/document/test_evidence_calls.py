"""Evidence counts the calls whose time it gives, as the tables of kernels and operators do."""

from __future__ import annotations

from collections.abc import Iterator

from support.traces import GENERATED, REAL, TWINS, AnalyzedTrace, over

from traceopt.result.document import Result


def rows_by_name(result: Result) -> dict[str, list[tuple[float, float]]]:
    """Time and calls per step of the rows of the tables, by the names that evidence has for them."""
    found: dict[str, list[tuple[float, float]]] = {}
    for kernel in result.kernels:
        found.setdefault(kernel.label, []).append((kernel.us_per_step, kernel.calls_per_step))
    for op in result.ops:
        if op.gpu_us_per_step is not None:
            found.setdefault(op.name, []).append((op.gpu_us_per_step, op.launches_per_step or 0.0))
        found.setdefault(op.name, []).append((op.cpu_self_us_per_step, op.calls_per_step))
    return found


def other_calls(result: Result) -> Iterator[str]:
    tables = rows_by_name(result)
    for finding in result.findings:
        for row in finding.evidence:
            same = [calls for us, calls in tables.get(str(row.what), []) if us and us == row.us_per_step]
            if same and row.calls_per_step is not None and row.calls_per_step not in same:
                yield f"{finding.code} {row.what}: {row.calls_per_step} calls, {same} in the table"


@over(GENERATED, TWINS, REAL)
def test_evidence_with_the_time_of_a_table_has_its_calls(trace: AnalyzedTrace) -> None:
    assert [*other_calls(trace.result)] == []
