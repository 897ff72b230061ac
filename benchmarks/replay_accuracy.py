#!/usr/bin/env python3
"""Measures the accuracy of the replay: recorded steps, hidden waits, known delays, real fixes and planted faults.

python benchmarks/replay_accuracy.py                             print the part of the page
python benchmarks/replay_accuracy.py --write docs/accuracy.md    and write it
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
from msgspec.structs import replace

if __name__ == "__main__":  # run as a script: fixtures/ is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.marked import with_part
from benchmarks.replay import known_delays
from benchmarks.replay.hidden_waits import HiddenWaits, hide, programs, total
from benchmarks.replay.real_pairs import Pair, real_pairs
from fixtures.generate import generate
from fixtures.real_traces import TRACES, require
from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.replay import graph as graph_module
from traceopt.analyzer.replay.error import ReplayError, replay_error
from traceopt.analyzer.replay.graph import Graph
from traceopt.analyzer.replay.waits import HostWaits
from traceopt.errors import InputError
from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.registry import load_rules

Hidden = tuple[str, str, HiddenWaits]  # of which traces, who waits

GOAL = 0.02  # of the measured step
FAR = 0.2  # from the gain: such a fault has a row
NOTICED = 0.01  # growth of the error

HEAD = """\
## Replay

Written by `python benchmarks/replay_accuracy.py --write docs/accuracy.md`.

### Recorded steps
"""
WITHOUT_A_CHANGE = """\
Each analysis measures [these errors](replay.md#how-far-you-can-trust-it), as percentages of the step. "Completion": the
replayed typical step against the measured one. "Predicted": each step predicted from the others, and "others" if the
prediction is their median. "Late": how much later work started than the graph explains. "Error", the largest of these,
is `replay_error_share`.
"""
HIDDEN_WAITS = """\
Sync rows name what a call or a stream waited for. PyTorch writes them only on request. Here they are recorded and
hidden, and the replay infers the waits of 30 µs and more without them. Recall is the share of the recorded waits that
are inferred with the right piece of work, precision the share of the inferred waits that were recorded.
"""
KNOWN_DELAYS = """\
A small training loop on the CPU, recorded with and without a known delay in each step: a sleep, a wait for another
thread's result, and printing tensors. The replay of the recording with the delay removes it again.
"""
REAL_PAIRS = """\
Real traces before a fix, and the saving that was measured with the trace after it. "Predicted" is what
`traceopt whatif --fix` says from the first trace alone, low and high are the bounds in the findings.
"""
WITH_THE_FIX = """\
Generated traces with one planted fault, each with a fixed twin. The saving is predicted from the faulty trace alone. It
depends on the replay, and on how well the rule knows what its fix changes (the speed-up of a kernel, the share of
communication that can overlap).
"""


@dataclass(frozen=True)
class Real:
    """One real trace, and the replay error: as it is, if nothing waits, and if the time of waits is taken for work."""

    name: str
    steps: int
    error: ReplayError | None  # None: nothing to replay
    no_waits: ReplayError | None
    waits_as_work: ReplayError | None

    @staticmethod
    def share_of(error: ReplayError | None) -> float:
        return error.share if error is not None else 0.0


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


def readable_traces() -> Iterator[tuple[Path, Facts]]:
    for path in sorted(TRACES.rglob("*.gz")):
        try:
            (source,) = find_sources([str(path)]).sources
            with source.open() as stream:
                yield path, Facts(read_trace(stream, source.label))
        except InputError:
            continue


def real_traces() -> Iterator[Real]:
    for path, facts in readable_traces():
        graph = facts.replay_graph
        name = str(path.relative_to(TRACES))
        yield Real(
            name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace"),
            facts.recorded_steps.count if facts.steps.source != "window" else 0,
            facts.replay_error,
            replay_error(without_waits(graph), facts.recorded_steps, facts.has_gpu),
            replay_error(with_waits_as_work(facts), facts.recorded_steps, facts.has_gpu),
        )


def without_waits(graph: Graph) -> Graph:
    """The graph, but nothing waits for anything else."""
    return replace(graph, rows=replace(graph.rows, awaits=np.full(len(graph.rows), -1)))


def with_waits_as_work(facts: Facts) -> Graph:
    """The graph of the same steps, but the time of every wait is taken for work of the host."""
    none = np.empty(0, np.int64)
    nobody = HostWaits(none, none, none, none > 0, none > 0)
    with (
        patch.object(graph_module, "find_host_waits", lambda *_: nobody),
        patch.object(
            graph_module,
            "find_stream_waits",
            lambda _trace, _calls, queues: (np.full(len(queues), -1), np.zeros(len(queues), bool)),
        ),
    ):
        return Facts(facts.trace).replay_graph


def hidden_waits() -> Iterator[Hidden]:
    """Recorded waits that are hidden and inferred again: in generated programs, and in real traces with sync rows."""
    generated = [hide(facts) for facts in programs()]
    yield "generated programs", "host", total([host for host, _ in generated])
    yield "generated programs", "streams", total([stream for _, stream in generated])
    recorded = [hide(facts) for _, facts in readable_traces() if facts.has_gpu and len(facts.trace.sync)]
    if recorded:
        yield f"{len(recorded)} real traces", "host", total([host for host, _ in recorded])
        yield f"{len(recorded)} real traces", "streams", total([stream for _, stream in recorded])


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


def section(
    real: list[Real], planted: list[Planted], pairs: list[Pair], hidden: list[Hidden], delays: dict[str, Any] | None
) -> str:
    """Part of docs/accuracy.md."""
    absent = ["The real traces were not available."]
    errors = [abs(one.error) for one in planted]
    inside = sum(one.low_ms <= one.gain_ms <= one.high_ms for one in planted)
    lines = [
        HEAD,
        *(_recorded_steps(real) if real else absent),
        "",
        "### Hidden sync rows",
        "",
        HIDDEN_WAITS,
        *_hidden_waits(hidden),
        "",
        "### Known delays",
        "",
        *([KNOWN_DELAYS, *known_delays.section(delays)] if delays is not None else ["Nothing was recorded."]),
        "",
        "### Real fixes",
        "",
        *(_real_pairs(pairs) if pairs else absent),
        "",
        "### Planted faults",
        "",
        WITH_THE_FIX,
        f"Over {len(planted)} faults the median error of the saving is {median(errors):.1%}. "
        f"{inside} gains are between low and high. Those that are off by more than {FAR:.0%}, in milliseconds:",
        "",
        "| fault | rule | gain | low | estimate | high | error |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {one.scenario} | {one.code} | {one.gain_ms:.2f} | {one.low_ms:.2f} | {one.est_ms:.2f} "
            f"| {one.high_ms:.2f} | {one.error:+.1%} |"
            for one in planted
            if abs(one.error) > FAR
        ),
    ]
    return "\n".join(lines) + "\n"


def _recorded_steps(real: list[Real]) -> list[str]:
    known = [one for one in real if one.error is not None]
    predicted = [one.error.prediction for one in known if one.error is not None and one.error.prediction is not None]
    repeated = sum(one.error.missed_share <= GOAL for one in known if one.error is not None)
    without, as_work = (
        sum(one.share_of(wrong) > one.share_of(one.error) + NOTICED for one, wrong in pairs)
        for pairs in ([(one, one.no_waits) for one in known], [(one, one.waits_as_work) for one in known])
    )
    exact = [one for one in known if one.share_of(one.error) <= GOAL]
    lines = [
        WITHOUT_A_CHANGE,
        f"In {repeated} of {len(known)} traces, the replayed typical step is within {GOAL:.0%} of the measured one, "
        f"and in {len(exact)} the error is at most {GOAL:.0%}. The others:",
        "",
        "| trace | steps | completion | predicted | others | late | slow calls | error |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_row(one, one.error) for one in known if one.error is not None and one not in exact),
        "",
    ]
    if predicted:
        error, usual = median(one.error_share for one in predicted), median(one.usual_share for one in predicted)
        lines.append(
            f"Steps predicted from the others: median error {error:.2%}, and {usual:.2%} for the median of the others. "
            f"The prediction is better in {sum(one.error_share < one.usual_share for one in predicted)} of "
            f"{len(predicted)} traces."
        )
    lines.append(
        f"A wrong graph shows: without waits, the error grows by more than {NOTICED:.0%} in {without} traces, and with "
        f"waits taken for work of the host in {as_work}."
    )
    return lines


def _row(one: Real, error: ReplayError) -> str:
    prediction = error.prediction
    shares = [
        error.missed_share,
        prediction.error_share if prediction is not None else None,
        prediction.usual_share if prediction is not None else None,
        error.unexplained_share,
        error.blocked_share,
        error.share,
    ]
    cells = ("" if share is None else f"{share * 100:.1f}" for share in shares)
    return f"| {one.name} | {one.steps or 'no marks'} | {' | '.join(cells)} |"


def _hidden_waits(hidden: list[Hidden]) -> list[str]:
    return [
        "| source | who waits | recorded | inferred | right | recall | precision |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {source} | {who} | {one.recorded} | {one.inferred} | {one.both} "
            f"| {one.recall:.0%} | {one.precision:.0%} |"
            for source, who, one in hidden
        ),
    ]


def _real_pairs(pairs: list[Pair]) -> list[str]:
    errors = [abs(one.error) for one in pairs if one.error is not None]
    rows = []
    for one in pairs:
        values = [one.predicted, one.low, one.high]
        cells = " | ".join("none" if value is None else f"{value:.2f}" for value in values)
        error = "" if one.error is None else f"{one.error:+.0%}"
        rows.append(
            f"| {one.name} | {one.fix} | {one.measured:.2f} | {cells} | {error} | {'yes' if one.covered else 'no'} |"
        )
    return [
        REAL_PAIRS,
        "| trace before | fix | measured | predicted | low | high | error | between low and high |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
        *rows,
        "",
        f"Savings are in milliseconds. Median error {median(errors):.0%}, largest {max(errors):.0%}; "
        f"{sum(one.covered for one in pairs)} of {len(pairs)} measured savings are between low and high."
        if errors
        else "None of the fixes could be replayed.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="PATH", help="also write the page, as Markdown")
    options = parser.parse_args()
    if options.write is not None:
        require()  # without them, half of what it says would be lost
    known = known_delays.DATA
    delays = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else None
    text = section(list(real_traces()), list(planted_faults()), list(real_pairs()), list(hidden_waits()), delays)
    print(text, end="")
    if options.write is not None:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(with_part(page, "replay_accuracy.py", text), encoding="utf-8")


if __name__ == "__main__":
    main()
