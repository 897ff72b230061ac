"""`traceopt.profile`, for scripts that mark the end of a step themselves."""

from __future__ import annotations

import ctypes
import itertools
import pickle
import platform
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from runs import Run, Trace, environment

import traceopt
from traceopt.capture.recording import event_memory
from traceopt.capture.recording.recorder import Recorder
from traceopt.capture.settings import Settings, plan_cycles
from traceopt.integrations.training import Training

pytestmark = pytest.mark.torch


def train(steps: int, profiler: traceopt.profile) -> None:
    import torch

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        profiler.step()


def test_the_steps_that_were_asked_for_are_recorded(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, wait=0, warmup=0, active=3, with_stack=True) as profiler:
        train(6, profiler)
    [path] = profiler.traces
    trace = Trace(path)
    assert {step: work["update"] for step, work in trace.steps.items()} == {0: 1, 1: 1, 2: 1}
    assert trace.metadata["step_rule"] == "given"
    assert len(trace.metadata["ledger"]["step_us"]) == 6
    assert any(optimizer["class"] == "torch.optim.sgd.SGD" for optimizer in trace.metadata["optimizers"])


def test_by_default_there_are_two_cycles(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, "quick") as profiler:
        train(10, profiler)
    assert [Trace(path).cycle for path in profiler.traces] == ["timing", "detail"]


def test_an_exception_passes_through_and_the_trace_is_kept(tmp_path: Path) -> None:
    profiler = traceopt.profile(tmp_path, "quick")

    def fail() -> None:
        with profiler:
            train(4, profiler)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert list(Trace(profiler.traces[0]).steps) == [2, 3]


def test_too_few_steps_are_said_so(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="recorded nothing: 2 steps ended"), traceopt.profile(tmp_path) as profiler:
        train(2, profiler)
    assert not profiler.traces


def test_an_evaluation_stays_out(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, "quick") as profiler:
        train(4, profiler)
        profiler.interrupt()
        train(6, profiler)
    timing, detail = map(Trace, profiler.traces)
    assert list(timing.steps) == [2, 3]
    assert timing.metadata["cycle"]["closed_early"] == "evaluation"
    assert len(detail.steps) == 2


def test_an_interrupted_cycle_is_recorded_again(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, wait=0, warmup=0, active=4) as profiler:
        train(2, profiler)
        profiler.interrupt()
        train(8, profiler)
    [path] = profiler.traces
    assert len(Trace(path).steps) == 4
    assert [path] == list(tmp_path.iterdir())
    assert [window["until"] - window["from"] for window in Trace(path).metadata["ledger"]["windows"]] == [0, 4]


def test_of_several_attempts_the_longest_stays(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, wait=0, warmup=0, active=4) as profiler:
        for steps in (3, 2, 2):
            train(steps, profiler)
            profiler.interrupt()
    [path] = profiler.traces
    assert list(Trace(path).steps) == [0, 1, 2]


def test_evaluations_that_come_too_often_are_marked(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, wait=0, warmup=1, active=4) as profiler:
        for _ in range(8):
            train(2, profiler)
            profiler.interrupt()
            profiler.interrupt()
    [path] = profiler.traces
    trace = Trace(path)
    partial = trace.metadata["cycle"]["partial_steps"]
    assert partial
    assert len(trace.steps) == 4 - len(partial)
    assert sum(
        event["name"].startswith("traceopt: evaluation mode ") for event in trace.document["traceEvents"]
    ) == len(partial)


def test_traceopt_s_own_work_is_no_part_of_a_recorded_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(Recorder, "_tell", lambda *_: torch.hamming_window(5))
    with traceopt.profile(tmp_path, wait=0, warmup=1, active=3, repeat=2) as profiler:
        train(6, profiler)
        profiler.interrupt()
    for path in profiler.traces:
        events = [event for event in Trace(path).document["traceEvents"] if event["ph"] == "X"]
        steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
        own = [event for event in events if event["name"] == "aten::hamming_window"]
        assert len(steps) >= 2
        assert own
        for event in own:
            assert not any(step["ts"] <= event["ts"] < step["ts"] + step["dur"] for step in steps)


@pytest.mark.run("own_profiler.py", "ours")
def test_under_traceopt_run_it_does_nothing(run: Run) -> None:
    assert (run.code, run.stdout) == (0, "found [0]\n")
    assert list(run.cycle("timing").steps) == [8, 9, 10, 11, 12]
    assert "nothing" not in run.stderr


def test_a_training_is_recorded_once(tmp_path: Path) -> None:
    """As in a search or a cross-validation, which train repeatedly; the first training here is too short."""
    training = pickle.loads(pickle.dumps(Training(tmp_path, "quick")))  # noqa: S301 - our own
    for steps in (2, 10, 10):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            training.begin()
            train(steps, training)
            training.end()
        assert len(said) == (steps == 2)
        assert len(training.traces) == (0 if steps == 2 else 2)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_training_that_fails_keeps_its_trace(tmp_path: Path) -> None:
    code = f"""
import torch
from traceopt.integrations.training import Training
training = Training({str(tmp_path)!r}, "quick")
training.begin()
for _ in range(4):
    torch.ones(4).sum()
    training.step()
raise ValueError("broken")
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert "ValueError: broken" in done.stderr
    [path] = tmp_path.iterdir()
    assert list(Trace(path).steps) == [2, 3]


def test_a_cycle_that_takes_too_long_ends_with_the_step_at_hand(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, wait=0, warmup=1, active=5, repeat=2, time_limit=1e-9) as profiler:
        train(8, profiler)
    first, second = map(Trace, profiler.traces)
    assert (list(first.steps), list(second.steps)) == ([1], [3])
    for trace in (first, second):
        assert trace.metadata["cycle"]["closed_early"] == "it took more than 1e-09 s"
        assert trace.metadata["cycle"]["partial_steps"] == []
        ranges = [e for e in trace.document["traceEvents"] if e["name"].startswith("ProfilerStep#") and e["ph"] == "X"]
        assert len(ranges) == 1, "the next step has begun"


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the memory finds 0.6 of the limit more, as of many events."""
    memory = itertools.count(0, int(0.6 * event_memory.LIMIT_BYTES))
    monkeypatch.setattr(event_memory, "_in_use_bytes", lambda: next(memory))
    monkeypatch.setattr(event_memory, "available_memory_bytes", lambda: None)
    monkeypatch.setattr(event_memory, "READ_EVERY_S", 0.0)


@pytest.mark.usefixtures("growing")
def test_a_cycle_with_too_many_events_ends_with_the_step_at_hand(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, wait=0, warmup=1, active=5) as profiler:
        train(8, profiler)
    [trace] = map(Trace, profiler.traces)
    assert list(trace.steps) == [1, 2]
    assert trace.metadata["cycle"]["closed_early"] == "it has about 0.6 million events"


@pytest.mark.usefixtures("growing")
@pytest.mark.parametrize("complete", [0, 1])
def test_a_step_with_too_many_events_ends_a_cycle_at_once(tmp_path: Path, complete: int) -> None:
    """The complete steps are kept. Without one, the user learns how to record less."""
    recorder = Recorder(sys.modules["torch"], Settings(tmp_path, plan_cycles(wait=0, warmup=0, active=5)), control=None)
    recorder.begin()
    for _ in range(complete):
        recorder.step_ended("given")
    for _ in range(7):
        recorder.backward_ended()
    assert len(recorder.files) == complete
    if complete:
        [trace] = map(Trace, recorder.files)
        assert list(trace.steps) == [0]
    else:
        [trouble] = recorder.status.troubles
        assert trouble == (
            "step 0: one step has more than 1.8 million events; --step-on backward records shorter steps"
        )
    assert not recorder.status.ended


def test_little_free_memory_bounds_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_memory, "available_memory_bytes", lambda: 1600)
    assert event_memory.EventMemory().limit_bytes == 100


def test_memory_is_not_read_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading takes milliseconds in a process with many free blocks, which would be a large part of a short step."""
    now_s, in_use = 5.0, itertools.count(0, 1000)
    monkeypatch.setattr(event_memory.time, "perf_counter", lambda: now_s)
    monkeypatch.setattr(event_memory, "_in_use_bytes", lambda: next(in_use))
    memory = event_memory.EventMemory()
    assert [memory.grown_bytes(point) for point in ("step", "backward", "step", "backward")] == [0, 0, 0, 0]
    now_s += 2 * event_memory.READ_EVERY_S
    assert memory.grown_bytes("step") == 1000, "the second reading"
    assert memory.grown_bytes("step") == 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems do not count it")
def test_memory_in_use_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_memory, "READ_EVERY_S", 0.0)
    memory = event_memory.EventMemory()
    assert memory.grown_bytes("here") == 0
    block = ctypes.create_string_buffer(50_000_000)
    assert memory.grown_bytes("elsewhere") == 0
    assert memory.grown_bytes("here") == pytest.approx(len(block), rel=0.2)


def test_a_model_in_evaluation_mode_is_cut_out_if_it_was_an_evaluation(tmp_path: Path) -> None:
    import torch

    recorder = Recorder(torch, Settings(tmp_path, plan_cycles(wait=0, warmup=1, active=4)), control=None)
    for evaluates in (False, True, False, False, True, False):
        recorder.perhaps_interrupted()
        torch.ones(8).sum()
        if evaluates:
            recorder.resumed()  # the model is put back into training mode
        else:
            recorder.trained()  # as with a part of the model that is frozen
        recorder.step_ended("update")
    recorder.finish("the test ended")
    [path] = recorder.files
    cycle = Trace(path).metadata["cycle"]
    names = [event["name"] for event in Trace(path).document["traceEvents"] if event["ph"] == "X"]
    assert cycle["evaluations"] == [1, 4], "the first of them during the warm-up"
    assert cycle["partial_steps"] == []
    assert "traceopt: evaluation mode 4" in names
    assert sum(name.startswith("traceopt: evaluation mode ") for name in names) == 4
