"""MM002 memory-pressure: reduce peak device memory before it runs out."""

from __future__ import annotations

from statistics import median

import pytest
from support.findings import RULES, found, saving_of
from support.step_lengths import steps_of
from support.traces import GetExample

from traceopt.result.words.message import plain


class TestMemoryPressure:
    def test_fires(self, example: GetExample) -> None:
        subject = example("memory_pressure")
        (finding,) = found("MM002", subject.facts)
        saving = saving_of(finding)
        cost = median(subject.planted.step_us) - median(subject.planted.fixed_step_us)
        assert saving.low_us <= cost <= 1.01 * saving.high_us
        assert "1 allocation fails" in finding.why
        assert subject.planted.site in [str(location) for location in finding.locations]
        assert "checkpointing" in finding.fix.text

    def test_silent_on_the_fixed_twin(self, example: GetExample) -> None:
        facts = example("memory_pressure", fixed=True).facts
        assert found("MM002", facts) == []
        assert "GiB of 39.4 GiB" in plain(RULES["MM002"].passed(facts))

    @pytest.mark.parametrize(("share", "fires"), [(0.95, True), (0.85, False)])
    def test_a_full_device_without_retries_carries_no_saving(self, share: float, fires: bool) -> None:
        total = int(share * 42_297_524_224)
        sample = {
            "Total Allocated": total // 2,
            "Total Reserved": total,
            "Bytes": 512,
            "Device Type": 1,
            "Device Id": 0,
        }
        mark = {"ph": "i", "s": "t", "name": "[memory]", "pid": 100, "tid": 1, "ts": 500, "args": sample}
        findings = found("MM002", steps_of([10_000.0] * 3, extra=[mark]))
        assert len(findings) == fires
        assert all(finding.saving is None and finding.impact == "info" for finding in findings)


@pytest.mark.parametrize("scenario", ["healthy", "hidden_host_work", "cuda_graph", "slow_loader", "cold_start"])
def test_silent_without_its_fault(example: GetExample, scenario: str) -> None:
    assert found("MM002", example(scenario).facts) == []
