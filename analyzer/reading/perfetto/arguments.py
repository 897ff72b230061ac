"""The arguments of events, which a Perfetto trace holds as named values, as columns of `SliceArgs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from traceopt.analyzer.reading.event_types import NO_TEXT, NONE, SliceArgs, number
from traceopt.analyzer.reading.perfetto.wire import FIXED64, LENGTH, VARINT, Fields, fields_of
from traceopt.analyzer.tables.schema import F8, Mask

_FIELDS = msgspec.structs.fields(SliceArgs)
_COLUMN_OF = {field.encode_name.encode(): field.name for field in _FIELDS}
_TEXTS = frozenset(field.name for field in _FIELDS if field.type is Raw)
_OF_WORK = _COLUMN_OF | {b"device id": "device", b"stream id": "stream"}  # as the exporter calls them
_DEEPEST = 16  # of lists in lists
# Fields of DebugAnnotation.
_BOOL, _UNSIGNED, _SIGNED, _DOUBLE, _STRING, _NAME, _LIST = 2, 3, 4, 5, 6, 10, 12


class Arguments(Struct, frozen=True):
    """Of events: numbers or JSON texts for each column that any of them has. `some`: which events have an argument."""

    columns: dict[str, F8 | list[Raw]]
    some: Mask

    def build(self) -> list[SliceArgs]:
        names = list(self.columns)
        columns = [values if isinstance(values, list) else values.tolist() for values in self.columns.values()]
        rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if names else ((),) * len(self.some)
        return [
            SliceArgs(**dict(zip(names, row, strict=True))) if some else _NOTHING
            for row, some in zip(rows, self.some.tolist(), strict=True)
        ]

    def take(self, rows: slice) -> Arguments:
        return Arguments({name: values[rows] for name, values in self.columns.items()}, self.some[rows])


_NOTHING = SliceArgs()


class Texts:
    """JSON texts of annotations. Most events have the arguments of an earlier one, so each is written once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Raw] = {}

    def of(self, annotation: bytes) -> Raw:
        known = self._known.get(annotation)
        if known is None:
            known = self._known[annotation] = Raw(msgspec.json.encode(_value(annotation)))
        return known


def of_slices(annotations: Fields, count: int, texts: Texts) -> Arguments:
    """From `TrackEvent.debug_annotations` of `count` events."""
    inside = annotations.inside()
    values: F8 = np.full(len(annotations), NONE)
    for kind in (_BOOL, _UNSIGNED, _SIGNED):
        found = inside.of(kind, VARINT)
        values[found.message] = found.value
    doubles = inside.of(_DOUBLE, FIXED64)
    values[doubles.message] = doubles.value.view(np.float64)
    names = inside.of(_NAME)
    columns: dict[str, F8 | list[Raw]] = {}
    some = np.zeros(count, bool)
    for name, column in _COLUMN_OF.items():
        places = names.message[names.equal(name)]
        if len(places):
            events = annotations.message[places]
            some[events] = True
            if column in _TEXTS:
                written = [NO_TEXT] * count
                for event, place in zip(events.tolist(), places.tolist(), strict=True):
                    written[event] = texts.of(annotations.text(place))
                columns[column] = written
            else:
                numbers = np.full(count, NONE)
                numbers[events] = values[places]
                columns[column] = numbers
    return Arguments(columns, some)


class Extra(Struct, frozen=True):
    """Of work of the GPU: columns, the functions of CPU callbacks by row, and the GPU's architecture ("sm_90"; "": not
    known).
    """

    columns: dict[str, F8 | list[Any]]
    callbacks: dict[int, str]
    architecture: str


def of_work(extra: Fields, count: int) -> Extra:
    """From `GpuRenderStageEvent.extra_data` of `count` rows, whose values are all strings."""
    inside = extra.inside()
    names, values = inside.of(1), inside.of(2)
    value_of = np.full(len(extra), -1, np.int64)
    value_of[values.message] = np.arange(len(values))

    def texts(name: bytes) -> list[tuple[int, str]]:
        places = names.message[names.equal(name)]
        places = places[value_of[places] >= 0]
        rows = zip(extra.message[places].tolist(), value_of[places].tolist(), strict=True)
        return [(row, values.text(value).decode("utf-8", "replace")) for row, value in rows]

    columns: dict[str, F8 | list[Any]] = {}
    for name, column in _OF_WORK.items():
        if found := texts(name):
            is_text = column in _TEXTS
            out: list[Any] = [NO_TEXT if is_text else NONE] * count
            for row, text in found:
                out[row] = Raw(msgspec.json.encode(text)) if is_text else number(text)
            columns[column] = out
    return Extra(columns, dict(texts(b"host fn")), dict(texts(b"arch")).get(0, ""))


def _value(annotation: bytes, depth: int = 0) -> Any:
    """The value of an annotation: a number, a text, or a list. The exporter writes an empty list as no value."""
    items: list[Any] = []
    for kind, wire, value, begin, end in fields_of(annotation, 0, len(annotation)):
        if wire == VARINT and kind in (_UNSIGNED, _SIGNED):
            return value
        if wire == VARINT and kind == _BOOL:
            return bool(value)
        if wire == FIXED64 and kind == _DOUBLE:
            return float(np.frombuffer(annotation[begin:end], "<f8")[0])
        if wire == LENGTH and kind == _STRING:
            return annotation[begin:end].decode("utf-8", "replace")
        if wire == LENGTH and kind == _LIST and depth < _DEEPEST:
            items.append(_value(annotation[begin:end], depth + 1))
    return items
