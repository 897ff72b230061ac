"""CP006 cpu-page-faults: let malloc keep freed memory."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_work import PEAKS, answer, facts, finding, matmul, silent

from traceopt.analyzer.facts import Facts


def page_faults(pages: int = 1_000, **environment: Any) -> Facts:
    """Steps of 10 ms, of which an operator takes 6; a page costs 2 us."""
    ledger = {
        "step_us": [10_000.0] * 20,
        "page_faults": [9_000] + [pages] * 12 + [0] * 7,
        "windows": [{"cycle": "timing", "warmup_from": 5, "from": 8, "until": 12}],
    }
    peaks = PEAKS | {"page_fault_us": 2.0}
    own = {"libc": "glibc"} | environment
    return facts(matmul(100, 6_000), peaks=peaks, environment=own, ledger=ledger, cycle={"name": "timing"})


class TestPageFaults:
    """CP006"""

    def test_fires_at_the_cost_of_the_pages_without_a_promise(self) -> None:
        """How many of them the fix saves differs from run to run."""
        found = finding("CP006", page_faults())
        assert (found.saving, found.confidence) == (None, "low")
        assert "1,000 new pages" in found.why
        assert "together 2.0 ms" in found.why

    @pytest.mark.parametrize(
        "environment",
        [
            {"libc": None},
            {"preloaded_allocator": "libtcmalloc.so.4"},
            {"variables": {"MALLOC_TRIM_THRESHOLD_": "1073741824"}},
        ],
    )
    def test_another_allocator(self, environment: dict[str, Any]) -> None:
        assert silent("CP006", page_faults(**environment))

    def test_silent_on_few_pages(self) -> None:
        assert silent("CP006", page_faults(100))

    def test_without_the_cost_of_a_page_nothing_is_said(self) -> None:
        check, findings = answer("CP006", facts(matmul(100, 6_000), environment={"libc": "glibc"}))
        assert (check.status, findings) == ("not_checked", [])
