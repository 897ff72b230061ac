#!/usr/bin/env python3
"""Measures the accuracy of the replay: real traces without a change, and traces with a planted fault with its fix.

python benchmarks/replay_accuracy.py                                    print the page
python benchmarks/replay_accuracy.py --write docs/replay-accuracy.md    and write it
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

if __name__ == "__main__":  # run as a script: fixtures/ is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fixtures.generate import generate
from fixtures.real_traces import TRACES, require
from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.sources import find_sources
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.replay.replayed import ReplayError
from traceopt.analyzer.replay.retime import retime
from traceopt.errors import InputError
from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.registry import load_rules

PASSES = 5
LARGE = 3_000  # rows; smaller graphs are too fast to time

WITHOUT_A_CHANGE = """\
The recorded steps of real traces are replayed without a change. "Missed" is the error of the median step; "unexplained"
is the share of step time by which work started later than the graph can explain. The larger of the two is
`replay_error_share`. Above 5%, savings are not replayed. Such traces are incomplete: they hold a sample of the events,
or a piece of a longer trace.
"""
WITH_THE_FIX = """\
Generated traces with one planted fault: the step with the fault, the step of the fixed twin, and the saving that the
rule predicts from the faulty trace alone. The prediction depends on the replay, and on how well the rule knows what its
fix changes (the speed-up of a kernel, the share of communication that can overlap).
"""


@dataclass(frozen=True)
class Real:
    """One real trace: the size of its replay graph, and the replay error without a change."""

    name: str
    steps: int
    rows: int
    inferred: int
    error: ReplayError | None  # None: nothing to replay
    ns_per_row: float


@dataclass(frozen=True)
class Planted:
    """One planted fault: its cost in the median step, and the saving that the rule predicts."""

    scenario: str
    code: str
    step_ms: float
    fixed_ms: float
    low_ms: float
    est_ms: float
    high_ms: float

    @property
    def gain_ms(self) -> float:
        return self.step_ms - self.fixed_ms

    @property
    def error(self) -> float:
        """The error of the estimate as a share of the real gain."""
        return self.est_ms / self.gain_ms - 1


def real_traces() -> Iterator[Real]:
    for path in sorted(TRACES.rglob("*.gz")):
        try:
            (source,) = find_sources([str(path)]).sources
            with source.open() as stream:
                facts = Facts(read_trace(stream, source.label))
        except InputError:
            continue
        graph = facts.replay_graph
        began = time.process_time()
        for _ in range(PASSES):
            retime(graph, graph.rows)
        spent = (time.process_time() - began) / PASSES
        name = str(path.relative_to(TRACES))
        yield Real(
            name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace"),
            facts.steps.count if facts.steps.source != "window" else 0,
            len(graph.rows),
            int(graph.inferred.sum()),
            facts.replay_error,
            spent * 1e9 / len(graph.rows),
        )


def planted_faults() -> Iterator[Planted]:
    """Every scenario with one fault that costs at least 1 % of the median step; rank 0 of each."""
    rules = prepare(load_rules())
    for scenario, plan in SCENARIOS.items():
        trace = generate(scenario)
        before, after = median(trace.planted.step_us), median(trace.planted.fixed_step_us)
        if before - after < 0.01 * before:
            continue
        facts = Facts(read_trace(io.BytesIO(trace.to_bytes()), scenario))
        found = [finding for finding in run_rules(rules, facts).findings if finding.code in plan.codes]
        if found and found[0].saving is not None:
            saving = found[0].saving
            gains = (us / 1e3 for us in (saving.low_us, saving.est_us, saving.high_us))
            yield Planted(scenario, found[0].code, before / 1e3, after / 1e3, *gains)


def page(real: list[Real], planted: list[Planted]) -> str:
    """docs/replay-accuracy.md."""
    lines = [
        "# Replay accuracy",
        "",
        "Written by `python benchmarks/replay_accuracy.py --write docs/replay-accuracy.md`; do not edit.",
        "",
        "## Without a change",
        "",
        *(_without_a_change(real) if real else ["The real traces were not available."]),
        "",
        "## With the fix",
        "",
        WITH_THE_FIX,
        "| fault | rule | step | fixed | gain | low | estimate | high | error |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {one.scenario} | {one.code} | {one.step_ms:.2f} | {one.fixed_ms:.2f} | {one.gain_ms:.2f} "
            f"| {one.low_ms:.2f} | {one.est_ms:.2f} | {one.high_ms:.2f} | {one.error:+.1%} |"
            for one in planted
        ),
        "",
        f"Times are in milliseconds. Median error {median(abs(one.error) for one in planted):.1%} "
        f"over {len(planted)} faults.",
    ]
    return "\n".join(lines) + "\n"


def _without_a_change(real: list[Real]) -> list[str]:
    known = [one.error for one in real if one.steps and one.error is not None]
    pace = [one.ns_per_row for one in real if one.rows >= LARGE]
    return [
        WITHOUT_A_CHANGE,
        "| trace | steps | rows | inferred waits | missed | unexplained |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {one.name} | {one.steps or 'no marks'} | {one.rows:,} | {one.inferred:,} "
            + (
                f"| {one.error.missed_share:.2%} | {one.error.unexplained_share:.2%} |"
                if one.error
                else "| nothing to replay | |"
            )
            for one in real
        ),
        "",
        f"Of {len(known)} traces with steps, {sum(error.missed_share <= 0.02 for error in known)} are missed by 2% "
        f"or less (median {median(error.missed_share for error in known):.2%}).",
        f"In {sum(error.share <= 0.02 for error in known)} of these, the unexplained share is also 2% or less.",
        f"One pass takes {median(pace) / 10:.0f} ms per 100,000 rows (median of graphs with at least {LARGE:,} rows).",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="PATH", help="also write the page, as Markdown")
    options = parser.parse_args()
    if options.write is not None:
        require()  # a page without them would lose half of what it says
    text = page(list(real_traces()), list(planted_faults()))
    print(text, end="")
    if options.write is not None:
        options.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
