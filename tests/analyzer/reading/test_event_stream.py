"""The same events are read from a text in any layout and with any block borders."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.reading import event_stream
from traceopt.analyzer.reading.event_stream import EventStream, NotATraceError
from traceopt.analyzer.reading.event_types import Slice, SpanEvent
from traceopt.testing.events import Json, op, span

NASTY = [
    "aten::mm",
    'evil },\n  { "ph": "X" ',
    'q"},{"',
    "tail]}, {",
    "ü漢\u2028😀",
    "x" * 300,
    "]",
    "]}",
    '"traceEvents": [',
    '}],"traceName": "x"}',
    "back\\slash\\",
    "",
]
LAYOUTS: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")},
    "default": {},
    "indented": {"indent": 4},
    "sorted": {"sort_keys": True},
    "utf-8": {"ensure_ascii": False},
}


def nasty_events(count: int = 60) -> list[Json]:
    choice = random.Random(1)  # noqa: S311
    events: list[Json] = []
    for i in range(count):
        weird = [{"a": 1}, {"b": [{"c": "},{"}]}, {"name": "n"}, {"ph": i}]
        events.append(op(choice.choice(NASTY), i * 1.5, 1, **{"Ev Idx": i}, weird=weird, dims=[[1, 2], []]))
        if i % 7 == 0:
            events.append({"ph": "s", "id": i, "pid": 1, "tid": 2, "ts": i, "cat": "ac2g", "name": "ac2g"})
        if i % 11 == 0:
            events.append({"ph": "C", "name": "counter", "pid": 1, "ts": i, "args": {"v": 1}})
    return events


EVENTS = nasty_events()
HEADER = {"schemaVersion": 1, "deviceProperties": [{"id": 0}, {"id": 1}], "note": "has the word traceEvents"}
TRAILER = {"deviceProperties": [{"id": 0, "name": "GPU"}, {"id": 1, "a": [{"b": 1}, {"c": 2}]}], "traceName": "x"}


def document(layout: str, trailer: Json | None = None, header: Json | None = None) -> bytes:
    """With keys before the events, after them, or both."""
    return json.dumps({**(header or {}), "traceEvents": EVENTS, **(trailer or {})}, **LAYOUTS[layout]).encode()


def cut(text: bytes, size: int) -> Iterable[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


def read(blocks: Iterable[bytes]) -> tuple[EventStream, list[Any]]:
    stream = EventStream(blocks)
    return stream, [event for events in stream for event in events]


def assert_all(stream: EventStream, events: list[Any]) -> None:
    assert (stream.lost, stream.repaired, stream.damage) == (0, 0, None)
    assert len(events) == len(EVENTS)
    found = [(e.ts, e.name, e.args.event_index) for e in events if isinstance(e, (Slice, SpanEvent))]
    assert found == [(e["ts"], e["name"], e["args"]["Ev Idx"]) for e in EVENTS if e["ph"] == "X"]
    assert sum(getattr(e, "ph", None) == "s" for e in events) == sum(e["ph"] == "s" for e in EVENTS)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 2, 3, 10, 97, 250, 700, 4096, 1 << 20])
def test_every_layout_in_every_block_size(layout: str, size: int) -> None:
    stream, events = read(cut(document(layout, TRAILER, {"schemaVersion": 1}), size))
    assert_all(stream, events)
    assert stream.header == {"schemaVersion": 1, **TRAILER}


@given(st.lists(st.integers(0, 20_000)), st.sampled_from(list(LAYOUTS)))
def test_blocks_cut_anywhere(cuts: list[int], layout: str) -> None:
    text = document(layout, TRAILER, HEADER)
    edges = [0, *sorted(cuts), len(text)]
    stream, events = read(text[a:b] for a, b in pairwise(edges))
    assert_all(stream, events)
    assert stream.header == HEADER | TRAILER  # as json.loads reads it


@pytest.mark.parametrize("size", [1, 100, 3000, 1 << 20])
def test_keys_behind_the_events_that_fill_blocks_of_their_own(size: int) -> None:
    trailer = {**TRAILER, "log": [{"line": i} for i in range(500)]}
    stream, events = read(cut(document("default", trailer), size))
    assert_all(stream, events)
    assert stream.header == trailer


@pytest.mark.parametrize("size", [1, 100, 1 << 16])
def test_a_long_header(size: int) -> None:
    header = {"note": "x" * (1 << 20 if size > 1 else 5000), "more": [{"a": 1}, {"b": 2}]}
    stream, events = read(cut(document("default", header=header), size))
    assert_all(stream, events)
    assert stream.header == header


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bare_array(size: int, layout: str) -> None:
    text = json.dumps(EVENTS, **LAYOUTS[layout]).encode()
    stream, events = read(cut(text, size))
    assert_all(stream, events)
    assert stream.header == {}
    stream, events = read(cut(text.rstrip().removesuffix(b"]"), size))  # the Chrome format allows an open array
    assert len(events) == len(EVENTS)
    assert (stream.lost, stream.damage) == (0, "the file is truncated inside the events")


def test_space_and_a_byte_order_mark_around() -> None:
    stream, events = read([b"\xef\xbb\xbf \n" + document("default", TRAILER, HEADER) + b" \n"])
    assert_all(stream, events)
    assert stream.header == HEADER | TRAILER  # as json.loads reads it
    stream, events = read([b"\xef\xbb\xbf \n" + json.dumps(EVENTS).encode() + b" \n"])
    assert_all(stream, events)


def test_a_comma_behind_the_last_event() -> None:
    text = json.dumps(EVENTS).encode()
    stream, events = read([b'{"traceEvents": ' + text[:-1] + b',\n ], "traceName": "x"}'])
    assert len(events) == len(EVENTS)
    assert (stream.lost, stream.repaired, stream.damage) == (0, 0, None)
    assert stream.header == {"traceName": "x"}


@pytest.mark.parametrize("size", [100, 3000, 1 << 20])
def test_values_of_odd_types_do_not_move_the_border(size: int) -> None:
    """A chunk with a value that the fast types reject may also end at a border inside a name."""
    odd = [
        {**e, "args": {**e.get("args", {}), "stream": [1], "grid": "grid(1,)"}} if i % 3 else e
        for i, e in enumerate(EVENTS)
    ]
    stream, events = read(cut(json.dumps({"traceEvents": odd}).encode(), size))
    assert_all(stream, events)


@pytest.mark.parametrize("size", [100, 3000, 1 << 20])
def test_damage_does_not_move_the_border(size: int) -> None:
    """One broken event among many whose names contain apparent borders."""
    for damaged in range(1, 60, 7):
        parts = [json.dumps(e) for e in EVENTS]
        parts[damaged] = '{"ph": "X", "cat": "cpu_op", "name": "a"b", "pid": 1, "ts": -5, "args": {"x": %}}'
        text = ('{"traceEvents": [' + ",\n  ".join(parts) + "]}").encode()
        stream, events = read(cut(text, size))
        assert len(events) == len(EVENTS) - 1
        assert (stream.lost, stream.repaired, stream.damage) == (1, 0, None)


def test_a_stray_bracket_does_not_end_the_events() -> None:
    parts = [json.dumps(e) for e in EVENTS]
    for stray in ("]", "]}", "],"):
        text = '{"traceEvents": [' + ", ".join([*parts[:10], parts[10] + stray, *parts[11:]]) + '], "traceName": "x"}'
        for size in (500, 1 << 20):
            stream, events = read(cut(text.encode(), size))
            assert len(events) == len(EVENTS)
            assert stream.lost <= 1
            assert stream.header == {"traceName": "x"}


@pytest.mark.parametrize("size", [500, 1 << 20])
@pytest.mark.parametrize("bare", [False, True])
def test_what_stands_behind_the_document_is_told_and_not_read(size: int, bare: bool) -> None:
    """A file written twice, or over a longer one."""
    text = json.dumps(EVENTS).encode() if bare else document("default", TRAILER, HEADER)
    for rest in (text, b"\n" + text[-150:], b"\0" * 100, b"garbage"):
        stream, events = read(cut(text + rest, size))
        assert len(events) == len(EVENTS)
        assert stream.lost == 0
        assert stream.header == ({} if bare else HEADER | TRAILER)
        assert stream.damage == "the text after the events is truncated or damaged"


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (b'{"schemaVersion": 1, "devices": [1, 2, ', "the text before the events is damaged"),
        (b'{"schemaVersion": 1 "name": "x", ', "the text before the events is damaged"),
        (b'{"schemaVersion": "a"b", ', None),
        (b'{"schemaVersion": NaN, ', None),
        (b'{"schema\xff": 1, ', None),
    ],
)
def test_what_stands_before_the_events_is_told_where_it_is_spoilt(before: bytes, told: str | None) -> None:
    text = before + b'"traceEvents": ' + json.dumps(EVENTS).encode() + b', "traceName": "x"}'
    stream, events = read([text])
    assert len(events) == len(EVENTS)
    assert (stream.damage, stream.repaired, stream.lost) == (told, 0 if told else 1, 0)
    assert stream.header["traceName"] == "x"


def test_an_event_beyond_all_measure_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclosed bracket must not block the rest of the file."""
    monkeypatch.setattr(event_stream, "EVENT_LIMIT_BYTES", 4096)
    parts = [json.dumps(op("aten::mm", i, 1)) for i in range(1000)]
    parts[300] = '{"ph": "X", "name": "open", "args": {"x": [1'
    parts[600] = json.dumps(op("large", 600, 1, x="y" * 20_000))
    longest = 0
    stream = EventStream(cut(('{"traceEvents": [' + ", ".join(parts) + "]}").encode(), 1000))
    kept = []
    for events in stream:
        longest = max(longest, len(events))
        kept += [event.ts for event in events if isinstance(event, (Slice, SpanEvent))]
    assert sorted({*range(1000)} - {300, 600}) == [int(t) for t in kept]
    assert 2 <= stream.lost <= 20  # the large event is lost in several pieces
    assert longest < 200


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" \n\t ",
        b"{}",
        b'{"traceEvents": {}}',
        b"[1, 2]",
        b"<!doctype html><title>404</title>",
        bytes(range(256)) * 20,
    ],
)
def test_what_is_no_trace_is_handed_on(text: bytes) -> None:
    with pytest.raises(NotATraceError) as caught:
        read(cut(text, 100))
    assert caught.value.start == text


def test_the_search_for_events_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_META_LIMIT_BYTES", 10_000)
    blocks = iter([b"x" * 1000] * 1000)
    with pytest.raises(NotATraceError):
        read(blocks)
    assert len(list(blocks)) > 900


def test_the_text_behind_the_events_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "EVENT_LIMIT_BYTES", 4_000)
    monkeypatch.setattr(event_stream, "_META_LIMIT_BYTES", 10_000)
    text = json.dumps({"traceEvents": [span("kernel", "k", 0, 1)] * 3, "log": ["x" * 100] * 1000}).encode()
    stream, events = read(cut(text, 500))
    assert len(events) == 3
    assert stream.damage == "the text after the events is truncated or damaged"
