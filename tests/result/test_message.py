"""Messages: plain English for people, and typed slots for the program."""

from __future__ import annotations

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.result.encoding.serialization import to_json
from traceopt.result.finding import Evidence, Finding, Fix
from traceopt.result.words.message import (
    CUDA_GRAPH,
    NCCL,
    SERVING_ENGINES,
    TENSOR_CORE,
    Message,
    Slot,
    encoded,
    ms,
    named,
    percent,
    plain,
    pseudo_locale,
    step_time,
)

WAITS = (
    f"The GPU waits {ms(8_000_000)} of each {step_time(43_000_000)} step ({percent(0.186)}) for {named('aten::mm')}."
)


def test_a_message_reads_as_plain_english() -> None:
    assert Message(WAITS) == "The GPU waits 8.0 ms of each 43.0 ms step (19%) for aten::mm."
    assert plain(WAITS) == Message(WAITS)
    assert plain("no slots") == "no slots"


def test_the_parts_say_what_the_message_speaks_of() -> None:
    slots = [part for part in Message(WAITS).parts if isinstance(part, Slot)]
    assert slots == [
        Slot("time", 8e6, "8.0 ms"),
        Slot("step", 43e6, "43.0 ms"),
        Slot("share", 0.186, "19%"),
        Slot("name", "aten::mm", "aten::mm"),
    ]


def test_messages_are_joined_with_their_slots() -> None:
    joined = "First. " + Message(WAITS) + f" Then {ms(1e6)}."
    assert [part.text for part in joined.parts if isinstance(part, Slot)] == [
        "8.0 ms", "43.0 ms", "19%", "aten::mm", "1.0 ms",
    ]  # fmt: skip
    assert Message(f"Inside: {named(WAITS)}") == f"Inside: {plain(WAITS)}"


@pytest.mark.parametrize(
    ("source", "on_amd"),
    [
        (f"Pad matmul dimensions for {TENSOR_CORE}s", "Pad matmul dimensions for Matrix Cores"),
        (f"Replay the step as a {CUDA_GRAPH}", "Replay the step as a HIP graph"),
        (f"Limit {NCCL}'s channels.", "Limit RCCL's channels."),
        (f"Serve it with {SERVING_ENGINES}.", "Serve it with vLLM, TGI, SGLang or llama.cpp."),
        (f"The kernel {named('CUDA graph')}", "The kernel CUDA graph"),
    ],
)
def test_terms_follow_the_vendor_and_names_do_not(source: str, on_amd: str) -> None:
    message = Message(source)
    assert message.for_vendor("amd") == on_amd
    assert message.for_vendor("amd").for_vendor("nvidia") == message
    assert [message.for_vendor(vendor) for vendor in ("nvidia", "cpu", "other", None)] == [message] * 4


def test_a_finding_and_all_in_it_speak_the_vendors_words() -> None:
    rows = [Evidence(f"Runs without {TENSOR_CORE}s")]
    fix = Fix(f"Use {TENSOR_CORE}s.")
    finding = Finding("TC001", "fp32-matmul", "t", "low", "high", "e", "r", None, "why", rows, [], fix)  # type: ignore[arg-type]
    on_amd = finding.for_vendor("amd")
    assert (on_amd.evidence[0].what, on_amd.fix.text) == ("Runs without Matrix Cores", "Use Matrix Cores.")


def test_slots_reach_another_process_and_json_has_plain_text() -> None:
    row = Evidence(WAITS, detail=f"{ms(1e6)} each")
    packed = msgspec.msgpack.encode(row, enc_hook=encoded)
    assert Message(msgspec.msgpack.decode(packed, type=Evidence).what).parts == Message(WAITS).parts
    assert pickle.loads(pickle.dumps(row)) == row  # noqa: S301 - our own
    assert msgspec.json.decode(to_json(row))["what"] == plain(WAITS)


def test_another_locale_changes_words_and_nothing_else() -> None:
    with pseudo_locale(str.upper):
        message = Message(WAITS + CUDA_GRAPH)
    assert message == "THE GPU WAITS 8.0 ms OF EACH 43.0 ms STEP (19%) FOR aten::mm.CUDA GRAPH"
    assert [part for part in message.parts if isinstance(part, Slot)][:-1] == [
        part for part in Message(WAITS).parts if isinstance(part, Slot)
    ]


@given(st.text(alphabet="\ue000\ue001\ue002abtime1. ", max_size=40))
def test_a_name_cannot_make_slots(text: str) -> None:
    """The characters around slots, in a name of a hostile trace."""
    message = Message(f"before {named(text)} after")
    slots = [part for part in message.parts if isinstance(part, Slot)]
    assert [slot.kind for slot in slots] == ["name"]
    assert not set("\ue000\ue001\ue002") & set(message)
    assert not set("\ue000\ue001\ue002") & set(Message(text))
