"""TQ007 unsupported-device: analyze a trace from a CUDA or ROCm device."""

from __future__ import annotations

from support.quality import notes, on_a_gpu, outcome, steps

from traceopt.document.rank_document import rank_document
from traceopt.testing import events as small_traces


def test_fires_on_a_device_of_another_vendor() -> None:
    events = [event for event in steps() if event["cat"] != "kernel"]
    found = notes(on_a_gpu([*events, small_traces.span("hpu_op", "gemm", 100, 100)]))
    assert "Gaudi" in found["TQ007"]
    assert "TQ001" not in found


def test_ascend_files_device_work_below_a_process() -> None:
    named = {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "Ascend Hardware"}}
    work = {"ph": "X", "name": "MatMulV2", "pid": 7, "tid": 3, "ts": "150.125", "dur": 90.5, "args": {}}
    host = [event for event in steps() if event["cat"] == "cpu_op"]
    for events in ([named, work], [*host, named, work]):
        facts = on_a_gpu(events, deviceProperties=[])
        assert "Ascend NPU" in notes(facts)["TQ007"]
        assert "TQ001" not in notes(facts)
        assert "Ascend NPU" in (rank_document(facts, outcome(facts)).verdict or "")


def test_gaudi_is_named_though_its_runtime_calls_are_private_use() -> None:
    events = [*steps(), small_traces.span("privateuse1_runtime", "launch", 50, 5)]
    facts = on_a_gpu([*events, small_traces.span("hpu_op", "gemm", 100, 100)])
    assert facts.device.unsupported == "Gaudi (HPU)"


def test_an_operator_of_apples_gpu_names_it() -> None:
    """Its trace has no event of the device, like that of a CPU run."""
    events = [event for event in steps() if event["cat"] == "cpu_op"]
    facts = on_a_gpu([*events, small_traces.op("aten::linear_backward", 100, 5)], deviceProperties=[])
    assert "Apple MPS" in notes(facts)["TQ007"]
    assert "CPU-only" not in (rank_document(facts, outcome(facts)).verdict or "")


def test_silent_on_a_gpu_run() -> None:
    assert "TQ007" not in notes(on_a_gpu([*steps()]))
