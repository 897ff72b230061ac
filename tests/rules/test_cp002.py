"""CP002 unused-cores: use all cores for operators."""

from __future__ import annotations

import pytest
from support.cpu_work import BF16, PEAKS, facts, finding, matmul, silent

from traceopt.testing import events as build


class TestCores:
    """CP002."""

    ALL = PEAKS | {"all_threads": 16, "matmul_all_threads_gflops_per_s": 1_500.0}

    def test_fires_on_one_thread_for_many_cores(self) -> None:
        found = finding("CP002", facts(matmul(100, 5_000), peaks=self.ALL, environment={"cpu_count": 16}))
        assert found.saving is not None
        assert found.saving.high_us == pytest.approx(5_000 * 2 / 3, rel=0.01)
        assert found.fix.code == "export OMP_NUM_THREADS=16"

    def test_without_a_measurement_nothing_is_promised(self) -> None:
        assert finding("CP002", facts(matmul(100, 5_000), environment={"cpu_count": 16})).saving is None

    def test_silent_on_a_thread_for_each_physical_core(self) -> None:
        two_a_core = BF16 | {"threads_per_core": 2}
        assert silent("CP002", facts(matmul(100, 5_000), cpu=two_a_core, environment={"cpu_count": 8}))
        assert silent("CP002", facts(matmul(100, 5_000), cpu={}, environment={"cpu_count": 8}))

    def test_workers_need_cores_too(self) -> None:
        loaders = [{"num_workers": 9, "batches": 10}]
        assert silent("CP002", facts(matmul(100, 5_000), environment={"cpu_count": 16}, loaders=loaders))

    def test_ranks_share_the_cores(self) -> None:
        assert silent("CP002", facts(matmul(100, 5_000), environment={"cpu_count": 16, "local_world_size": 4}))

    def test_all_cores_that_are_no_faster(self) -> None:
        peaks = PEAKS | {"all_threads": 16, "matmul_all_threads_gflops_per_s": 510.0}
        assert silent("CP002", facts(matmul(100, 5_000), peaks=peaks, environment={"cpu_count": 16}))


def test_all_operators_on_large_tensors_use_threads() -> None:
    """But not the views, small tensors and random numbers beside them."""
    operators = [
        build.op(name, 100 + 1_500 * index, 1_000, **{"Input Dims": [[rows, 512]], "Input type": ["float"]})
        for index, (name, rows) in enumerate(
            [("aten::gelu", 512), ("aten::layer_norm", 512), ("aten::gelu", 8), ("aten::normal_", 512)]
        )
    ]
    found = finding("CP002", facts(*operators, peaks=TestCores.ALL, environment={"cpu_count": 16}))
    assert "Operators on large tensors take 2.0 ms of each 10.0 ms step" in found.why
    assert found.saving is not None
    assert found.saving.high_us == pytest.approx(2_000 * 2 / 3, rel=0.01)
