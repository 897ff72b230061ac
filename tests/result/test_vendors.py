"""One row for each vendor of accelerators."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from traceopt.result.words.vendors import (
    AMD,
    NVIDIA,
    OTHER,
    VENDORS,
    Term,
    Vendor,
    device_name,
    vendor_called,
    vendor_of,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
def test_a_vendor_is_found_by_its_key_and_by_what_a_trace_says(vendor: Vendor) -> None:
    assert vendor_called(vendor.key) is vendor
    assert device_name(None, vendor.key) == f"{vendor.name} GPU"
    if vendor is not NVIDIA:  # the one that is assumed if nothing tells
        assert vendor_of([f"{vendor.call_prefix}LaunchKernel"], "") is vendor
        assert all(vendor_of([], f"Some {word.upper()} 9000") is vendor for word in vendor.device_words)


def test_what_is_not_known_is_not_taken_for_a_vendor() -> None:
    assert vendor_called("other") is vendor_called(None) is vendor_called("graphcore") is OTHER
    assert vendor_of(["cudaLaunchKernel"], "") is vendor_of([], "") is NVIDIA
    assert (device_name("GB10", "nvidia"), device_name(None, "cpu")) == ("GB10", "CPU")


def test_each_term_has_a_word_in_the_language_of_each_vendor() -> None:
    assert [NVIDIA.word(term) for term in Term] == [term.value for term in Term]
    assert set(AMD.words) == set(Term)
    assert all(AMD.word(term) != term.value for term in Term)


def test_no_rule_and_no_report_asks_which_vendor_it_is() -> None:
    """What differs between vendors is in their rows."""
    keys = "|".join(vendor.key for vendor in VENDORS)
    asking = re.compile(
        rf"""["\']({keys})["\']|^from traceopt\.result\.words\.vendors import .*\b({keys.upper()})\b""", re.MULTILINE
    )
    files = (file for folder in ("rules", "reports") for file in (ROOT / folder).rglob("*.py"))
    assert [str(file) for file in files if asking.search(file.read_text(encoding="utf-8"))] == []
