"""MM001 memory-headroom: raise the batch size to use free memory."""

from __future__ import annotations

from support.findings import found
from support.jobs import facts_with
from support.traces import GetExample


class TestHeadroom:
    def test_fires_where_launches_starve_the_gpu(self, example: GetExample) -> None:
        (finding,) = found("MM001", example("launch_bound").facts)
        assert finding.saving is None
        assert "of the peak grow with the batch, so memory does not limit it." in finding.why
        assert "100" not in finding.why + finding.fix.text  # a bound of the rule is no measurement
        assert finding.shares_cause_with == ["LB002"]

    def test_silent_on_a_graph_and_on_a_full_device(self, example: GetExample) -> None:
        assert found("MM001", example("launch_bound", fixed=True).facts) == []
        full = facts_with(batch=1, tokens=512, hidden=512, vocabulary=8192, reserved_bytes=30_000_000_000)
        assert found("MM001", full) == []

    def test_the_batch_that_fits(self) -> None:
        """What stays is 16 bytes a parameter and does not grow with the batch."""
        small = {"layers": 12, "hidden": 256, "tokens": 64, "vocabulary": 4096, "batch": 4, "small_ops": 200}
        facts = facts_with(**small, resident_bytes=20_000_000_000)
        (finding,) = found("MM001", facts)
        held = facts.composition
        assert held is not None
        fits = (0.9 * 42_297_524_224 - held.resident) / held.of_the_batch
        assert 20_000_000_000 <= held.resident < 20_010_000_000
        assert (f"about {fits:.2g} times the batch fits" in finding.why) == (fits < 100)
