"""The wording rules, and that no string of a trace can move, hide or command anything."""

from __future__ import annotations

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from traceopt.reports.words import quantities
from traceopt.result.finding import Fix

NB = "\u00a0"


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (412_000, "412.0"),
        (187_432, "187.4"),
        (9_960, "10.0"),
        (830, "0.83"),
        (4, "0.0040"),
        (0, "0"),
        (1_234_567, "1,234.6"),
    ],
)
def test_measured_times_keep_one_decimal(us: float, shown: str) -> None:
    assert quantities.ms_number(us) == shown
    assert quantities.ms(us) == f"{shown}{NB}ms"


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (198_000, "200"),
        (150_400, "150"),
        (42_100, "42"),
        (9_960, "10"),
        (4_240, "4.2"),
        (312, "0.31"),
        (0, "0"),
    ],
)
def test_estimates_have_two_significant_digits(us: float, shown: str) -> None:
    assert quantities.estimate_number(us) == shown
    assert quantities.estimate(us) == f"≈{NB}{shown}{NB}ms"


@pytest.mark.parametrize(
    ("us", "saving_us", "shown"),
    [
        (214_000, 198_000, "210"),
        (408_100, 4_200, "408.1"),
        (370_300, 42_000, "370"),
        (1_214_000, 198_000, "1,210"),
    ],
)
def test_time_left_is_as_precise_as_the_saving(us: float, saving_us: float, shown: str) -> None:
    assert quantities.as_precise_as(us, saving_us) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.61, "61%"),
        (0.614, "61%"),
        (1.0, "100%"),
        (0.004, "0.4%"),
        (0.0002, "<0.1%"),
        (0.0, "0%"),
        (0.0099, "1%"),
    ],
)
def test_shares_are_whole_per_cent_without_a_space(share: float, shown: str) -> None:
    assert quantities.percent(share) == shown


def test_none_is_not_recorded_and_never_zero() -> None:
    formats = (
        quantities.ms,
        quantities.ms_number,
        quantities.percent,
        quantities.count,
        quantities.measured,
        quantities.bytes_text,
        quantities.mib_number,
        quantities.where,
    )
    assert {form(None) for form in formats} == {"not recorded"}
    assert quantities.yes_no(None) == "unknown"


def test_counts_and_sizes() -> None:
    assert quantities.count(1202.0) == "1,202"
    assert quantities.count(2.5) == "2.5"
    assert quantities.counted(1, "step") == "1 step"
    assert quantities.counted(12, "step") == "12 steps"
    assert quantities.bytes_text(23.4 * 2**30) == f"23.4{NB}GiB"
    assert quantities.bytes_text(5 * 2**20) == f"5.0{NB}MiB"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::elementwise<4, at::native::Add<float> >(int)", "elementwise<4, Add<float> >"),
        ("void at::native::(anonymous namespace)::layer_norm<float>(int, float const*)", "layer_norm<float>"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("sm80_xmma_gemm_f32", "sm80_xmma_gemm_f32"),
    ],
)
def test_short_kernel_names(name: str, short: str) -> None:
    assert quantities.short_kernel_name(name) == short


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("model/vit.py:57", "model/vit.py:57"),
        ("library/model_hub/huggingface/adapters/pipeline/model.py:40", "…/adapters/pipeline/model.py:40"),
        ("x" * 40 + ".py:7", "…" + "x" * 30 + ".py:7"),
    ],
)
def test_long_paths_keep_their_end(path: str, short: str) -> None:
    assert quantities.short_path(path) == short


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
    assert quantities.clean(raw) == shown


@given(st.text(st.characters(codec=None), max_size=700))
def test_clean_text_is_one_short_printable_line(raw: str) -> None:
    shown = quantities.clean(raw)
    assert len(shown) <= quantities.NAME_CAP
    assert all(char.isprintable() or char in "\u00a0\u202f" for char in shown)


def test_source_code_keeps_its_lines() -> None:
    assert quantities.clean_source("a\tb\r\nc\x1b\n") == "a\tb\nc\\x1b\n"


@pytest.mark.parametrize(
    ("patch", "shown"),
    [("-a\n+\tb\n", "-a\n+\tb\n"), ("-a\r\n+b\r\n", None), ("+\u202ea\n", None), (None, None)],
)
def test_a_patch_is_shown_as_it_is_or_not_at_all(patch: str | None, shown: str | None) -> None:
    rich = sample.rich()
    findings = [replace(rich.findings[0], fix=Fix("Do it.", "example()", patch))]
    assert quantities.cleaned(replace(rich, findings=findings)).findings[0].fix == Fix("Do it.", "example()", shown)


def test_sentences_end_before_a_capital() -> None:
    assert quantities.first_sentence("Call prof.step() in it. Then 5 s. more. Again.") == (
        "Call prof.step() in it.",
        "Then 5 s. more. Again.",
    )
    assert quantities.first_sentence("No end") == ("No end", "")
    assert quantities.prose("busy for 97 % of 3 ms") == f"busy for 97% of 3{NB}ms"


def test_units_do_not_part_from_their_numbers() -> None:
    assert quantities.prose("waits 187 ms of 3 s, 5.1 GB/s") == f"waits 187{NB}ms of 3{NB}s, 5.1{NB}GB/s"


def test_no_string_of_a_cleaned_document_is_hostile() -> None:
    shown = quantities.cleaned(sample.hostile()).to_json().decode()
    for char in "\x1b\x07\u202e\u200b":
        assert char not in shown
    assert "A" * 2_001 not in shown


def test_a_trace_cannot_command_the_ci_runner() -> None:
    output = quantities.without_commands("::error::x\n  ::add-mask::y\nvoid at::native\n##[error]z\n")
    assert output == ".:error::x\n  .:add-mask::y\nvoid at::native\n#.[error]z\n"
