"""The one spelling of each quantity, the same for rules (nanoseconds) and reports (microseconds)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.result.finding import impact_of_share
from traceopt.result.words import quantities
from traceopt.result.words.rounding import share as share_of
from traceopt.result.words.rounding import us as us_of_ns

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
    assert quantities.ms_of_us(us) == f"{shown}{NB}ms"


@pytest.mark.parametrize(
    ("us", "shown"),
    [(198_000, "200"), (150_400, "150"), (42_100, "42"), (9_960, "10"), (4_240, "4.2"), (312, "0.31"), (0, "0")],
)
def test_estimates_have_two_significant_digits(us: float, shown: str) -> None:
    assert quantities.estimate_number(us) == shown
    assert quantities.estimate(us) == f"≈{NB}{shown}{NB}ms"


@pytest.mark.parametrize(
    ("us", "saving_us", "shown"),
    [
        (214_000, 198_000, "210 ms"),
        (408_100, 4_200, "408.1 ms"),
        (370_300, 42_000, "370 ms"),
        (1_214_000, 198_000, "1,210 ms"),
        (13_393_200, 204_000, "13.39 s"),  # the same digits as in milliseconds
        (43_425_400, 4_700, "43.4254 s"),
        (9_999_990, 4_700, "10.0000 s"),
        (9_949_000, 1_980_000, "9,900 ms"),
    ],
)
def test_time_left_is_as_precise_as_the_saving(us: float, saving_us: float, shown: str) -> None:
    assert quantities.as_precise_as(us, saving_us) == shown.replace(" ", NB)


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.61, "61%"),
        (0.614, "61%"),
        (1.0, "100%"),
        (0.0996, "10%"),
        (0.0994, "9.9%"),
        (0.05, "5.0%"),
        (0.012, "1.2%"),
        (0.001, "0.1%"),
        (0.0009, "<0.1%"),
        (0.0, "0%"),
        (1e-9, "0%"),  # rounding noise
        (0.994, "99%"),
        (0.9978, "99.8%"),  # only the whole is 100%
        (0.9999, ">99.9%"),
        (0.999999999, "100%"),  # rounding noise
    ],
)
def test_shares_have_one_decimal_below_ten_per_cent(share: float, shown: str) -> None:
    assert quantities.percent(share) == shown


@pytest.mark.parametrize(("share", "shown"), [(0.052, "+5.2%"), (-0.28, "−28%"), (-0.0995, "−10%"), (0.0, "0%")])
def test_changes_have_a_sign(share: float, shown: str) -> None:
    assert quantities.signed_percent(share) == shown


@given(st.floats(0, 1e15))
def test_a_time_reads_the_same_in_a_sentence_and_in_a_table(ns: float) -> None:
    stored_us = us_of_ns(ns)
    assert quantities.ms(ns) == " ".join(quantities.time_parts(stored_us))
    assert quantities.ms_of_us(stored_us) == quantities.ms(ns).replace(" ", NB)


@given(st.floats(0, 1))
def test_a_share_reads_the_same_before_and_after_it_is_stored(part: float) -> None:
    assert quantities.percent(part) == quantities.percent(share_of(part))


@pytest.mark.parametrize(("ns", "shown"), [(95_000, "0.095 ms"), (0, "0 ms"), (4e8, "400.0 ms"), (0.4, "0 ms")])
def test_a_sentence_has_no_microseconds(ns: float, shown: str) -> None:
    assert quantities.ms(ns) == shown


@pytest.mark.parametrize(
    ("us", "measured", "estimated"),
    [
        (41_580_000, "41.6 s", "42 s"),
        (9_999_960, "10.0 s", "10 s"),
        (9_999_900, "9,999.9 ms", "10 s"),
        (9_940_000, "9,940.0 ms", "9,900 ms"),
        (1_234_567_000, "1,234.6 s", "1,200 s"),
    ],
)
def test_times_from_ten_seconds_on_are_in_seconds(us: float, measured: str, estimated: str) -> None:
    assert quantities.ms(us * 1e3) == measured
    assert quantities.ms_of_us(us) == measured.replace(" ", NB)
    assert quantities.estimate(us) == f"≈ {estimated}".replace(" ", NB)
    assert quantities.signed_time(-us) == f"−{measured}"


@pytest.mark.parametrize(
    ("before_us", "after_us", "shown"),
    [
        (412_000, 214_000, "412.0 → 214.0 ms"),
        (43_425_400, 1_350_000, "43.4 s → 1,350.0 ms"),
        (43_425_400, 41_580_000, "43.4 → 41.6 s"),
    ],
)
def test_two_times_have_one_unit_if_it_is_the_same(before_us: float, after_us: float, shown: str) -> None:
    times = map(quantities.ms_of_us, (before_us, after_us))
    assert quantities.from_to(*times).replace(NB, " ") == shown
    assert quantities.from_to("not recorded", f"1.0{NB}ms") == f"not recorded → 1.0{NB}ms"


def test_a_change_of_a_time_has_a_sign() -> None:
    assert quantities.signed_time(620) == "+0.62 ms"
    assert quantities.signed_time(-57_600) == "−57.6 ms"
    assert quantities.signed_time(0) == "0 ms"


def test_rates_are_whole_from_100_on() -> None:
    assert quantities.per_second(312.4, "TFLOP") == "312 TFLOP/s"
    assert quantities.per_second(99.97, "GB") == "100 GB/s"
    assert quantities.per_second(5.14, "GB") == "5.1 GB/s"
    assert quantities.per_second(0.052, "GB") == "0.052 GB/s"


def test_none_is_not_recorded_and_never_zero() -> None:
    formats = (
        quantities.ms_of_us,
        quantities.ms_number,
        quantities.percent,
        quantities.signed_percent,
        quantities.count,
        quantities.measured,
        quantities.rate_number,
        quantities.size,
        quantities.size_text,
        quantities.mebibytes_number,
        quantities.megabytes_number,
    )
    assert {form(None) for form in formats} == {"not recorded"}


def test_counts_and_sizes() -> None:
    assert quantities.count(1202.0) == "1,202"
    assert quantities.count(2.5) == "2.5"
    assert quantities.counted(1, "step") == "1 step"
    assert quantities.counted(12, "step") == "12 steps"
    assert quantities.size_text(23.4 * 2**30) == f"23.4{NB}GiB"
    assert quantities.size_text(5 * 2**20) == f"5.0{NB}MiB"
    assert quantities.size(23.4 * 2**30) == "23.4 GiB"
    assert quantities.megabytes(33_600_000) == "33.6 MB"
    assert quantities.microseconds(2_540) == "2.5 µs"


@given(st.floats(0, 0.2))
def test_the_impact_agrees_with_the_percentage_that_is_printed(share: float) -> None:
    printed = float(quantities.percent(share).strip("<%"))
    assert impact_of_share(share) == ("high" if printed >= 10 else "medium" if printed >= 3 else "low")


def test_ten_per_cent_has_a_high_impact() -> None:
    assert quantities.percent(0.0996) == "10%"
    assert impact_of_share(0.0996) == "high"
