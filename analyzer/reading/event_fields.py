"""What each table keeps of its events, as lists of decoded values: one list a column, one value an event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Raw, Struct, field

from traceopt.analyzer.vocabulary import event_categories as cat

MEMORY, FLOWS = "memory", "flows"  # tables of points; the others are of a category each


class Fields(Struct):
    """Columns by the kind of their values. The first of `numbers` are the times, in us."""

    numbers: dict[str, list[Any]]
    texts: dict[str, list[Raw]] = field(default_factory=dict)
    triples: dict[str, list[Any]] = field(default_factory=dict)
    flags: dict[str, list[bool]] = field(default_factory=dict)


def _span(events: Sequence[Any]) -> dict[str, list[Any]]:
    return {"start": [e.ts for e in events], "duration": [e.dur for e in events]}


def _thread(events: Sequence[Any]) -> dict[str, list[Any]]:
    return {"pid": [e.pid for e in events], "tid": [e.tid for e in events]}


def _gpu(events: Sequence[Any]) -> Fields:
    args = [e.args for e in events]
    numbers = _span(events) | {
        "device": [a.device for a in args],
        "stream": [a.stream for a in args],
        "correlation": [a.correlation for a in args],
        "bytes": [a.bytes for a in args],
        "collective_elements": [a.collective_elements for a in args],
        "group_size": [a.group_size for a in args],
        "collective_sequence": [a.collective_sequence for a in args],
        "pid": [e.pid for e in events],  # the device, where the file names none
    }
    texts = {
        "collective": [a.collective for a in args],
        "collective_dtype": [a.collective_dtype for a in args],
        "process_group": [a.process_group for a in args],
        "process_group_ranks": [a.process_group_ranks for a in args],
    }
    return Fields(numbers, texts, {"grid": [a.grid for a in args], "block": [a.block for a in args]})


def _runtime(events: Sequence[Any]) -> Fields:
    return Fields(_span(events) | {"correlation": [e.args.correlation for e in events]} | _thread(events))


def _op(events: Sequence[Any]) -> Fields:
    args = [e.args for e in events]
    numbers = _span(events) | {
        "sequence": [a.sequence for a in args],
        "forward_thread": [a.forward_thread for a in args],
        "event_index": [a.event_index for a in args],
    }
    texts = {
        "dims": [a.dims for a in args],
        "types": [a.types for a in args],
        "concrete": [a.concrete for a in args],
        "stack": [a.stack for a in args],
    }
    return Fields(numbers | _thread(events), texts)


def _python(events: Sequence[Any]) -> Fields:
    return Fields(_span(events) | _thread(events))


def _sync(events: Sequence[Any]) -> Fields:
    args = [e.args for e in events]
    numbers = _span(events) | {
        "correlation": [a.correlation for a in args],
        "device": [a.device for a in args],
        "stream": [a.stream for a in args],
        "awaited_stream": [a.awaited_stream for a in args],
        "event_record": [a.event_record for a in args],
    }
    return Fields(numbers)


def _memory(events: Sequence[Any]) -> Fields:
    args = [e.args for e in events]
    numbers = {
        "time": [e.ts for e in events],
        "bytes": [a.bytes for a in args],
        "address": [a.address for a in args],
        "allocated": [a.allocated for a in args],
        "reserved": [a.reserved for a in args],
        "device_type": [a.device_type for a in args],
        "device": [a.device for a in args],
    }
    return Fields(numbers | _thread(events))


def _flows(events: Sequence[Any]) -> Fields:
    numbers = {"time": [e.ts for e in events], "id": [e.id for e in events]}
    return Fields(numbers | _thread(events), flags={"finish": [e.ph == "f" for e in events]})


FIELDS: dict[str, Callable[[Sequence[Any]], Fields]] = {
    cat.GPU: _gpu,
    cat.RUNTIME: _runtime,
    cat.OP: _op,
    cat.ANNOTATION: _op,
    cat.PYTHON: _python,
    cat.SYNC: _sync,
    MEMORY: _memory,
    FLOWS: _flows,
}
