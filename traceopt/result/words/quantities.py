"""Quantities as text: the one spelling of durations, shares, counts, sizes and rates, for rules and for reports.

Rules hold nanoseconds and write sentences: `ms`, `percent`, `times`, `size`, `megabytes`, `per_second`. Reports print
the microseconds of the document: `ms_of_us`, and `..._number` functions for columns with the unit in the heading.
All of them spell the same digits, so a number in a sentence is the number in the table:

    measured time   milliseconds: one decimal, two significant digits below 1 ms     187.4 ms, 0.095 ms
    estimated time  milliseconds: two significant digits                             ≈ 190 ms
    long time       seconds from 10 s on, except where a heading has the unit        43.4 s, ≈ 42 s
    plan            as many decimals as three digits of its whole saving have,       26 ms of 198 ms
                    and more if its smallest row needs them
                    in seconds if the step is                                        4.72 s of 16.2 s
    share           per cent: one decimal below 10%, and where it would read 100%    34%, 1.2%, <0.1%, 99.8%
    memory          GiB, or MiB below 0.1 GiB; rounded like a measured time          23.4 GiB, 5.0 MiB
    data moved      MB, because rates are in GB/s; rounded like a measured time      33.6 MB
    rate            whole from 100 on, below rounded like a measured time            312 TFLOP/s, 5.1 GB/s
    count           whole numbers plain, others rounded like a measured time         1,202, 2.5

What was not measured reads "not recorded", never 0.
"""

from __future__ import annotations

import math

from traceopt.result.words.rounding import SHARE_DECIMALS, shown_percent
from traceopt.result.words.rounding import us as us_of_ns

NO_BREAK_SPACE = "\u00a0"
NOT_RECORDED = "not recorded"

LONG_MS = 10_000  # times read as seconds from here on
LEAST_TFLOPS = 0.1  # lower rates read as GFLOP/s

_GIB = 1 << 30
_MIB = 1 << 20


# Sentences of rules: a plain space before the unit, because the document is read by programs too.


def ms(ns: float) -> str:
    """Nanoseconds as a measured time: "12.3 ms", "0.095 ms", and "43.4 s" from 10 s on."""
    return " ".join(time_parts(us_of_ns(ns)))


def microseconds(ns: float) -> str:
    """The time of a single call, as the table of kernels gives it: "2.5 µs"."""
    return f"{measured(us_of_ns(ns))} µs"


def seconds(ns: float) -> str:
    """The time of a part of the run: "0.52 s", "12.3 s", "140 s"."""
    return seconds_of_us(us_of_ns(ns))


def size(number: float | None) -> str:
    """Bytes of memory: "23.4 GiB", "5.0 MiB"."""
    return NOT_RECORDED if number is None else " ".join(size_parts(number))


def megabytes(number: float) -> str:
    """Bytes that were moved: "33.6 MB"."""
    return f"{megabytes_number(number)} MB"


def per_second(value: float, unit: str) -> str:
    """A rate in `unit` per second: "5.1 GB/s", "312 TFLOP/s"."""
    return f"{rate_number(value)} {unit}/s"


def dollars(value: float) -> str:
    """ "$0.012", "$3.40", "$1,250"."""
    return f"${two_digits(value)}" if value < 1 else f"${value:,.2f}" if value < 1_000 else f"${value:,.0f}"


def flop_rate(tflops: float) -> str:
    """A rate of arithmetic: "312 TFLOP/s", "4.0 GFLOP/s"."""
    return per_second(tflops, "TFLOP") if tflops >= LEAST_TFLOPS else per_second(tflops * 1e3, "GFLOP")


# Both sentences and reports.


def percent(share: float | None) -> str:
    """A share of 0..1: "34%", below ten per cent with one decimal, "<0.1%". Only the whole is "100%"."""
    if share is None:
        return NOT_RECORDED
    if 0 < round(share, SHARE_DECIMALS) * 100 < 0.1:
        return "<0.1%"
    value = shown_percent(share)
    if value == 100 and round(share, SHARE_DECIMALS) < 1:
        exact = round(share, SHARE_DECIMALS) * 100
        return ">99.9%" if exact >= 99.95 else f"{exact:.1f}%"
    return f"{value:.0f}%" if value == 0 or abs(value) >= 10 else f"{value:.1f}%"


def signed_percent(share: float | None) -> str:
    """A change: "+5.2%", "−28%"."""
    if share is None:
        return NOT_RECORDED
    value = share * 100
    if abs(value) < 0.05:
        return "0%"
    return f"{value:+.0f}%".replace("-", "−") if abs(value) >= 9.95 else f"{value:+.1f}%".replace("-", "−")


def count(value: float | None) -> str:
    """Calls per step and the like: whole numbers plain, others with one decimal."""
    if value is None:
        return NOT_RECORDED
    return f"{round(value):,}" if abs(value - round(value)) < 0.05 else measured(value)


def counted(number: int, noun: str) -> str:
    """ "1 step", "12 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def in_sentence(label: str) -> str:
    """A label inside a sentence: "waiting for data"; "CPU operators" and "Python without launches" stay."""
    lowered = label[1:2].islower() and not label.startswith("Python")
    return f"{label[:1].lower()}{label[1:]}" if lowered else label


def peak_caveat(source: str | None, verified: bool | None) -> str:
    """What to add to a share of a peak: "peak unverified", "peak from your settings", or nothing."""
    if verified is False:
        return "peak unverified"
    return f"peak from {source}" if source and verified is None else ""


# Reports: a no-break space before the unit.


def ms_of_us(us: float | None) -> str:
    """Microseconds as a measured time: milliseconds, and seconds from 10 s on."""
    return NOT_RECORDED if us is None else NO_BREAK_SPACE.join(time_parts(us))


def time_parts(us: float) -> tuple[str, str]:
    """Microseconds as a measured time, the number and its unit: "187.4" and "ms", "43.4" and "s"."""
    return (seconds_number(us), "s") if round(us / 1e3, 1) >= LONG_MS else (ms_number(us), "ms")


def from_to(before: str, after: str, between: str = " → ") -> str:
    """Two times, with the unit once if it is the same: "412.0 → 214 ms", "43.4 s → 1,350 ms", "110–190 ms"."""
    number, _, unit = before.rpartition(NO_BREAK_SPACE)
    return f"{number if number and after.endswith(NO_BREAK_SPACE + unit) else before}{between}{after}"


def seconds_of_us(us: float) -> str:
    return f"{seconds_number(us)} s"


def seconds_number(us: float) -> str:
    """ "0.52", "12.3", "140"."""
    return ms_number(us / 1e3)


def ms_number(us: float | None) -> str:
    """Microseconds as a measured number of milliseconds, without the unit (for columns headed "ms")."""
    return NOT_RECORDED if us is None else measured(us / 1_000)


def signed_ms_number(us: float) -> str:
    """A change of a measured time in milliseconds, without the unit: "+0.62", "−57.6", "0"."""
    number = ms_number(abs(us))
    return number if number == "0" else f"{'−' if us < 0 else '+'}{number}"


def signed_time(us: float) -> str:
    """A change of a measured time: "+0.62 ms", "−57.6 ms", "+12.3 s"."""
    number, unit = time_parts(abs(us))
    return f"{'' if number == '0' else '−' if us < 0 else '+'}{number} {unit}"


def estimate(us: float) -> str:
    """Microseconds as an estimated time: "≈ 150 ms"."""
    return f"≈{NO_BREAK_SPACE}{estimated(us)}"


def estimated(us: float) -> str:
    """The same in a column or sentence that says that it is an estimate: "150 ms", "42 s"."""
    return NO_BREAK_SPACE.join(_estimate_parts(us))


def _estimate_parts(us: float) -> tuple[str, str]:
    long = us >= 1e6 and round(us / 1e3, decimals_of(us / 1e3)) >= LONG_MS
    return (two_digits(us / 1e6), "s") if long else (estimate_number(us), "ms")


def estimate_number(us: float) -> str:
    """Microseconds as an estimated number of milliseconds."""
    return two_digits(us / 1_000)


def estimate_range(low_us: float, high_us: float) -> str:
    """ "110–190 ms"; "25 ms" if both ends look the same."""
    low, high = estimated(low_us), estimated(high_us)
    return high if low == high else from_to(low, high, "–")


def as_precise_as(us: float, reference_us: float) -> str:
    """A time, rounded where the two digits of `reference_us` end: after a saving of 198 ms, 214 ms is "210 ms"."""
    value, reference = us / 1_000, reference_us / 1_000
    if value <= 0 or reference <= 0:
        return estimated(us)
    return with_decimals(us, min(decimals_of(reference), max(1, decimals_of(value))))


def with_decimals(us: float, decimals: int, whole_us: float = 0.0) -> str:
    """A time with as many decimals of a millisecond; less than half of the last one has two digits.

    In seconds also if it is a part of `whole_us`, which is: 4.72 s of 16.2 s.
    """
    rounded = round(us / 1_000, decimals)
    if rounded <= 0:
        return estimated(us)
    if max(rounded, round(whole_us / 1e3, 1)) >= LONG_MS:
        return f"{_grouped(rounded / 1e3, decimals + 3)}{NO_BREAK_SPACE}s"
    return f"{_grouped(rounded, decimals)}{NO_BREAK_SPACE}ms"


def size_parts(number: float) -> tuple[str, str]:
    """Bytes of memory as a number and its unit, GiB or MiB."""
    return (measured(number / _GIB), "GiB") if number >= _GIB / 10 else (measured(number / _MIB), "MiB")


def size_text(number: float | None) -> str:
    """Bytes of memory, the unit behind a no-break space."""
    return NOT_RECORDED if number is None else NO_BREAK_SPACE.join(size_parts(number))


def size_like(number: float, largest: float) -> str:
    """Bytes of memory in the unit that suits the largest of a table, so that all rows have the same: "0.04 GiB"."""
    divisor, unit = (_GIB, "GiB") if largest >= _GIB else (_MIB, "MiB")
    value = number / divisor
    return f"{'<0.01' if 0 < value < 0.01 else measured(value)} {unit}"


def mebibytes_number(number: float | None) -> str:
    """Bytes of memory or of a file as a number of MiB, without the unit."""
    return NOT_RECORDED if number is None else measured(number / _MIB)


def megabytes_number(number: float | None) -> str:
    """Bytes that were moved as a number of MB, without the unit."""
    return NOT_RECORDED if number is None else measured(number / 1e6)


def rate_number(value: float | None) -> str:
    """A rate without its unit."""
    if value is None:
        return NOT_RECORDED
    return f"{value:,.0f}" if value >= 99.95 else measured(value)


def measured(value: float | None) -> str:
    """One decimal, or two significant digits below 1; nothing at all is 0."""
    if value is None:
        return NOT_RECORDED
    if value == 0:
        return "0"
    return two_digits(value) if 0 < value < 1 else _grouped(value, 1)


def two_digits(value: float) -> str:
    """`value` >= 0 to two significant digits: 198 -> "200", 4.24 -> "4.2"."""
    if value <= 0:
        return "0"
    decimals = decimals_of(value)
    return _grouped(round(value, decimals), decimals)


def decimals_of(value: float, digits: int = 2) -> int:
    """Decimals that leave so many significant digits of `value` > 0; negative for large numbers."""
    decimals = digits - 1 - math.floor(math.log10(value))
    rounded = round(value, decimals)  # 9.96 becomes 10, which has a digit more
    return digits - 1 - math.floor(math.log10(rounded))


def _grouped(value: float, decimals: int) -> str:
    return f"{value:,.{max(0, decimals)}f}"
