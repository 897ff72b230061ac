"""CM008 data-parallel-module: replace DataParallel with DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.findings import found, saving_of
from support.gpu_steps import steps

from traceopt.testing.events import Json, kernel, op, python, runtime


def parallel_step(frames: bool) -> Iterator[Json]:
    """DataParallel on two GPUs: 2 ms of copying before a kernel on each."""
    if frames:
        yield python("torch/nn/parallel/data_parallel.py(158): forward", 100, 5_000)
        yield python("torch/nn/parallel/replicate.py(91): replicate", 200, 2_000)
    else:
        yield op("Broadcast", 200, 2_000)
    for number, device in ((1, 0), (2, 1)):
        yield runtime("cudaLaunchKernel", 2_300 + number, 1, number)
        yield kernel("ampere_sgemm_128x64_tn", 2_310, 500, number, device=device)


class TestDataParallel:
    @pytest.mark.parametrize("frames", [True, False])
    def test_fires(self, frames: bool) -> None:
        (finding,) = found("CM008", steps(list(parallel_step(frames))))
        assert "2 GPUs" in finding.why
        assert saving_of(finding).est_us == pytest.approx(0.95 * 2_000, rel=0.02)

    def test_silent_on_one_gpu_or_ddp(self) -> None:
        one = [event for event in parallel_step(frames=True) if event["args"].get("device") != 1]
        assert found("CM008", steps(one)) == []
        ddp = python("torch/nn/parallel/scatter_gather.py(21): _is_namedtuple", 100, 500)
        both = [event for event in parallel_step(frames=True) if event["cat"] != "python_function"]
        assert found("CM008", steps([*both, ddp])) == []
