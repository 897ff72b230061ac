"""The call stacks of constructors, noted without torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from traceopt.capture.metadata import constructions
from traceopt.capture.metadata.constructions import Constructions, built, stack_around


class Loader:
    """Its constructor notes the stack itself, in place of a wrapper by traceopt."""

    def __init__(self, notes: Constructions, dataset: Any) -> None:
        self.dataset = dataset
        notes.loader(self)


def wrapped(constructor: Callable[..., None]) -> Callable[..., None]:
    """As frameworks wrap the constructors of loaders."""

    @wraps(constructor)
    def wrapper(*args: Any, strict: bool = True, **kwargs: Any) -> None:  # noqa: ARG001
        constructor(*args, **kwargs)

    return wrapper


class Derived(Loader):
    @wrapped
    def __init__(self, notes: Constructions, dataset: Any) -> None:
        super().__init__(notes, dataset)


def functions(thing: Any) -> list[str]:
    """The function that called each of its constructors."""
    return [stack[0].rpartition(": ")[2] for stack in built(thing)]


def test_the_caller_comes_first_without_derived_classes_and_wrappers() -> None:
    loader = Derived(Constructions(), [1])
    assert functions(loader) == [test_the_caller_comes_first_without_derived_classes_and_wrappers.__name__]


def test_a_loader_of_the_same_dataset_keeps_the_earlier_stacks() -> None:
    notes, data, other = Constructions(), [1], [1]

    def script() -> Loader:
        return Loader(notes, data)

    def prepare(loader: Loader) -> Loader:
        return Loader(notes, loader.dataset)

    first = script()
    assert functions(prepare(first)) == ["prepare", "script"]
    assert functions(Loader(notes, other))[1:] == []


def test_a_dataset_that_no_longer_exists_is_not_taken_for_another() -> None:
    notes, data = Constructions(), [1]
    first = Loader(notes, data)
    first.dataset = [2]  # as if the id had been given to another object
    assert len(built(Loader(notes, data))) == 1


def test_an_object_that_takes_no_attribute_is_left_out() -> None:
    notes = Constructions()
    notes.optimizer(object())
    notes.loader(object())
    notes.framework("lightning", object())
    assert [row["framework"] for row in notes.document()["frameworks"]] == ["lightning"]


def test_files_are_named_as_in_the_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "inner")])
    assert constructions.name_in_trace(str(tmp_path / "inner" / "train.py")) == "train.py"
    assert constructions.name_in_trace(str(tmp_path / "src" / "train.py")) == str(Path("src/train.py"))
    assert constructions.name_in_trace("<string>") == "<string>"


def test_a_stack_is_bounded() -> None:
    class Noted:
        def __init__(self, depth: int) -> None:
            self.frames = self.around(depth)

        def around(self, depth: int) -> list[str]:
            return self.around(depth - 1) if depth else stack_around(self)

    def construct(depth: int) -> Noted:
        return construct(depth - 1) if depth else Noted(3)

    assert len(construct(200).frames) == constructions.MOST_FRAMES
