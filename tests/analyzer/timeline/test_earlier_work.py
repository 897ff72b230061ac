"""Work from before the recording that the file does not hold, and what follows for the step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.document import sections
from traceopt.testing import Machine
from traceopt.testing.machine import A100, STREAM

EARLIER_US, STEP_US = 400_000, 60 * 1_001


def kernels(machine: Machine) -> None:
    """A step of about 60 ms: the host launches it at once."""
    for _ in range(60):
        machine.launch(1_000, name="ampere_bf16_s16816gemm_128x64_tn")


def queued(machine: Machine) -> None:
    machine.ends[STREAM] = EARLIER_US


def synchronizes(machine: Machine) -> None:
    machine.call("cudaDeviceSynchronize", until=EARLIER_US)


def copies(machine: Machine) -> None:
    """A blocking copy of a few bytes behind a kernel of the same stream, while another stream is free."""
    machine.launch(3, stream=3)
    machine.ends[STREAM] = EARLIER_US
    machine.launch(7)
    machine.call("hipMemcpyWithStream", until=EARLIER_US + 20)


def recording(happens: Callable[[Machine], None], steps: int = 1) -> Facts:
    machine = Machine(A100)
    happens(machine)
    for _ in range(steps):
        with machine.step():
            kernels(machine)
    return machine.facts()


@pytest.mark.parametrize("happens", [queued, synchronizes, copies], ids=lambda one: one.__name__)
@pytest.mark.parametrize("marked", [True, False])
def test_no_step_includes_earlier_work(happens: Callable[[Machine], None], marked: bool) -> None:
    machine = Machine(A100)
    if marked:
        with machine.step():
            happens(machine)
            kernels(machine)
    else:
        happens(machine)
        kernels(machine)
    facts = machine.facts()
    assert facts.earlier_work.total / 1e3 == pytest.approx(EARLIER_US, rel=0.001)
    assert facts.step_ns / 1e3 == pytest.approx(STEP_US, rel=0.01)
    assert facts.gpu.idle.total <= 0.01 * facts.steps.window_ns
    assert facts.syncs.wait.sum() <= 100_000
    assert facts.quality.long_queued_share == 0
    assert facts.replay_error is not None
    assert facts.replay_error.share < 0.01
    assert sum(facts.parts_of(facts.replayed).values()) == pytest.approx(facts.step_ns, rel=0.01)


def test_the_parts_of_the_step_have_no_time_of_earlier_work() -> None:
    machine = Machine(A100)
    with machine.step():
        synchronizes(machine)
        kernels(machine)
    step_us = STEP_US * 1.01
    assert all((part.raw_us_per_step or 0.0) <= step_us for part in sections.breakdown(machine.facts()))


def test_steps_that_ended_during_earlier_work_are_none() -> None:
    machine = Machine(A100)
    machine.ends[STREAM] = EARLIER_US
    for _ in range(4):
        with machine.step():
            kernels(machine)
    facts = machine.facts()
    assert [round(us / 1e3) for us in facts.recorded_steps.duration / 1e3] == [60] * 4


def after_other_work(machine: Machine) -> None:
    """Another stream worked before."""
    machine.launch(20_000, stream=3)
    machine.synchronize()
    machine.ends[STREAM] = EARLIER_US


def copies_much(machine: Machine) -> None:
    """The host copies 40 MB from pageable memory into a staging buffer, before the GPU's copy starts."""
    number = machine.call("cudaMemcpy", 38_000)
    args = {"device": 0, "stream": STREAM, "correlation": number, "bytes": 40_000_000}
    event = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": STREAM}
    machine.events.append(event | {"ts": machine.now - 3_000, "dur": 2_900, "args": args})


def loses_kernels(machine: Machine) -> None:
    """The host waits for a graph whose kernels the profiler did not record."""
    machine.call("cudaGraphLaunch", 20)
    machine.call("cudaDeviceSynchronize", until=EARLIER_US)


def first_launch(machine: Machine) -> None:
    machine.call("cudaLaunchKernel", EARLIER_US)


def works(machine: Machine) -> None:
    machine.work(EARLIER_US)


def works_longer(machine: Machine) -> None:
    """Most of the time before the first kernel, the host had not launched it."""
    machine.work(EARLIER_US)
    machine.ends[STREAM] = 1.5 * EARLIER_US


@pytest.mark.parametrize(
    "happens",
    [after_other_work, copies_much, loses_kernels, first_launch, works, works_longer],
    ids=lambda one: one.__name__,
)
def test_other_waits_show_no_work_from_before(happens: Callable[[Machine], None]) -> None:
    assert not len(recording(happens).earlier_work)
