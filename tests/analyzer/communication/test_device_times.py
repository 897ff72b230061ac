"""The GPUs of one process: what each does, and for which other one it waits."""

from __future__ import annotations

import pytest
from support import several_gpus
from support.several_gpus import Node

from traceopt.analyzer.timeline.gpu_work import MOST_DEVICES
from traceopt.testing.events import kernel
from traceopt.testing.machine import facts_of

FACTS = {
    "split": several_gpus.split_model().facts(),
    "split over four": several_gpus.split_model(4, layers=2).facts(),
    "generation": several_gpus.generation().facts(),
    "pipeline": several_gpus.pipeline().facts(),
    "data parallel": several_gpus.data_parallel().facts(),
    "copies": several_gpus.one_works("copies").facts(),
    "different": several_gpus.different_gpus().facts(),
}


@pytest.mark.parametrize("name", FACTS)
def test_the_times_of_each_gpu_add_up_to_the_step(name: str) -> None:
    facts = FACTS[name]
    assert len(facts.device_times) == facts.device.count
    for one in facts.device_times:
        parts = (one.compute, one.communication, one.copies, *one.waits.values(), one.idle)
        assert sum(part.total for part in parts) == facts.steps.window_ns
        assert facts.gpu.busy_by_device[one.device].total <= facts.gpu.busy.total
    assert sum(calls.exposed.sum() for calls in facts.collectives) <= facts.gpu.exposed_communication.total


@pytest.mark.parametrize(
    ("name", "waits_for"),
    [
        ("split", [[1], [0]]),
        ("generation", [[3], [0], [1], [2]]),  # a token comes from the last GPU, through the host, to the first
        ("different", [[1], [0]]),
    ],
)
def test_a_gpu_waits_for_the_one_whose_result_it_needs(name: str, waits_for: list[list[int]]) -> None:
    facts = FACTS[name]
    assert [one.waits_for for one in facts.device_times] == waits_for
    for one in facts.device_times:
        others = facts.gpu.busy.total - facts.gpu.busy_by_device[one.device].total
        assert one.waiting.total > 0.85 * others


def test_a_pipeline_waits_at_its_ends() -> None:
    """Four micro-batches of 1 ms in two stages: each is idle for one of them."""
    first, second = FACTS["pipeline"].device_times
    for one in (first, second):
        assert one.waiting.total / 4e6 == pytest.approx(1.1, abs=0.15)


def test_a_gpu_without_a_launch_does_not_wait() -> None:
    """The host computes between the launches for GPU 1, while GPU 0 works all the time."""
    node = Node()
    for _ in range(3):
        with node.step():
            node.run(0, 4_000)
            node.work(2_000, "aten::sort")
            node.run(1, 500)
            node.synchronize()
    second = node.facts().device_times[1]
    assert second.waiting.total / 3e6 == pytest.approx(1.5, abs=0.1)  # in the sync, after its own work
    assert second.idle.total / 3e6 == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("other", ["", "context"])
def test_a_gpu_without_work_in_the_steps_does_not_count(other: str) -> None:
    facts = several_gpus.one_works(other).facts()
    assert facts.gpu.devices == facts.gpu.computing == (0,)
    assert facts.device_times == []


def test_gpus_that_only_copy_do_not_compute() -> None:
    gpu = FACTS["copies"].gpu
    assert (gpu.devices, gpu.computing) == ((0, 1), (0,))


def test_a_damaged_file_may_name_any_number_of_devices() -> None:
    events = [kernel("gemm", 10 * number, 5, number, device=number) for number in range(3_000)]
    facts = facts_of(events)
    assert len(facts.device_times) == MOST_DEVICES


def test_different_gpus_have_no_figures_in_common() -> None:
    device = FACTS["different"].device
    assert device.name == "NVIDIA A100-SXM4-40GB and Tesla T4"
    assert (device.accelerator, device.memory_bytes, device.compute_capability) == (None, None, None)
    assert "different models" in device.how_to_set()


def test_times_on_gpus_that_work_at_the_same_time_add_up_to_no_more_than_the_step() -> None:
    for facts in FACTS.values():
        gpu = facts.gpu
        assert gpu.step_ns.sum() == pytest.approx(gpu.busy.total, rel=1e-3)
        assert gpu.spent_ns(gpu.is_compute) <= gpu.compute.total + 1
        assert facts.tensor_core_work.kernel_ns <= facts.steps.window_ns
