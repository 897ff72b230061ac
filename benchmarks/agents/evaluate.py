#!/usr/bin/env python3
"""Measures right answers per 1,000 tokens of output, for 20 traces and four kinds of output.

python -m benchmarks.agents.evaluate           # writes benchmarks/agents/results.json and docs/agents-evaluation.md
python -m benchmarks.agents.evaluate --print   # only prints
python -m benchmarks.agents.evaluate --page    # measures nothing: the page from results.json and repairs/repairs.json

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

from benchmarks.agents.cases import REAL, SCENARIOS, STEPS, Truth, generated, real
from benchmarks.agents.outputs import BUDGET, OUTPUTS
from benchmarks.agents.readers import GAIN_TOLERANCE, LINES, READERS
from benchmarks.agents.repairs.tasks import TASKS
from fixtures.real_traces import EXPECTED
from traceopt.reports.agent.tokens import estimated_tokens

HERE = Path(__file__).resolve().parent
DATA = HERE / "results.json"
REPAIRS = HERE / "repairs" / "repairs.json"
PAGE = HERE.parents[1] / "docs" / "agents-evaluation.md"
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


def page(rows: list[Row]) -> str:
    cases = list(dict.fromkeys(row.case for row in rows))
    wrong = [
        f"- {row.output}, `{row.case}`: {', '.join(q for q in row.asked if q not in row.right)}"
        for row in rows
        if row.output.startswith("traceopt") and len(row.right) < len(row.asked)
    ]
    return "\n".join([
        "# What an assistant can read off each output",
        "",
        "Written by `python -m benchmarks.agents.evaluate`. It asks the same four questions about "
        f"{len(cases)} traces: {'; '.join(QUESTIONS.values())}. The score is the number of right answers per 1,000 "
        "tokens of output.",
        "",
        *table(rows),
        "",
        f"- {sum(case in SCENARIOS for case in cases)} traces are [generated](../fixtures/README.md) ({STEPS} steps) "
        "with one planted bottleneck, or none. The generator knows its kind, its line and its cost.",
        f"- {sum(case in REAL for case in cases)} are [real](real-traces.md). There an expert named the limit and the "
        "first fix. Line and gain are not asked, because nobody knows them.",
        f"- The operator table has the 12 most expensive rows by CPU time and by GPU time, as "
        "`prof.key_averages().table()` would print them. The raw excerpt has the longest events as JSON. Every output "
        f"is cut at {BUDGET:,} tokens.",
        f"- A line is right if it is among the first {LINES} that the output names for the fix. A gain is right within "
        f"{GAIN_TOLERANCE:.0%} of the true one.",
        "- The answers are read with regular expressions (`benchmarks/agents/readers.py`), not by a model. For the "
        "table and the excerpt, the reader knows the usual signs: names of data loaders, synchronizing calls, "
        "collectives, 32-bit matmul kernels. A model may read more out of them, or less.",
        "- Token counts are estimates on the high side, made without a tokenizer (`reports/agent/tokens.py`).",
        "",
        "## What traceopt's outputs did not answer",
        "",
        *(wrong or ["Nothing."]),
        "",
        *repairs_section(json.loads(REPAIRS.read_text(encoding="utf-8"))),
        "",
    ])  # fmt: skip


def repairs_section(named: dict[str, dict[str, bool]]) -> list[str]:
    """What the reader finds in the outputs about the repair tasks, and how to give the tasks to a model."""
    lines = [f"| {output} | {sum(row[output] for row in named.values())} of {len(named)} |" for output in OUTPUTS]
    nowhere = [name for name, row in named.items() if not row[next(iter(OUTPUTS))]]
    recorded = "" if len(named) == len(TASKS) else f" So far {len(named)} of the tasks were recorded."
    return [
        "## Repair tasks",
        "",
        f"`benchmarks/agents/repairs` has {len(TASKS)} short trainings for a CPU, each with one planted fault. An "
        "answer is a repaired script. `traceopt try` grades it: the step must be shorter, and the losses must be the "
        "same. So an answer that trains something else is wrong, however fast it is.",
        "",
        "Without a model, `python -m benchmarks.agents.repairs read` records each script and reads from each output "
        f"whether one of the first {LINES} lines that it names for its fix is one that the repair changes, or the one "
        f"where the cost of a wrong setting shows.{recorded}",
        "",
        "| output | names the line |",
        "| --- | --: |",
        *lines,
        "",
        f"traceopt names another line, or none, for {', '.join(f'`{name}`' for name in nowhere)}."
        if nowhere
        else "traceopt names the line for each task.",
        "",
        "On a busy machine, the two recordings of a script may differ too much to know its lines, and traceopt names "
        "none. The operator table has no lines, so only a model can guess them from the script. The tasks were written "
        "after most of the rules, by the same people, and the repairs were checked to have the same losses "
        "(`tests/benchmarks/test_repairs.py`).",
        "",
        "### With a model",
        "",
        "1. For each task of `python -m benchmarks.agents.repairs list`, and for each output, start a new session "
        "without memory and without tools. Use the same model and the same settings for all, and at least three "
        "sessions for each pair.",
        '2. Prompt: "This training is slower than it must be. Change the script so that a step takes less time and the '
        'losses stay the same. Answer with the whole script only." Then comes what '
        "`python -m benchmarks.agents.repairs show TASK OUTPUT` prints. With the output `script only`, it prints "
        "the script alone: the difference from that is what an output is worth.",
        "3. Save the answer as a file, and grade it on a quiet machine: "
        "`python -m benchmarks.agents.repairs grade TASK FILE`. The verdict `keep` is a repair. Repeat a verdict "
        "`unclear` with more time.",
        "4. Report the model and its version, the date, the commit, the repairs of each output, the tokens that the "
        "model read, and the median gain. Report the tasks where an output led to a slower script or to other losses.",
        "",
        "Nobody has run this protocol yet. `grade TASK reference` grades the repair that belongs to the task.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", dest="only_print", help="write no file")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(page([Row(**row) for row in json.loads(DATA.read_text())]))
        return
    rows = evaluate()
    print("\n".join(table(rows)))
    if options.only_print:
        return
    if not EXPECTED.is_file():
        sys.exit("the real traces are absent, so nothing was written: docs/real-traces.md")
    DATA.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
