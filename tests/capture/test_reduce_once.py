"""Gradient accumulation: which passes reduce, once the number of passes per update is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from traceopt.capture.script.switches.reduce_once import Passes


def reducing(updates: list[int], models: int = 1) -> tuple[list[list[bool]], list[str]]:
    """Whether each pass of each update reduces, and the settings that were used. Passes take turns with the models."""
    used: list[str] = []
    passes = Passes(used.append)
    ones: list[Any] = [SimpleNamespace(require_backward_grad_sync=True) for _ in range(models)]
    seen = []
    for count in updates:
        update = []
        for number in range(count):
            model = ones[number % models]
            passes.forward_begins(model)
            update.append(model.require_backward_grad_sync)
        seen.append(update)
        passes.updated()
        passes.updated()  # a second optimizer
    return seen, used


def test_the_last_pass_reduces_once_the_number_is_known() -> None:
    seen, used = reducing([3, 3, 3, 3])
    assert seen == [[True] * 3, [True] * 3, [False, False, True], [False, False, True]]
    assert set(used) == {"reduce_once"}


def test_another_number_of_passes_begins_anew() -> None:
    seen, _ = reducing([2, 2, 4, 4, 4])
    assert seen[2] == [False, True, True, True]
    assert seen[3] == [True] * 4
    assert seen[4] == [False, False, False, True]


def test_one_pass_or_two_models_always_reduce() -> None:
    assert reducing([1, 1, 1]) == ([[True]] * 3, [])
    assert reducing([2, 2, 2], models=2) == ([[True, True]] * 3, [])
