"""Fits an answer into a budget of tokens: the least important rows go first, and the answer says so."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from traceopt.assistants.answers import Answer
from traceopt.reports.agent.tokens import estimated_tokens
from traceopt.result.words.quantities import NO_BREAK_SPACE

LEAST_TOKENS, USUAL_TOKENS, MOST_TOKENS = 300, 1_500, 25_000
_TEXT_CAPS = (400, 160, 60)  # characters; tried one after the other
_KEPT_TEXTS = frozenset({"id", "ids", "untrusted_text", "left_out"})
_ROUND_TO = 3  # significant digits of a time


def milliseconds(us: float | None) -> float | None:
    """Microseconds as milliseconds with three significant digits."""
    return None if us is None else float(f"{us / 1e3:.{_ROUND_TO}g}")


def as_text(content: dict[str, Any]) -> str:
    """The same as compact JSON."""
    return msgspec.json.encode(content).decode()


def fitted(answer: Answer, max_tokens: int) -> dict[str, Any]:
    """The answer as JSON values of at most `max_tokens` estimated tokens, and `left_out` if something was cut."""
    content: dict[str, Any] = _plain(msgspec.to_builtins(answer, enc_hook=str))
    cut: Counter[str] = Counter()

    def fits() -> bool:
        if cut:
            rows = ", ".join(f"{number} of {name}" if number else name for name, number in cut.items())
            content["left_out"] = f"{rows}; raise max_tokens, or {answer.narrow}"
        return estimated_tokens(as_text(content)) <= max_tokens

    def shorten(least: int) -> bool:
        for name in answer.cuts:
            while len(content.get(name, ())) > least:
                if fits():
                    return True
                content[name].pop()
                cut[name] += 1
        return fits()

    if fits() or shorten(1):
        return content
    for name in answer.whole:
        if content.pop(name, None) is not None:
            cut[name] = 0
            if fits():
                return content
    for cap in _TEXT_CAPS:
        content = {name: _capped(value, cap) if name not in _KEPT_TEXTS else value for name, value in content.items()}
        cut["ends of long texts"] = 0
        if fits():
            return content
    shorten(0)
    return content


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(NO_BREAK_SPACE, " ")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def _capped(value: Any, cap: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= cap else value[: cap - 1] + "…"
    if isinstance(value, list):
        return [_capped(item, cap) for item in value]
    if isinstance(value, dict):
        return {name: item if name in _KEPT_TEXTS else _capped(item, cap) for name, item in value.items()}
    return value
