"""PH003 gpus-in-turn: let the GPUs of one process work at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.findings import found, saving_of
from support.planted import PlantedFault

import traceopt
from traceopt.testing import Machine
from traceopt.testing.machine import A100

NODE = "autograd::engine::evaluate_function: MmBackward0"
STREAMS = 7, 8  # of GPU 0 and GPU 1


def run(*, turns: bool = True, trains: bool = True, second_us: float = 900, call: str = "aten::linear") -> Machine:
    """Each step runs four kernels on two GPUs, and waits for them."""
    machine = Machine(A100, with_stack=1)
    for _ in range(4):
        with machine.step(), machine.python("model.py(7): forward"):
            machine.work(20, NODE if trains else "aten::linear")
            machine.work(20, call)
            for number in range(4):
                device = number % 2
                after = max(machine.ends.values(), default=0.0) if turns else 0.0
                machine.launch((900, second_us)[device], STREAMS[device], after=after, device=device)
            machine.synchronize()
    return machine


class TestPlanted(PlantedFault):
    code = "PH003"


class TestGpusInTurn:
    def test_fires_with_the_saving_of_a_pipeline(self) -> None:
        """Two GPUs with 1.8 ms each: four micro-batches take (3.6 + 3 * 1.8) / 4 = 2.25 ms."""
        (finding,) = found("PH003", run().facts())
        assert "One of 2 GPUs works at a time" in finding.why
        saving = saving_of(finding)
        assert (saving.low_us, saving.est_us, saving.high_us) == pytest.approx((900, 1_350, 1_800), rel=0.05)
        assert [str(place) for place in finding.locations] == ["model.py:7"]

    def test_inference_has_no_price(self) -> None:
        (finding,) = found("PH003", run(trains=False).facts())
        assert finding.saving is None
        assert "tensor parallelism" in finding.fix.text

    def test_silent_where_both_work_at_the_same_time(self) -> None:
        assert found("PH003", run(turns=False).facts()) == []

    def test_silent_where_the_other_does_next_to_nothing(self) -> None:
        assert found("PH003", run(second_us=20).facts()) == []

    def test_silent_on_data_parallel(self) -> None:
        assert found("PH003", run(call="Broadcast").facts()) == []


class TestAllDevicesCount:
    def test_as_work_in_the_verdict_and_as_lanes(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.json"
        path.write_bytes(run().to_bytes())
        result = traceopt.analyze(str(path))
        assert result.run.device is not None
        assert result.run.device.used == 2
        assert result.verdict.startswith("GPU-bound: 2 GPUs take turns, and one of them is busy for 99")
        assert result.timeline is not None
        streams = {lane.detail for lane in result.timeline.lanes} - {"thread 1"}
        assert streams == {"GPU 0, stream 7", "GPU 1, stream 8"}

    def test_none_of_them_is_idle_while_another_works(self) -> None:
        gpu = run(turns=False).facts().gpu
        assert gpu.devices == (0, 1)
        assert gpu.idle.total < 0.03 * gpu.window.total

    def test_streams_of_two_devices_may_have_one_number(self) -> None:
        events = run(turns=False).events
        for event in events:
            event["args"] = {name: 7 if name == "stream" else value for name, value in event["args"].items()}
        both = Machine(A100)
        both.events = events
        assert found("TQ006", both.facts()) == []
        queues = both.facts().gpu.work.queue
        assert len(set(queues.tolist())) == 2
        assert both.facts().replay_trusted
