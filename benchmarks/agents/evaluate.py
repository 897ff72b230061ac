#!/usr/bin/env python3
"""Measures right answers per 1,000 tokens of output, for 20 traces and four kinds of output.

python -m benchmarks.agents.evaluate           # writes benchmarks/agents/results.json and a part of docs/agents.md
python -m benchmarks.agents.evaluate --print   # only prints
python -m benchmarks.agents.evaluate --page    # measures nothing: the part from results.json and repairs/repairs.json

Deterministic, without any model: readers.py takes the answers out of each text with regular expressions.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.agents.cases import REAL, SCENARIOS, Truth, generated, real
from benchmarks.agents.outputs import BUDGET, OUTPUTS
from benchmarks.agents.readers import GAIN_TOLERANCE, LINES, READERS
from benchmarks.agents.repairs.tasks import TASKS
from benchmarks.marked import with_part
from fixtures.real_traces import EXPECTED
from traceopt.reports.agent.tokens import estimated_tokens

HERE = Path(__file__).resolve().parent
DATA = HERE / "results.json"
REPAIRS = HERE / "repairs" / "repairs.json"
PAGE = HERE.parents[1] / "docs" / "agents.md"
QUESTIONS = {
    "limit": "what limits the step",
    "fix": "what to fix first",
    "line": "in which line",
    "gain": "how much that saves per step",
}


@dataclass(frozen=True)
class Row:
    """One text about one trace."""

    case: str
    output: str
    tokens: int
    asked: list[str]
    right: list[str]


def evaluate(scenarios: Iterable[str] = SCENARIOS, real_traces: Iterable[str] = REAL) -> list[Row]:
    """A row for each trace and output. Real traces are left out if they are absent."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cases = [(name, *generated(name, Path(folder))) for name in scenarios]
        if EXPECTED.is_file():
            cases += [(name, *real(name)) for name in real_traces]
        for name, path, truth in cases:
            rows += [_row(name, output, path, truth) for output in OUTPUTS]
    return rows


def _row(case: str, output: str, path: Path, truth: Truth) -> Row:
    text = OUTPUTS[output](path)
    return Row(case, output, estimated_tokens(text), truth.questions, READERS[output](text).right(truth))


def table(rows: list[Row]) -> list[str]:
    """A Markdown table with one line per output."""
    lines = [
        f"| output | {' | '.join(QUESTIONS)} | right | tokens, mean | right per 1,000 tokens |",
        f"| --- | {'--: | ' * len(QUESTIONS)}--: | --: | --: |",
    ]
    for output in OUTPUTS:
        mine = [row for row in rows if row.output == output]
        counts = []
        for question in QUESTIONS:
            asked = sum(question in row.asked for row in mine)
            counts.append(f"{sum(question in row.right for row in mine)} of {asked}")
        tokens, right = sum(row.tokens for row in mine), sum(len(row.right) for row in mine)
        asked = sum(len(row.asked) for row in mine)
        lines.append(
            f"| {output} | {' | '.join(counts)} | {right / asked:.0%} | {tokens / len(mine):,.0f} "
            f"| {1_000 * right / tokens:.1f} |"
        )
    return lines


def section(rows: list[Row]) -> str:
    """Part of docs/agents.md."""
    cases = list(dict.fromkeys(row.case for row in rows))
    wrong = [
        f"- {row.output}, `{row.case}`: {', '.join(q for q in row.asked if q not in row.right)}"
        for row in rows
        if row.output.startswith("traceopt") and len(row.right) < len(row.asked)
    ]
    return "\n".join([
        f"`python -m benchmarks.agents.evaluate` asks the same four questions about {len(cases)} traces: "
        f"{'; '.join(QUESTIONS.values())}. The answers are read with regular expressions "
        "(`benchmarks/agents/readers.py`), not by a model, which may read more out of an output, or less.",
        "",
        *table(rows),
        "",
        f"- {sum(case in SCENARIOS for case in cases)} traces are [generated](../fixtures/README.md) with one planted "
        f"bottleneck, or none. {sum(case in REAL for case in cases)} are [real](real-traces.md): an expert named the "
        "limit and the first fix, and nobody knows line and gain.",
        "- The operator table has the 12 most expensive rows by CPU time and by GPU time, as "
        "`prof.key_averages().table()` would print them. The raw excerpt has the longest events. Every output is "
        f"cut at {BUDGET:,} tokens, by an estimate on the high side.",
        f"- A line is right if it is among the first {LINES} that the output names for the fix, a gain within "
        f"{GAIN_TOLERANCE:.0%} of the true one.",
        "",
        f"What traceopt's outputs did not answer:{'' if wrong else ' nothing.'}",
        "",
        *wrong,
        "",
        *repairs_section(json.loads(REPAIRS.read_text(encoding="utf-8"))),
    ])  # fmt: skip


def repairs_section(named: dict[str, dict[str, bool]]) -> list[str]:
    """What the reader finds in the outputs about the repair tasks."""
    lines = [f"| {output} | {sum(row[output] for row in named.values())} of {len(named)} |" for output in OUTPUTS]
    nowhere = [name for name, row in named.items() if not row[next(iter(OUTPUTS))]]
    recorded = "" if len(named) == len(TASKS) else f" So far {len(named)} of the tasks were recorded."
    return [
        "### Repair tasks",
        "",
        f"`benchmarks/agents/repairs` has {len(TASKS)} short trainings for a CPU, each with one planted fault. An "
        "assistant gets a script and an output, and answers with a repaired script. `traceopt try` grades it: the step "
        "must be shorter, and the losses must be the same. `python -m benchmarks.agents.repairs` has the protocol, "
        "which nobody has run with a model yet. Without one, `read` records each script and reads whether one of the "
        f"first {LINES} lines of an output is one that the repair changes.{recorded}",
        "",
        "| output | names the line |",
        "| --- | --: |",
        *lines,
        "",
        f"traceopt names another line, or none, for {', '.join(f'`{name}`' for name in nowhere)}. The tasks were "
        "written after most of the rules, by the same people."
        if nowhere
        else "traceopt names the line for each task.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", dest="only_print", help="write no file")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the part")
    options = parser.parse_args()
    if options.page:
        write([Row(**row) for row in json.loads(DATA.read_text())])
        return
    rows = evaluate()
    print("\n".join(table(rows)))
    if options.only_print:
        return
    if not EXPECTED.is_file():
        sys.exit("the real traces are absent, so nothing was written: docs/real-traces.md")
    DATA.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    write(rows)


def write(rows: list[Row]) -> None:
    PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), "agents/evaluate.py", section(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
