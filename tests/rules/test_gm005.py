"""GM005 skinny-batch: increase the micro-batch size."""

from __future__ import annotations

from support.findings import RULES, found, saving_of
from support.jobs import facts_with

MLP = {"tokens": 1, "hidden": 8192, "layers": 1, "vocabulary": 1024, "small_ops": 0}


class TestSkinnyBatch:
    def test_fires_at_what_the_products_give_back_for_the_same_samples(self) -> None:
        few, many = facts_with(batch=8, **MLP), facts_with(batch=32, **MLP)
        (finding,) = found("GM005", few)
        gain_us = (few.gemms.total_ns - many.gemms.total_ns / 4) / few.steps.count / 1e3
        saving = saving_of(finding)
        assert saving.low_us <= gain_us <= saving.high_us * 1.02
        assert "8 rows or fewer" in finding.why
        assert "model.py:36" in [str(place) for place in finding.locations]

    def test_silent_with_rows_enough(self) -> None:
        assert found("GM005", facts_with(batch=256, **MLP)) == []

    def test_silent_on_a_full_device(self) -> None:
        facts = facts_with(batch=8, reserved_bytes=30_000_000_000, **MLP)
        assert found("GM005", facts) == []
        assert "no room" in (RULES["GM005"].applies(facts) or "")
