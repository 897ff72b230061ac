"""No string of a trace can move, hide or command anything, and units stay with their numbers."""

from __future__ import annotations

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from traceopt.reports.words import safe_text
from traceopt.result.finding import Fix
from traceopt.result.words.message import Message

NB = "\u00a0"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb", "a\\x0ab"),
        ("\u202egnp", "\\u202egnp"),
        ("a\u200bb", "a\\u200bb"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\u3164", "\\u3164"),
        ("é 漢字 µs", "é 漢字 µs"),
        ("412\u00a0ms", "412\u00a0ms"),
    ],
)
def test_invisible_characters_become_escapes(raw: str, shown: str) -> None:
    assert safe_text.clean(raw) == shown


@given(st.text(st.characters(codec=None), max_size=700))
def test_clean_text_is_one_short_printable_line(raw: str) -> None:
    shown = safe_text.clean(raw)
    assert len(shown) <= safe_text.NAME_CAP
    assert all(char.isprintable() or char in "\u00a0\u202f" for char in shown)


def test_source_code_keeps_its_lines() -> None:
    assert safe_text.clean_source("a\tb\r\nc\x1b\n") == "a\tb\nc\\x1b\n"


@pytest.mark.parametrize(
    ("patch", "shown"), [("-a\n+\tb\n", "-a\n+\tb\n"), ("-a\r\n+b\r\n", None), ("+\u202ea\n", None), (None, None)]
)
def test_a_patch_is_shown_as_it_is_or_not_at_all(patch: str | None, shown: str | None) -> None:
    rich = sample.rich()
    findings = [replace(rich.findings[0], fix=Fix("Do it.", "example()", patch))]
    assert safe_text.cleaned(replace(rich, findings=findings)).findings[0].fix == Fix("Do it.", "example()", shown)


def test_sentences_end_before_a_capital() -> None:
    assert safe_text.first_sentence("Call prof.step() in it. Then 5 s. more. Again.") == (
        "Call prof.step() in it.",
        "Then 5 s. more. Again.",
    )
    assert safe_text.first_sentence("No end") == ("No end", "")
    assert safe_text.prose("busy for 97 % of 3 ms") == f"busy for 97% of 3{NB}ms"


def test_units_stay_with_their_numbers() -> None:
    assert safe_text.prose("waits 187 ms of 3 s, 5.1 GB/s") == f"waits 187{NB}ms of 3{NB}s, 5.1{NB}GB/s"


def test_cleaning_changes_texts_only() -> None:
    rich = sample.rich()
    shown = safe_text.cleaned(rich)
    before, after = rich.findings[0], shown.findings[0]
    assert (type(after.why), after.effort, after.saving) == (Message, before.effort, before.saving)
    assert shown.step is rich.step
    hostile = safe_text.cleaned(sample.hostile()).findings[0]
    assert (type(hostile.why), hostile.effort) == (Message, before.effort)


def test_no_string_of_a_cleaned_document_is_hostile() -> None:
    shown = safe_text.cleaned(sample.hostile()).to_json().decode()
    for char in "\x1b\x07\u202e\u200b":
        assert char not in shown
    assert "A" * 2_001 not in shown


def test_a_trace_cannot_command_the_ci_runner() -> None:
    output = safe_text.without_commands(
        "::error::x\n  ::add-mask::y\nvoid at::native\n##[error]z\n## A [x]\n##vso[a]\n"
    )
    assert output == ".:error::x\n  .:add-mask::y\nvoid at::native\n#.[error]z\n## A [x]\n#.vso[a]\n"
