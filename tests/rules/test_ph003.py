"""PH003 gpus-in-turn: let the GPUs of one process work at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.findings import found, saving_of
from support.planted import PlantedFault
from support.several_gpus import Node, split_model

import traceopt
from traceopt.reports.agent.report import render_agent
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.result.words.quantities import NO_BREAK_SPACE
from traceopt.testing import Machine
from traceopt.testing.machine import A100

NODE = "autograd::engine::evaluate_function: MmBackward0"
STREAMS = 7, 8  # of GPU 0 and GPU 1
GB = 10**9


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


class TestFixBySize:
    @pytest.mark.parametrize(
        ("held", "trains", "fix"),
        [
            ((6 * GB, 5 * GB), True, "The model fits on one GPU: train a copy on each with DistributedDataParallel."),
            ((30 * GB, 25 * GB), True, "Shard the model with FSDP"),
            ((6 * GB, 5 * GB), False, "The model fits on one GPU: load it there."),
            ((30 * GB, 25 * GB), False, "Use tensor parallelism"),
            ((), True, "If the model fits on one GPU, train a copy on each"),
        ],
    )
    def test_names_what_fits(self, held: tuple[int, ...], trains: bool, fix: str) -> None:
        (finding,) = found("PH003", split_model(trains=trains, held=held).facts())
        assert finding.fix.text.startswith(fix)
        assert ("Together the GPUs hold" in finding.fix.text) == bool(held)


def test_no_price_if_the_host_could_not_launch_micro_batches() -> None:
    node = Node()
    for _ in range(4):
        with node.step():
            for number in range(8):
                node.work(600, NODE)
                node.run(number % 2, 500)
            node.synchronize()
    (finding,) = found("PH003", node.facts())
    assert finding.saving is None
    assert "Micro-batches would wait for the host" in finding.why


class TestAllDevicesCount:
    def test_in_every_report(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.json"
        path.write_bytes(run().to_bytes())
        result = traceopt.analyze(str(path))
        assert result.run.device is not None
        assert result.run.device.used == 2
        assert result.verdict.startswith("GPU-bound: 2 GPUs take turns, and one of them is busy for 99")
        assert result.timeline is not None
        lanes = [(lane.name, lane.detail) for lane in result.timeline.lanes][1:]
        assert lanes == [("GPU 0 compute", "stream 7"), ("GPU 1 compute", "stream 8")]
        spans = [(lane.name, lane.detail) for lane in result.timeline.table.lanes if lane.kind == "stream"]
        assert spans == lanes
        said = "GPU 0: busy 49% of the step, waits 1.8 ms for GPU 1"
        texts = (
            render_terminal(result, width=80, color=False, unicode=True),
            render_markdown(result),
            render_agent(result),
        )
        assert all(said in text.replace(NO_BREAK_SPACE, " ") for text in texts)
        assert "GPUs of the process" in render_html(result)

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
