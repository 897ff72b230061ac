"""The table of rates that is shipped: made from recordings, or by a sweep, and what it tells of other sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from benchmarks.rates import make
from traceopt.analyzer.rates.known_rates import KnownRates, known_rates
from traceopt.result.experiments import Attention, Experiment, Matmul, Timed
from traceopt.rules.savings.sources import Source

DEVICE = "NVIDIA H100 80GB HBM3"
PRODUCT = Matmul(1024, 1024, 1024, 1, "bf16")
ATTENTION = Attention(8, 16, 1024, 1024, 64, "bf16", causal=True, backward=True)


def test_a_size_takes_the_rate_of_the_most_similar_one() -> None:
    table = KnownRates("gpu", "a test", (Timed(PRODUCT, 1e4), Timed(Matmul(64, 64, 64, 1, "bf16"), 1e4)))
    assert table.ns(PRODUCT) == pytest.approx(1e4)
    assert table.ns(Matmul(2048, 1024, 1024, 1, "bf16")) == pytest.approx(2e4)
    assert table.ns(Matmul(1024, 1024, 1024, 1, "fp16")) is None, "no rate of this type is known"
    assert table.ns(Matmul(1024, 1025, 1024, 1, "bf16")) is None, "misaligned products have other kernels"
    assert table.ns(Matmul(1 << 20, 1 << 20, 8, 1, "bf16")) is None, "nothing similar is known"
    assert KnownRates("gpu", "a test", (Timed(ATTENTION, 1e4),)).ns(PRODUCT) is None


def test_the_table_of_the_recordings_is_shipped_for_their_device_only() -> None:
    table = known_rates(DEVICE)
    assert table is not None
    assert "fixtures/traces/h100" in table.made_from
    paths = make.recordings("fp32_matmul", "fixed")[:1]
    for one in make.recorded(paths).timed:
        assert table.ns(one.experiment) == pytest.approx(one.ns, rel=0.05)
    assert known_rates("NVIDIA H100 PCIe") is None


def test_a_left_out_workload_has_neither_its_recordings_nor_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    works = {"mine": [Timed(PRODUCT, 1e4)], "other": [Timed(PRODUCT, 1e4), Timed(ATTENTION, 1e5)]}
    paths = {name: make.RECORDINGS / name / "plain" / "1.json" for name in works}
    monkeypatch.setattr(make, "recordings", lambda name="*": [paths[name]] if name != "*" else list(paths.values()))
    monkeypatch.setattr(make, "works_of", lambda path: ("gpu", works[path.parts[-3]]))
    assert [one.experiment for one in make.without("mine").timed] == [ATTENTION]


def test_a_sweep_times_what_the_device_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def sweep() -> Iterator[Experiment]:
        yield Matmul(8, 8, 8, 1, "fp32")
        yield Matmul(1 << 30, 8, 1 << 30, 1, "fp32")  # more than any memory

    monkeypatch.setattr(make, "sweep", sweep)
    table = make.measured("cpu")
    assert [(one.experiment, one.ns > 0) for one in table.timed] == [(Matmul(8, 8, 8, 1, "fp32"), True)]


def test_ranges_allow_for_the_error_of_nine_of_ten_sizes() -> None:
    errors = sorted(
        error for of_kind in make.left_out_errors(make.recorded(make.recordings())).values() for error in of_kind
    )
    assert math.ceil(100 * errors[math.ceil(0.9 * len(errors)) - 1]) / 100 == Source.KIND.error


def test_the_error_is_that_without_the_size() -> None:
    table = KnownRates("gpu", "", (Timed(PRODUCT, 1e4), Timed(Matmul(2048, 1024, 1024, 1, "bf16"), 1e4)))
    assert make.left_out_errors(table) == {"matmul in bf16": pytest.approx([0.5, 1.0])}
