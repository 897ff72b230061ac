"""CM002 small-collectives: coalesce small collectives into one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from support.collectives import COMMUNICATION, RULES, collective, machine
from support.cpu_steps import Events, silent, the
from support.planted import PlantedFault

from traceopt.rules.catalogue.cm002_small_collectives import IN_ONE_CALL, SmallCollectives
from traceopt.testing import Machine, answer, assert_finds
from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "CM002"


class TestCollectives:
    """CM002 and CM001 with gloo, which runs on a thread of its own."""

    def step(self, calls: int, us: float, elements: int) -> Callable[[float, int], Events]:
        def events(t: float, _: int) -> Events:
            yield build.python("average.py(3): average", t + 4_000, calls * us)
            for index in range(calls):
                begin = t + 4_000 + index * us
                yield build.op("c10d::allreduce_", begin, 2)
                sizes = {"Input Dims": [[elements]], "Input type": ["float"]}
                yield build.annotation("gloo:all_reduce", begin + 3, us - 4, 7, **sizes)

        return events

    def test_a_call_for_each_parameter(self) -> None:
        finding, saved_us, places = the("CM002", self.step(calls=40, us=100, elements=1000))
        assert saved_us == pytest.approx(0.8 * 40 * 96 * (1 - 4 / 40), rel=0.05)
        assert places == ["average.py:3"]
        assert "40 small collectives" in finding.why
        assert the("CM001", self.step(calls=40, us=100, elements=1000))[2] == ["average.py:3"]

    def test_what_remains_is_what_the_bytes_take(self) -> None:
        """Calls on 4 kB take 40 us, and on 404 kB 60 us, so the 8.16 MB of all 40 calls take 408 us and a call. The
        rest goes: it is known what remains.
        """

        def step(t: float, _: int) -> Events:
            for index in range(40):
                begin, elements = t + 4_000 + 100 * index, (1_000, 101_000)[index % 2]
                sizes = {"Input Dims": [[elements]], "Input type": ["float"]}
                yield build.op("c10d::allreduce_", begin, 2)
                yield build.annotation("gloo:all_reduce", begin + 2, (40, 60)[index % 2], 7, **sizes)

        left = (408 + 50) / (40 * 50)  # of the calls
        finding, saved_us, _ = the("CM002", step)
        assert saved_us == pytest.approx((1 - left) * 40 * (50 + 2), rel=0.02)
        assert finding.saving is not None
        assert "removes all of these calls' exposed and host time" in finding.saving.basis
        assert finding.saving.high_us == pytest.approx(39 / 40 * 40 * 50 + (1 - left) * 40 * 2, rel=0.02), (
            "one call left"
        )

    def test_a_long_call_right_after_another_is_no_late_rank(self) -> None:
        """Every tenth call waits 500 us for a core."""

        def step(t: float, _: int) -> Events:
            begin = t + 4_000
            for index in range(40):
                length = 500 if index % 10 == 9 else 50
                yield build.op("c10d::allreduce_", begin, 2)
                yield build.annotation("gloo:all_reduce", begin + 2, length, 7)
                begin += length + 5

        assert the("CM002", step)[1] == pytest.approx(0.8 * (36 * 50 + 4 * 500 + 40 * 2) * (1 - 4 / 40), rel=0.02)

    def test_few_or_large_ones(self) -> None:
        assert silent("CM002", self.step(calls=4, us=1_000, elements=1000))
        assert silent("CM002", self.step(calls=40, us=100, elements=1 << 20))

    def test_the_call_of_a_collective_is_no_compute(self) -> None:
        """The gloo thread takes the core of the thread that calls it, so the call ends with the collective."""

        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 4_000)
            for index in range(40):
                begin = t + 4_000 + index * 100
                yield build.op("c10d::allreduce_", begin, 96)
                yield build.annotation("gloo:all_reduce", begin + 3, 90, 7)

        finding, saved_us, _ = the("CM002", step)
        assert saved_us == pytest.approx(0.8 * 40 * 96 * (1 - 4 / 40), rel=0.01)
        assert "Their calls take 0.24 ms of host time." in finding.why
        assert "overlap" not in finding.why

    def test_the_frame_of_a_call_is_host_time(self) -> None:
        """torch.distributed checks the arguments for 50 us, and wakes up 10 us after the collective has ended."""

        def step(t: float, _: int) -> Events:
            for index in range(40):
                begin = t + 1_000 + 200 * index
                yield build.python("torch/distributed/distributed_c10d.py(2810): all_reduce", begin, 160)
                yield build.op("c10d::allreduce_", begin + 50, 2)
                yield build.annotation("gloo:all_reduce", begin + 52, 98, 7)

        assert the("CM002", step)[1] == pytest.approx(0.8 * 40 * 160 * (1 - 4 / 40), rel=0.02)

    def test_the_wait_for_a_late_rank_has_another_cause(self) -> None:
        def step(t: float, index: int) -> Events:
            yield from self.step(calls=40, us=100, elements=1000)(t, index)
            yield build.annotation("gloo:all_reduce", t + 1_000, 2_500, 7)

        assert the("CM002", step)[1] < 0.8 * (41 * 96 + 300)


class TestCallsOfTheHost:
    def calls(self, count: int, host_us: float, frame: str = "") -> Machine:
        """Many small all-reduces, each of which costs the host more than the GPU."""
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.launch(20_000)
                rank.synchronize()
                for _ in range(count):
                    if frame:
                        with rank.python(frame):
                            self.call(rank, host_us)
                    else:
                        self.call(rank, host_us)
                rank.synchronize()
        return rank

    def call(self, rank: Machine, host_us: float) -> None:
        with rank.annotate("c10d::allreduce_"):
            rank.idle(0.5 * host_us)
            collective(rank, 14, megabytes=0.004)
            rank.idle(0.5 * host_us)

    def test_are_priced(self) -> None:
        """400 calls of 95 us each, of which the collective itself takes 14: the step waits for the host."""
        trace = self.calls(400, host_us=90)
        finding = assert_finds(RULES["CM002"], trace)
        assert finding.saving is not None
        assert 0.7 * 400 * 95 <= finding.saving.est_us <= 400 * 95
        assert "host time that the GPU waits for" in finding.why

    def test_include_the_frame_around_the_operator(self) -> None:
        """The same time, but in torch.distributed's Python."""
        frame = "torch/distributed/distributed_c10d.py(2810): all_reduce"
        rank = self.calls(100, host_us=40, frame=frame)
        (calls,) = rank.facts().collectives
        facts = rank.facts()
        assert {facts.trace.names[facts.slices.name[row]] for row in calls.call} == {frame}

    def test_cost_nothing_while_the_gpu_computes(self) -> None:
        """The host is ahead: 40 calls during 20 ms of compute."""
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.launch(20_000)
                for _ in range(40):
                    self.call(rank, 90)
                rank.synchronize()
        _, findings = answer(RULES["CM002"], rank)
        assert findings == []


@pytest.mark.torch
def test_the_code_reduces_every_tensor_in_place() -> None:
    """Calls without a training have no gradients, but their tensors need the result all the same."""
    import torch

    tensors, before = [torch.ones(2, 3), torch.arange(4.0)], [torch.ones(2, 3), torch.arange(4.0)]
    group = SimpleNamespace(all_reduce=lambda tensor: tensor.mul_(2))  # of two equal ranks
    exec(IN_ONE_CALL, {"torch": torch, "dist": group, "tensors": tensors})  # noqa: S102
    for now, then in zip(tensors, before, strict=True):
        assert torch.equal(now, 2 * then)


def metrics(*, count: int = 40, reads: int = 0, buckets: int = 0) -> Machine:
    """A step that reduces metrics, and reads some of them; and large gradients before, from another line."""
    job = machine()
    for _ in range(5):
        with job.step():
            with job.python("train.py(20): backward"):
                for _ in range(buckets):
                    reduced(job, 400, megabytes=25.0)
            with job.python("train.py(31): reduce"):
                for index in range(count):
                    reduced(job, 30, megabytes=4e-6)
                    if index < reads:
                        job.synchronize(COMMUNICATION)
                        with job.operator("aten::item"), job.operator("aten::_local_scalar_dense"):
                            job.copy_to_host(1)
    return job


def reduced(job: Machine, us: float, megabytes: float) -> None:
    with job.operator("c10d::allreduce_"):
        job.idle(40)
        collective(job, us, megabytes=megabytes)


@pytest.mark.parametrize(("reads", "both"), [(40, True), (1, False)])
def test_results_that_are_read_one_by_one_are_read_together(reads: int, both: bool) -> None:
    finding = assert_finds(SmallCollectives, metrics(reads=reads))
    assert ("the reads of their results" in finding.why) == both
    assert finding.fix.text.startswith("Stack the values") == both


def test_the_saving_includes_the_reads() -> None:
    every, together = metrics(reads=40).facts(), metrics(count=1, reads=1).facts()
    finding = assert_finds(SmallCollectives, metrics(reads=40))
    assert finding.saving is not None
    all_us = (every.step_ns - together.step_ns) / 1e3
    assert finding.saving.est_us == pytest.approx(0.8 * (1 - 4 / 40) * all_us, rel=0.1)  # 4 of 40 calls remain


def test_large_calls_of_another_line_do_not_count() -> None:
    finding = assert_finds(SmallCollectives, metrics(buckets=10))
    assert finding.why.startswith("40 small collectives")
