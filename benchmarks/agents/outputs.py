"""The texts that an assistant gets to read: traceopt's two, a table of operators, and an excerpt of the trace."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fixtures.real_traces import load
from traceopt.api import analyze
from traceopt.assistants.budget import as_text, fitted
from traceopt.assistants.finding_answers import analyzed
from traceopt.reports.agent.report import render_agent
from traceopt.reports.agent.tokens import estimated_tokens

BUDGET = 1_500  # tokens of each text
TABLE_ROWS = 12
_MOST_EVENTS = 60
_IN_TABLE = ("cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy")


def agent_text(path: Path) -> str:
    """`traceopt analyze --format agent`."""
    return render_agent(analyze(str(path)), BUDGET)


def mcp_answer(path: Path) -> str:
    """The tool `analyze` of `traceopt mcp`."""
    return as_text(fitted(analyzed(analyze(str(path))), BUDGET))


def operator_table(path: Path) -> str:
    """What `prof.key_averages().table()` shows, sorted by CPU time and then by GPU time: the usual first look."""
    totals: dict[tuple[bool, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in _events(path):
        if event.get("cat") in _IN_TABLE and not event["name"].startswith("ProfilerStep"):
            row = totals[event["cat"] in ("kernel", "gpu_memcpy"), event["name"]]
            row[0] += event["dur"]
            row[1] += 1
    blocks = []
    for on_gpu, heading in ((False, "CPU total"), (True, "CUDA total")):
        rows = sorted(
            ((name, *total) for (gpu, name), total in totals.items() if gpu is on_gpu), key=lambda row: -row[1]
        )
        whole = sum(row[1] for row in rows)
        lines = [
            f"{name[:55]}  {us / 1e3:.3f}ms  {us / whole:.2%}  {calls:.0f}" for name, us, calls in rows[:TABLE_ROWS]
        ]
        blocks.append(
            "\n".join([f"Name  {heading}  {heading} %  # of Calls", *lines, f"{heading} sum: {whole / 1e3:.3f}ms"])
        )
    return _cut("\n\n".join(blocks))


def trace_excerpt(path: Path) -> str:
    """The longest events of the trace as JSON, without the steps themselves: what `jq` gives."""
    longest = sorted(_events(path), key=lambda event: -event["dur"])[:_MOST_EVENTS]
    return _cut(
        "\n".join(json.dumps({key: event.get(key) for key in ("cat", "name", "ts", "dur", "tid")}) for event in longest)
    )


OUTPUTS: dict[str, Callable[[Path], str]] = {
    "traceopt --format agent": agent_text,
    "traceopt mcp, analyze": mcp_answer,
    "key_averages table": operator_table,
    "raw JSON excerpt": trace_excerpt,
}


def _events(path: Path) -> list[dict[str, Any]]:
    """The complete events with a name and a duration."""
    document = load(path) if path.suffix == ".gz" else json.loads(path.read_bytes())
    found = document["traceEvents"] if isinstance(document, dict) else document
    return [e for e in found if e.get("ph") == "X" and isinstance(e.get("name"), str) and float(e.get("dur") or 0) > 0]


def _cut(text: str) -> str:
    lines, tokens = [], 0
    for line in text.splitlines():
        tokens += estimated_tokens(f"{line}\n")
        if tokens > BUDGET:
            break
        lines.append(line)
    return "\n".join(lines)
