"""Damaged events are repaired or counted, and never affect their neighbors."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceopt.analyzer.reading.damaged_events import read_event, read_object, recover
from traceopt.analyzer.reading.event_types import Slice
from traceopt.testing.events import Json, op, read

GOOD = (
    '{"ph": "X", "cat": "kernel", "name": "good", "ts": 1, "args": {"correlation": 5, "x": [{"name": 1}, {"ts": 2}]}}'
)

# The text of an event, and its name after the repair; None: it is lost.
REPAIRED = {
    '{"ph": "X", "name": "a"b", "ts": 1}': 'a"b',
    '{"ph": "X", "name": ""quoted"", "ts": 1}': '"quoted"',
    '{"ph": "X", "cat": "kernel", "name": "f<"a", "b">", "ts": 1}': 'f<"a", "b">',
    '{"ph":"X","name":"f<"a","b">","ts":1}': 'f<"a","b">',
    r'{"ph": "X", "name": "C:\Users\quentin\train.py", "ts": 1}': "C:\\Users\\quentin\train.py",  # \t is an escape
    r'{"ph": "X", "name": "C:\dir\", "ts": 1}': "C:\\dir\\",
    r'{"ph": "X", "name": "\u12", "ts": 1}': r"\u12",
    '{"ph": "X", "name": "two\nlines\t\x00\x1b[0m", "ts": 1}': "two\nlines\t\x00\x1b[0m",
    r'{"ph": "X", "name": "half \ud83d pair", "ts": 1}': "half \ufffd pair",
    r'{"ph": "X", "name": "half \ude00 pair", "ts": 1}': "half \ufffd pair",
    '{"ph": "X", "name": "n", "ts": 1, "args": {"Concrete Inputs": ["", "a"b"], "x": "c"d"}}': "n",
    '{"ph": "X", "name": "n", "ts": 1, "args": {"bandwidth": nan, "x": -inf, "y": NaN, "z": Infinity}}': "n",
    '{"ph": "X", "name": "n", "ts": 1, "args": {"stream": , "device":}}': "n",
    '{"ph": "X" "name": "n", "ts": 1}': None,
    '{"ph": "X", "name: "n", "ts": 1}': None,
    '{"ph": "X", "name": "n", "ts": 1, "args": {"x": [1}}': None,
}


@pytest.mark.parametrize("damaged", REPAIRED, ids=lambda text: text[:60])
@pytest.mark.parametrize("separator", [",", ",\n  ", " , "])
def test_damage_is_repaired_or_counted(damaged: str, separator: str) -> None:
    found = recover(separator.join((GOOD, damaged, GOOD)).encode(), final=True)
    names = [event.name for event in found.events if isinstance(event, Slice)]
    name = REPAIRED[damaged]
    assert names == (["good", "good"] if name is None else ["good", name, "good"])
    assert found.lost == (name is None)
    assert found.repaired == (name is not None)
    assert found.events[-1].args.correlation == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(("category", "lost"), [("kernel", 1), ("cpu_op", 1), ("python_function", 0)])
def test_names_of_work_that_run_into_each_other_are_a_loss(category: str, lost: int) -> None:
    joined = f'{{"ph": "X", "cat": "{category}", "name": "void (anonymous nam"Memset (Unknown)", "ts": 1}}'
    found = recover(", ".join([GOOD, joined, GOOD]).encode(), final=True)
    assert (len(found.events), found.repaired, found.lost) == (3, 1, lost)


def test_an_event_with_deep_arguments_is_lost_at_worst() -> None:
    """Python 3.14 reads as deep as the stack allows, earlier versions stop at a fixed depth."""
    deep = '{"ph": "X", "name": "n", "ts": 1, "args": {"x": ' + "[" * 100_000 + "]" * 100_000 + "}}"
    found = recover(", ".join([GOOD, deep, GOOD]).encode(), final=True)
    names = [event.name for event in found.events if isinstance(event, Slice)]
    assert (names, found.lost) in [(["good", "good"], 1), (["good", "n", "good"], 0)]
    assert sys.version_info >= (3, 14) or found.lost


def test_a_name_that_swallows_the_keys_behind_it_costs_its_event() -> None:
    """An event with a missing quote is lost, even if its repaired text could be read."""
    text = f'{GOOD}, {{"name": "sort_index&, "ph": "M", "ts": 1, "args": {{"sort_index": 7}}}}, {GOOD}'
    found = recover(text.encode(), final=True)
    assert ([event.name for event in found.events], found.lost) == (["good", "good"], 1)  # type: ignore[union-attr]


def test_an_event_that_ends_where_another_begins_costs_one() -> None:
    """The beginning of one event is written into the name of another."""
    text = f'{GOOD}, {{"name": "\n {GOOD}, {GOOD}'
    found = recover(text.encode(), final=True)
    assert (len(found.events), found.lost) == (2, 1)


def test_the_end_of_another_event_is_a_loss() -> None:
    """A hole in the text leaves the beginning of one event and the end of another."""
    joined = '{"ph": "X", "name": "n", "du": 5, "args": {"a": 1}}}'
    found = recover(f"{GOOD}, {joined}, {GOOD}".encode(), final=True)
    assert (len(found.events), found.lost) == (3, 1)


def test_an_event_with_the_keys_of_two_is_a_loss() -> None:
    joined = '{"ph": "X", "cat": "cpu_op", "name": "aten::l   "ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1}'
    found = recover(", ".join([GOOD, joined, GOOD]).encode(), final=True)
    assert (len(found.events), found.repaired, found.lost) == (3, 1, 1)


@pytest.mark.parametrize(("others", "lost"), [({"Ev Idx": 7}, 1), ({}, 0)])
def test_an_operator_without_the_number_that_all_others_have_is_a_loss(others: Json, lost: int) -> None:
    """It is the beginning of an operator and the end of a call, but valid JSON."""
    joined = op("aten::to", 5, 1, correlation=9)
    assert read([op("aten::mm", 1, 1, **others), joined, op("aten::mm", 9, 1, **others)]).meta.lost_events == lost


def test_a_stretch_that_was_never_written_is_a_loss() -> None:
    start, end = GOOD[:20], GOOD[-20:]
    found = recover(f"{GOOD}, {start}{chr(0) * 100}{end}, {GOOD}".encode(), final=True)
    assert (len(found.events), found.lost) == (2, 1)
    assert found.unread_bytes >= 100


def test_a_comma_that_is_missing_is_told() -> None:
    """It is unknown how much went missing with it."""
    found = recover(f"{GOOD}\n{GOOD}, {GOOD}".encode(), final=True)
    assert (len(found.events), found.repaired, found.lost) == (3, 1, 0)


def test_bytes_that_are_no_utf8_in_what_nobody_reads() -> None:
    """A broken key hides its value, so the event counts as damaged."""
    found = recover(b'{"ph": "X", "c\xfft": "kernel", "name": "n", "ts": 1}', final=True)
    assert (len(found.events), found.repaired, found.lost) == (1, 1, 0)


def test_repairing_stops_if_it_does_not_help() -> None:
    broken, repaired = '{"ph": "X" "ts": 1}', '{"ph": "X", "name": "a"b", "ts": 1}'
    found = recover(", ".join([broken] * 5 + [repaired]).encode(), final=True, patience=5)
    assert (found.lost, found.repaired) == (6, 0)
    found = recover(", ".join([repaired] + [broken] * 5 + [repaired]).encode(), final=True, patience=5)
    assert (found.lost, found.repaired) == (5, 2)


def test_bytes_that_are_no_utf8() -> None:
    text = b'{"ph": "X", "name": "caf\xe9 \x80 \xed\xa0\x80", "ts": 1}'
    for events in ([text], [GOOD.encode(), text]):
        found = recover(b", ".join(events), final=True)
        assert found.events[-1].name == "caf\ufffd \ufffd \ufffd\ufffd\ufffd"  # type: ignore[union-attr]
        assert (found.repaired, found.lost) == (1, 0)


def test_a_well_formed_event_is_read_whatever_its_types() -> None:
    reading = read_event(b'{"ph": "X", "ts": "12.5", "pid": null, "tid": [1], "name": 5, "args": {"stream": {}}}')
    assert reading is not None
    assert not reading.repaired
    assert isinstance(reading.event, Slice)
    assert (reading.event.ts, reading.event.name) == (12.5, "5")
    for no_event in (b"5", b"null", b"{}", b'{"ph": []}', b'{"ph": null, "name": "x"}'):
        reading = read_event(no_event)
        assert reading is not None
        assert reading.event is None


def test_what_follows_the_last_event_is_no_loss() -> None:
    assert recover(f"{GOOD}\n]}}".encode(), final=True).lost == 0
    assert recover(b" ,\n", final=True).lost == 0
    assert recover(b"", final=True).lost == 0
    assert recover(b"junk", final=True).lost == 1
    assert recover(f"junk, {GOOD}, junk".encode(), final=True).lost == 2


@pytest.mark.parametrize("cut", range(1, len(GOOD)))
def test_a_text_that_is_cut_off_carries_its_last_event(cut: int) -> None:
    text = f"{GOOD}, {GOOD[:cut]}".encode()
    ends = recover(text, final=True)
    assert (len(ends.events), ends.lost, ends.repaired, ends.rest) == (1, 1, 0, len(text))
    goes_on = recover(text, final=False)
    assert len(goes_on.events) == 1
    assert goes_on.rest in (len(GOOD) + 2, len(text))  # the cut may leave no sign of an event
    assert goes_on.lost == (goes_on.rest == len(text))


def test_what_is_left_of_an_event_is_told() -> None:
    found = recover(f'{GOOD}, {{"name": "left", "args": {{"cid": 1}}}} }}, {GOOD}'.encode(), final=True)
    assert (len(found.events), found.lost) == (2, 1)


names = st.text(st.sampled_from('ab"\\,:{}[] \n\t\x00é'), max_size=20)


@given(st.lists(names, max_size=6))
@example(['", "ts": 1}, {"ph": "X'])
@example(["\\"])
def test_raw_names_cost_at_most_their_own_event(raw: list[str]) -> None:
    """Names written without any escaping, between good events."""
    parts = [GOOD]
    for name in raw:
        parts += [f'{{"ph": "X", "cat": "c", "name": "{name}", "ts": 1}}', GOOD]
    found = recover(", ".join(parts).encode(), final=True)
    good = [e for e in found.events if isinstance(e, Slice) and e.name == "good" and e.args.correlation == 5]
    assert len(good) == len(raw) + 1


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes(text: bytes, final: bool) -> None:
    found = recover(text, final)
    assert 0 <= found.rest <= len(text)
    assert found.lost >= 0


def test_header_objects_are_mended() -> None:
    assert read_object(b'{"a": 1, "b": [{"c": NaN}]}') == {"a": 1, "b": [{"c": None}]}
    assert read_object(b'{"host": "caf\xe9", "user": "x\ny"} junk') == {"host": "caf\ufffd", "user": "x\ny"}
    assert read_object(rb'{"path": "C:\Users", "say": "a"b"}') == {"path": "C:\\Users", "say": 'a"b'}
    assert read_object(b"[1]") == read_object(b"") == read_object(b'{"a"') == {}
