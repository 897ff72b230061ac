"""RH001 capped-clocks: find out what lowers the clocks of the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.gpu_health import sampled

from traceopt.analyzer.companions.companions import Companions
from traceopt.analyzer.companions.gpu_samples.samples import read_gpu_samples
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.rules.catalogue.rh001_capped_clocks import CappedClocks
from traceopt.testing import answer


def test_fires_on_lowered_clocks(tmp_path: Path) -> None:
    check, findings = answer(CappedClocks, sampled(tmp_path, sm_mhz=1000, reasons=0x40))
    assert check.status == "found"
    assert "runs at 50" in findings[0].why
    assert "temperature (hardware)" in findings[0].why


def test_a_low_power_limit_is_evidence(tmp_path: Path) -> None:
    _, (finding,) = answer(CappedClocks, sampled(tmp_path, sm_mhz=1000, reasons=0x04, power_w=698.0))
    assert "Reason in 100% of the busy samples: power limit." in finding.why
    assert finding.evidence[-1].detail == "698 W, limit 700 W"
    _, (unknown,) = answer(CappedClocks, sampled(tmp_path, sm_mhz=1000, reasons=0x04))
    assert [row.what for row in unknown.evidence] == ["power limit", "Highest temperature"]


def test_a_gpu_of_amd_gets_the_command_of_amd(tmp_path: Path) -> None:
    facts = sampled(tmp_path, sm_mhz=1000, reasons=0x04)
    assert "nvidia-smi" in answer(CappedClocks, facts)[1][0].fix.text
    file = tmp_path / "host.gpu_samples.jsonl"
    file.write_text(file.read_text().replace('"host":', '"source": "amdsmi", "host":', 1))
    known = read_gpu_samples([TraceSource(str(file), None, file.name)], [])
    amd = Facts(facts.trace, companions=replace(Companions(), gpu_samples=known))
    assert "amd-smi" in answer(CappedClocks, amd)[1][0].fix.text


@pytest.mark.parametrize(
    "healthy",
    [
        {},
        {"sm_mhz": 1800, "reasons": 0x04},  # a full GPU at its power limit
        {"sm_mhz": 300, "reasons": 0x01, "use_percent": 0},  # an idle GPU
        {"sm_mhz": None, "reasons": None},
    ],
)
def test_silent_on_clocks_that_are_as_they_should_be(tmp_path: Path, healthy: dict[str, Any]) -> None:
    assert answer(CappedClocks, sampled(tmp_path, **healthy))[0].status == "passed"
