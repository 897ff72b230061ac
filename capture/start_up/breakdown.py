"""The sampled stacks of a start-up, summed by part and by the line of the user's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from ..metadata.constructions import name_in_trace
from ..metadata.user_line import UserLine, is_own_code
from .parts import Frame, Part, base_finder, classify
from .stack_sampler import Stack

MOST_LINES = 5  # of one part


def parts_of(stacks: Sequence[tuple[Stack, float]]) -> list[dict[str, Any]]:
    """{"part", "us", "lines"} of stacks with their seconds, longest first."""
    base_of = base_finder()
    known: dict[int, Frame | None] = {}  # by the id of the code, which the stacks keep alive
    seconds: dict[Part, float] = {}
    lines: dict[Part, dict[UserLine, dict[str | None, float]]] = {}
    for stack, took_s in stacks:
        for code in stack[0]:
            if id(code) not in known:
                known[id(code)] = _frame(code, base_of)
        rows = [
            (frame, code, at)
            for code, at in zip(*stack, strict=True)
            for frame in [known[id(code)]]
            if frame is not None
        ]
        if not rows:  # Python itself, or traceopt
            continue
        part, what, user = classify([frame for frame, _, _ in rows])
        seconds[part] = seconds.get(part, 0.0) + took_s
        if user is not None:
            _, code, at = rows[user]
            key = (name_in_trace(code.co_filename), line_of(code, at), code.co_name)
            of_line = lines.setdefault(part, {}).setdefault(key, {})
            of_line[what] = of_line.get(what, 0.0) + took_s
    return [
        {"part": part, "us": round(seconds[part] * 1e6, 1), "lines": _longest(lines.get(part, {}))}
        for part in sorted(seconds, key=lambda part: -seconds[part])
    ]


def _frame(code: CodeType, base_of: Callable[[CodeType], Part | None]) -> Frame | None:
    """None for traceopt's own code."""
    return None if is_own_code(code.co_filename) else Frame(code.co_filename, code.co_name, base_of(code))


def line_of(code: CodeType, instruction: int) -> int:
    """The source line of an instruction, by its offset in bytes; the first one of the code if it has none."""
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end)
    return next(lines, None) or code.co_firstlineno


def _longest(lines: dict[UserLine, dict[str | None, float]]) -> list[dict[str, Any]]:
    rows = []
    for (file, line, function), by_what in lines.items():
        named = [what for what in by_what if what is not None]
        what = max(named, key=lambda one: by_what[one], default=None)
        us = round(sum(by_what.values()) * 1e6, 1)
        rows.append((us, {"file": file, "line": line, "function": function, "what": what, "us": us}))
    rows.sort(key=lambda row: -row[0])
    return [row for _, row in rows[:MOST_LINES]]
