"""Who an allocation belongs to: the line of the user's or a model's code that is deepest in its stack."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from traceopt.analyzer.companions.memory_snapshot.snapshot_file import Frame, SnapshotTables
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.python_frames import is_place, parse_frame
from traceopt.result.finding import Location

BEFORE_RECORDING = "Allocated before the recording"
NO_PYTHON = "No Python frame (such as gradients in the backward pass)"
_LAYER = re.compile(r"(?:^|/)torch/nn/modules/(?!module\.py|container\.py|__init__)(\w+)\.py$")
_PYTHON = re.compile(r"\.py$|^<")


class Owner(Struct, frozen=True):
    """`site` is None for memory without a line; `layer` is the module of torch.nn around the allocation."""

    name: str
    site: Location | None = None
    layer: str | None = None


class Owners(Struct, frozen=True):
    """`owner` and `of_stack`: the number of the owner in `owners` for each stack; the last two owners have no stack."""

    owners: list[Owner]
    of_stack: I8

    @property
    def without_stack(self) -> int:
        return len(self.owners) - 2

    @property
    def before_recording(self) -> int:
        return len(self.owners) - 1


def find_owners(tables: SnapshotTables) -> Owners:
    """The owner of each stack."""
    places = [_place(frame) for frame in tables.frames]
    layers = [_layer(frame) for frame in tables.frames]
    python = [bool(_PYTHON.search(frame[0])) for frame in tables.frames]
    numbers: dict[Owner, int] = {}
    of_stack = np.empty(len(tables.stacks), np.int64)
    for row, stack in enumerate(tables.stacks):
        owner = _owner([at for at in stack if python[at]], places, layers, tables.frames)
        of_stack[row] = numbers.setdefault(owner, len(numbers)) if owner is not None else -1
    owners = [*numbers, Owner(NO_PYTHON), Owner(BEFORE_RECORDING)]
    return Owners(owners, np.where(of_stack < 0, len(owners) - 2, of_stack))


def _owner(
    stack: list[int], places: list[Location | None], layers: list[str | None], frames: list[Frame]
) -> Owner | None:
    if not stack:
        return None
    site = next((place for at in stack if (place := places[at]) is not None), None)
    layer = None
    for at in stack:
        if places[at] is not None:
            break
        layer = layer or layers[at]
    if site is None:
        file, line, function = frames[stack[0]]
        return Owner(f"{_short(file)}:{line} {function}", None, layer)
    return Owner(f"{_short(site.file)}:{site.line} {site.function}", site, layer)


def _place(frame: Frame) -> Location | None:
    name = f"{frame[0]}({frame[1]}): {frame[2]}"
    return parse_frame(name) if is_place(name) else None


def _layer(frame: Frame) -> str | None:
    found = _LAYER.search(frame[0].replace("\\", "/"))
    return f"torch.nn.modules.{found[1]}" if found else None


def _short(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2]
