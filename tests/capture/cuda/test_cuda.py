"""What only a GPU shows: who else uses CUPTI, MIG, several GPUs, CUDA graphs, an exit while work is queued."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from typing import Any

import pytest
from runs import Run, Trace

TRAINING = "../cuda/training.py"


@functools.cache
def listed() -> str:
    """What `nvidia-smi -L` prints: a line for each GPU, and below it one for each of its MIG devices."""
    if shutil.which("nvidia-smi") is None:
        return ""
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


@functools.cache
def usable_gpus() -> int:
    """Of the torch that is installed, which is imported only if there is a GPU."""
    if not listed():
        return 0
    import torch

    return torch.cuda.device_count()


IS_MIG = bool(re.search(r"^\s+MIG ", listed(), re.MULTILINE))
needs_gpu = pytest.mark.skipif(usable_gpus() < 1, reason="no CUDA device, or a torch without CUDA")
needs_two = pytest.mark.skipif(usable_gpus() < 2, reason="needs two CUDA devices")
needs_mig = pytest.mark.skipif(not IS_MIG or usable_gpus() < 1, reason="no MIG device")


def kernels(trace: Trace) -> list[dict[str, Any]]:
    return [event for event in trace.document["traceEvents"] if event.get("cat") == "kernel"]


def kernels_by_step(trace: Trace) -> dict[int, int]:
    """Kernels that were launched in each complete step; CUDA graphs launch many at once."""
    events = trace.document["traceEvents"]
    launches = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    started = [launches.get(kernel["args"]["correlation"], kernel["ts"]) for kernel in kernels(trace)]
    ranges = {e["name"]: e for e in events if e.get("cat") == "user_annotation" and e["ph"] == "X"}
    steps = {number: ranges[f"ProfilerStep#{number}"] for number in trace.steps}
    return {
        number: sum(step["ts"] <= start < step["ts"] + step["dur"] for start in started)
        for number, step in steps.items()
    }


def check_recorded(run: Run, bare: Run, rule: str = "loader") -> None:
    assert bare.code == 0, bare.stderr
    assert run.code == 0, run.stderr
    assert run.stdout.startswith(bare.stdout)
    assert [list(trace.steps) for trace in run.traces] == [[8, 9, 10, 11, 12], [17, 18]]
    assert {trace.metadata["step_rule"] for trace in run.traces} == {rule}


@needs_gpu
@pytest.mark.run(TRAINING, "plain")
def test_both_cycles_have_the_kernels_of_every_step(run: Run, bare: Run) -> None:
    """Some drivers lose kernels at the start of a later session."""
    check_recorded(run, bare)
    counts = {number: count for trace in run.traces for number, count in kernels_by_step(trace).items()}
    assert min(counts.values()) > 0
    assert len(set(counts.values())) == 1, counts


@needs_gpu
@pytest.mark.run(TRAINING, "cupti_taken", options=("--analyze",))
def test_a_script_whose_cupti_is_taken_runs_and_the_report_says_what_is_missing(run: Run, bare: Run) -> None:
    assert bare.stdout.startswith("subscribed: 0\n"), bare.stdout
    check_recorded(run, bare)
    said = " ".join(run.stdout.split())
    assert all(kernels(trace) for trace in run.traces) or "but no kernels" in said or "but no GPU work" in said


@needs_two
@pytest.mark.run(TRAINING, "several_gpus", options=("--analyze",))
def test_kernels_of_all_gpus_of_a_process_are_recorded(run: Run, bare: Run) -> None:
    check_recorded(run, bare)
    for trace in run.traces:
        assert {kernel["args"]["device"] for kernel in kernels(trace)} >= {0, 1}


@needs_mig
@pytest.mark.run(TRAINING, "plain", options=("--no-html", "--write-baseline", "result.json", "--analyze"))
def test_a_mig_device_has_no_peak_of_the_whole_gpu(run: Run, bare: Run) -> None:
    check_recorded(run, bare)
    assert all(kernels(trace) for trace in run.traces)
    result = json.loads((run.folder.parent / "work" / "result.json").read_text())
    assert result["run"]["device"]["peaks"] == []


@needs_gpu
@pytest.mark.run(TRAINING, "graphed_model")
def test_a_model_of_cuda_graphs_is_recorded_with_its_kernels(run: Run, bare: Run) -> None:
    check_recorded(run, bare)
    for trace in run.traces:
        assert "cudaGraphLaunch" in trace.text
        assert min(kernels_by_step(trace).values()) > 0


@needs_gpu
@pytest.mark.run(TRAINING, "graphed_step", options=("--step-on", "batch"))
def test_a_step_that_is_one_cuda_graph_is_recorded_by_its_batches(run: Run, bare: Run) -> None:
    check_recorded(run, bare, rule="given")
    for trace in run.traces:
        assert "cudaGraphLaunch" in trace.text
        assert min(kernels_by_step(trace).values()) > 0


@needs_gpu
@pytest.mark.parametrize(
    ("how", "code"),
    [
        pytest.param(how, code, marks=pytest.mark.run(TRAINING, how))
        for how, code in (("exit", 5), ("os_exit", 5), ("raise", 1))
    ],
)
def test_an_exit_while_work_is_queued_keeps_the_complete_steps(run: Run, bare: Run, how: str, code: int) -> None:
    assert how
    assert (run.code, run.stdout) == (bare.code, bare.stdout) == (code, "")
    [timing] = run.traces
    assert list(timing.steps) == [8, 9, 10]
    assert min(kernels_by_step(timing).values()) > 0
