"""What a part of the first bar is made of belongs to that part."""

from __future__ import annotations

from collections.abc import Iterator

from support.traces import FILES, GENERATED, AnalyzedTrace, over

from traceopt.analyzer.vocabulary.causes.table import COMPUTE
from traceopt.reports.html.part_answers import part_answers
from traceopt.reports.words.fixes.fix_cards import cards
from traceopt.result.document import Result


def foreign_time(result: Result) -> Iterator[str]:
    """Rows of other work, or longer than all that their part can hold."""
    others = {row.label or row.name for row in result.kernels if row.kind in ("collective", "memcpy", "memset")}
    for answer in part_answers(result, cards(result), gpu_measured=True):
        part = answer.part
        most = max(part.us_per_step, part.raw_us_per_step or 0.0) * max(1, len(result.gpu.devices))
        for cause in answer.causes:
            if cause.us > 1.001 * most + 0.5:
                yield f"{part.label} {most}: {cause.what} takes {cause.us}"
            if part.name == COMPUTE.key and cause.what in others:
                yield f"{part.label}: {cause.what}"


@over(GENERATED, FILES)
def test_every_part_has_its_own_work(trace: AnalyzedTrace) -> None:
    assert [*foreign_time(trace.result)] == []
