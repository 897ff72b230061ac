"""Reads the answers out of each text with regular expressions: a stand-in for an assistant that runs without a model.

The readers of the table and of the excerpt know the same signs that a person would look for: which names mean waiting
for data, synchronizing, communicating, or 32-bit matmuls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.agents.cases import Truth
from traceopt.analyzer.vocabulary.causes.table import CAUSES

LINES = 3  # named for a fix
GAIN_TOLERANCE = 0.25

_KINDS = {cause.limit: cause.key for cause in reversed(CAUSES) if cause.limit is not None} | {
    "input-bound": "input",
    "GPU-bound": "compute",
    "Python-bound": "python",
    "bound by the start of data loader workers": "input",
}

# Signs in names of events: what they say about the limit, and the first fix that follows.
_SIGNS: tuple[tuple[str, str, str], ...] = (
    (r"DataLoader|__next__", "input", "DL001"),
    (r"nccl|c10d::", "communication", "CM001"),
    (r"torch[._]save|_save\b", "checkpoint", "LG003"),
    (r"torch-compile|CompiledFx|_compile", "compile", "LB004"),
    (r"(^|\W)(gc|GC)(\W|$)|garbage", "gc", "PY001"),
    (r"logging|print\b|tensorboard", "logging", "LG001"),
    (r"StreamSynchronize|DeviceSynchronize|aten::item|_local_scalar_dense", "sync", "HS001"),
)
_KERNEL_SIGNS: tuple[tuple[str, str], ...] = (
    (r"sgemm|ffma|_simt_|scudnn|f32f32", "TC001"),
    (r"align1", "GM001"),
    (r"softmax", "AT001"),
)
_LARGE_SHARE = 0.2  # of the largest total: a sign counts from here


@dataclass(frozen=True)
class Answers:
    """What was read; empty where the text does not say."""

    limit: str | None = None
    fix: str | None = None
    lines: list[str] = field(default_factory=list)
    gain_ms: float | None = None

    def right(self, truth: Truth) -> list[str]:
        """The questions that are answered right."""
        right = {
            "limit": self.limit == truth.limit,
            "fix": self.fix in truth.fixes if truth.fixes else self.fix is None,
            "line": truth.line in self.lines[:LINES],
            "gain": self.gain_ms is not None
            and truth.gain_ms is not None
            and abs(self.gain_ms - truth.gain_ms) <= GAIN_TOLERANCE * truth.gain_ms,
        }
        return [question for question in truth.questions if right[question]]


def read_agent_text(text: str) -> Answers:
    limit = re.search(r"^.*Step: [\d.,]+ ms, (?P<limit>[^.]+)\.$", text, re.MULTILINE)
    planned = re.search(
        r"^\d+\. (?P<id>(?P<code>[A-Z]+\d+)-\w+): .*?saves (?P<ms>[\d.,]+) ms, step then.*$", text, re.MULTILINE
    )
    if planned is None:
        return Answers(_kind(limit["limit"] if limit else None))
    details = re.search(rf"^## {planned['id']}\n(?:(?!\n\n).)*?^Also: (?P<lines>.*?)$", text, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"`([^`\s]+)[^`]*`", planned[0] + (details["lines"] if details else ""))
    return Answers(_kind(limit["limit"] if limit else None), planned["code"], lines, _number(planned["ms"]))


def read_mcp_answer(text: str) -> Answers:
    limit = re.search(r'"limit":"(?P<limit>[^"]+)"', text)
    first = re.search(r'"plan":\[\{"id":"(?P<code>[A-Z]+\d+)-.*?\}', text)
    kind = _kind(limit["limit"] if limit else None)
    if first is None:
        return Answers(kind)
    where = re.search(r'"where":\[(?P<places>[^\]]*)\]', first[0])
    places = re.findall(r'"([^"]+)"', where["places"]) if where else []
    saves = re.search(r'"saves_ms":(?P<ms>[\d.]+)', first[0])
    return Answers(kind, first["code"], places, _number(saves["ms"]) if saves else None)


def read_operator_table(text: str) -> Answers:
    rows = re.findall(r"^(?P<name>.+?)  (?P<ms>[\d.]+)ms  [\d.]+%  (?P<calls>\d+)$", text, re.MULTILINE)
    cpu, _, gpu = text.partition("Name  CUDA total")
    on_cpu = [(name, float(ms), int(calls)) for name, ms, calls in rows if f"{name}  {ms}ms" in cpu]
    on_gpu = [(name, float(ms), int(calls)) for name, ms, calls in rows if f"{name}  {ms}ms" in gpu]
    return _from_names(on_cpu, on_gpu, [])


def read_trace_excerpt(text: str) -> Answers:
    on_cpu, on_gpu, lines = [], [], []
    for line in text.splitlines():
        event = json.loads(line)
        row = (event["name"], event["dur"] / 1e3, 1)
        (on_gpu if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") else on_cpu).append(row)
        place = re.match(r"(?!torch/|<)(?P<file>[\w./-]+\.py)\((?P<line>\d+)\)", event["name"])
        if place is not None:
            lines.append(f"{place['file']}:{place['line']}")
    return _from_names(on_cpu, on_gpu, list(dict.fromkeys(lines)))


READERS: dict[str, Callable[[str], Answers]] = {
    "traceopt --format agent": read_agent_text,
    "traceopt mcp, analyze": read_mcp_answer,
    "key_averages table": read_operator_table,
    "raw JSON excerpt": read_trace_excerpt,
}

Row = tuple[str, float, int]  # name, total in ms, calls


def _from_names(on_cpu: list[Row], on_gpu: list[Row], lines: list[str]) -> Answers:
    """The most expensive sign on the CPU, if it is large; else what the kernels say."""
    largest = max((ms for _, ms, _ in on_cpu), default=0.0)
    for name, ms, calls in sorted(on_cpu, key=lambda row: -row[1]):
        for pattern, limit, fix in _SIGNS:
            if re.search(pattern, name) and ms >= _LARGE_SHARE * largest:
                return Answers(limit, fix, lines, ms / calls)
    busy = sum(ms for _, ms, _ in on_gpu)
    launches = sum(ms for name, ms, _ in on_cpu if "Launch" in name)
    if not on_gpu or launches > busy:
        return Answers("launch", "LB002", lines)
    for name, ms, calls in sorted(on_gpu, key=lambda row: -row[1]):
        for pattern, fix in _KERNEL_SIGNS:
            if re.search(pattern, name):
                return Answers("compute", fix, lines, ms / calls)
    return Answers("compute", None, lines)


def _kind(word: str | None) -> str | None:
    return None if word is None else _KINDS.get(word)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
