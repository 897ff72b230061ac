"""Simulated pipelines, analyzed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fixtures.pipelines import Action, pipeline
from traceopt.api import analyze
from traceopt.result.document import Result

RECORDED = Path(__file__).parents[2] / "fixtures" / "traces" / "gloo"  # by fixtures/record_groups.py

Order = Callable[[int, int, int], list[Action]]


def orders(order: Order, size: int, micro_batches: int) -> list[list[Action]]:
    return [order(rank, size, micro_batches) for rank in range(size)]


def result_of(
    schedule: Sequence[Sequence[Action]],
    folder: Path,
    weights: Sequence[float] | None = None,
    missing: int | None = None,
    *,
    annotated: bool = True,
) -> Result:
    for number, machine in enumerate(pipeline(schedule, weights, annotated=annotated)):
        if number != missing:
            (folder / f"rank{number}.pt.trace.json").write_bytes(machine.to_bytes())
    return analyze(str(folder))
