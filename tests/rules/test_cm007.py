"""CM007 ddp-buffer-broadcast: stop broadcasting buffers every forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.findings import checked, loud, places, saving_of
from support.handmade import handmade

from traceopt.testing import events as build


def broadcast_step(gpu_us: float) -> Callable[[float, int], Iterator[build.Json]]:
    """DDP's forward packs and broadcasts its buffers for 2 ms; the model's kernel follows, of `gpu_us`."""

    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.python("train.py(20): train_step", t + 10, 9_000)
        yield build.annotation("DistributedDataParallel.forward", t + 100, 3_000)
        yield build.op("aten::flatten_dense_tensors", t + 200, 500)
        yield build.op("c10d::broadcast_", t + 800, 200)
        yield build.runtime("cudaLaunchKernel", t + 850, 5, first_id)
        yield build.kernel("ncclDevKernel_Broadcast_RING_LL(x)", t + 860, 50, first_id, stream=20)
        yield build.op("aten::unflatten_dense_tensors", t + 1_200, 1_000)
        yield build.op("aten::mm", t + 2_300, 50)
        yield build.runtime("cudaLaunchKernel", t + 2_310, 5, first_id + 1)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 2_330, gpu_us, first_id + 1)

    return events


def test_fires_at_the_host_time_of_the_broadcast() -> None:
    (finding,) = checked("CM007", handmade(broadcast_step(gpu_us=3_000)))
    saving = saving_of(finding)
    assert saving.est_us == pytest.approx(2_000, rel=0.10)
    assert finding.impact == "high"
    assert "train.py:20" in places(finding)


def test_silent_under_a_busy_gpu() -> None:
    def busy(t: float, first_id: int) -> Iterator[build.Json]:
        yield from broadcast_step(gpu_us=3_000)(t, first_id)
        yield build.runtime("cudaLaunchKernel", t + 20, 5, first_id + 2)
        yield build.kernel("ampere_sgemm_64x64_nn", t + 30, 9_960, first_id + 2, stream=9)

    assert loud(checked("CM007", handmade(busy))) == []
