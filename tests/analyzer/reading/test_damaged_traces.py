"""A damaged trace gives the events that are whole and counts the others, in a time that grows with its length."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_trace import META, SMALL, names, well_formed

from fixtures import broken
from fixtures.generate import generate
from traceopt.errors import InputError
from traceopt.testing.events import document, driver, op, read


@pytest.fixture(scope="module")
def generated_trace() -> bytes:
    return generate("healthy", steps=1, layers=1, small_ops=10).to_bytes()


def test_damaged_gzip() -> None:
    text = document([op(f"op {i}", i, 1, x=str(hash(i * 1.1))) for i in range(20_000)])
    packed = gzip.compress(text)
    trace = read(packed[: len(packed) // 2])
    well_formed(trace)
    assert 8000 < len(trace.ops) < 12_000
    assert trace.meta.damage == "the gzip stream is truncated; the file is truncated inside the events"
    assert read(packed + b"rest").meta.damage == "non-gzip bytes follow the compressed data"
    assert len(read(gzip.compress(text[:70_000]) + gzip.compress(text[70_000:])).ops) == 20_000


@pytest.mark.parametrize("layout", [{}, {"separators": (",", ":")}, {"indent": 1}])
@pytest.mark.parametrize("bare", [False, True])
def test_every_place_a_file_can_be_cut_at(layout: dict[str, Any], bare: bool) -> None:
    """All events that are complete before the cut are read, the cut one is counted, and the damage is reported."""
    whole: Any = [*SMALL, *META]
    if not bare:
        whole = {"schemaVersion": 1, "traceEvents": whole, "traceName": "x", "more": [{"a": 1}, {"b": 2}]}
    text = json.dumps(whole, **layout)
    begins, ends = [], []
    decoder = json.JSONDecoder()
    at = text.index("[")
    for _ in range(len(SMALL + META)):
        begins.append(text.index("{", at))
        at = decoder.raw_decode(text, begins[-1])[1]
        ends.append(at)
    for cut in range(1, len(text), 2 if layout else 1):
        complete = sum(end <= cut for end in ends)
        begun = sum(begin < cut for begin in begins)
        slices = min(complete, len(SMALL))
        if slices == 0:
            with pytest.raises(InputError):
                read(text[:cut].encode())
            continue
        trace = read(text[:cut].encode())
        well_formed(trace)
        assert sum(trace.meta.categories.values()) == slices
        assert trace.meta.event_count == complete
        assert trace.meta.lost_events == begun - complete
        assert trace.meta.repaired_events == 0
        assert trace.meta.damage is not None


DAMAGED_EVENTS = {
    "raw quotes": b'"name": "k<"a", "b">"',
    "raw backslashes": rb'"name": "C:\Users\quentin"',
    "control characters": b'"name": "a\nb\x00c"',
    "invalid UTF-8": b'"name": "caf\xe9"',
    "lone surrogate": rb'"name": "\ud800"',
    "NaN": b'"name": "x", "dur": NaN',
    "Infinity": b'"name": "x", "dur": -Infinity',
    "out of range": b'"name": "x", "dur": 1e999',
    "no value": b'"name": "x", "dur": ',
    "unclosed": b'"name": "x", "dur": [1',
    "no colon": b'"name" "x"',
}


@pytest.mark.parametrize("damage", DAMAGED_EVENTS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_one_damaged_event_of_many(damage: str, pack: Any) -> None:
    events = [op(f"op {i}", i, 1, **{"External id": i}) for i in range(9000)]  # two blocks of text
    text = json.dumps({"traceEvents": events, "traceName": "x"}).encode()
    assert len(text) > 1_050_000
    for place in (0, 4000, 8999):
        damaged = text.replace(b'"name": "op %d"' % place, DAMAGED_EVENTS[damage])
        trace = read(pack(damaged))
        well_formed(trace)
        kept = {*names(trace, "ops")} & {f"op {i}" for i in range(9000)}
        assert len(kept) == 8999
        assert trace.meta.lost_events + trace.meta.repaired_events == 1
        assert trace.meta.header == {"traceName": "x"}
        assert trace.meta.damage is None
        assert (damage in ("unclosed", "no colon")) == trace.meta.lost_events


@pytest.mark.parametrize("name", sorted({*broken.DAMAGE} - {"format_of_2021"}))  # whose times are truncated
def test_damage_as_seen_in_the_wild(name: str, generated_trace: bytes) -> None:
    whole = read(generated_trace)
    trace = read(broken.DAMAGE[name](generated_trace))
    well_formed(trace)
    if name in ("cut_off", "truncated_gzip"):
        assert trace.meta.damage is not None
        assert trace.meta.event_count > whole.meta.event_count / 3
        return
    assert trace.meta.lost_events == 0
    for table in ("gpu", "runtime", "ops", "annotations"):
        columns, expected = getattr(trace, table), getattr(whole, table)
        assert columns.start.tolist() == expected.start.tolist()
        assert columns.duration.tolist() == expected.duration.tolist()
    assert (trace.gpu.correlation == whole.gpu.correlation).all()


FUZZED = document([*SMALL, *META, driver("cuLaunchKernel", 3, 0.5, 7)] * 3, deviceProperties=[{"id": 0}])


@given(st.data())
def test_flipped_deleted_and_doubled_bytes(data: st.DataObject) -> None:
    text = bytearray(data.draw(st.sampled_from([FUZZED, gzip.compress(FUZZED, mtime=0)])))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.integers(1, 40))
        match data.draw(st.sampled_from(["flip", "delete", "double", "insert"])):
            case "flip":
                text[at] ^= 1 << data.draw(st.integers(0, 7))
            case "delete" if len(text) > at + length:
                del text[at : at + length]
            case "double":
                text[at:at] = text[at : at + length]
            case _:
                text[at:at] = data.draw(st.sampled_from([b'"', b"\\", b"{", b"}", b"]", b"[", b",", b"\0", b"\xff"]))
    with suppress(InputError):
        well_formed(read(bytes(text)))


@pytest.mark.parametrize(
    "unit",
    [
        b'{"ph":"X","args":[',
        b'{"a":',
        b"},{",
        b'{"ph":',
        b'{"ph":"X","name":"',
        b'{"ph":"X" "a":[{}],',
        b'"a" ',
        b'"name":"',
        b'\\"',
        b'"x":',
        b"} ",
        b"{ ",
        b"[",
        b'"',
        b"\0\xff",
        b'{"ph":"X","name":"a"b\\",,',
    ],
)
def test_hostile_repetition_takes_time_by_its_length(unit: bytes) -> None:
    """Reading ends, because nothing is scanned repeatedly. (A quadratic reader takes minutes here.)"""
    for event in (b"", b'{"ph": "X" '):
        with suppress(InputError):
            read(b'{"traceEvents": [' + event + unit * 30_000)


def test_a_long_gap_before_what_may_end_the_events_takes_time_by_its_length() -> None:
    text = b'{"traceEvents": [{"ph": "X" "a": 1}' + b" " * 3_000_000
    for end in (b"", b"x", b"]x", b"]" + b" " * 300_000 + b"x"):
        with pytest.raises(InputError):
            read(text + end)
