"""Which calls of a script end a step: real loops are recorded, and each recorded step must hold the same work."""

from __future__ import annotations

from collections import Counter

import pytest
from runs import TORCH, Run

from traceopt.capture.recording.recorder import PLAIN_STEPS

LOOPS = {
    "plain": ("loader", {"fetch": 1, "update": 1, "zero": 1}),
    "without_loader": ("update", {"update": 1, "zero": 1}),
    "accumulation": ("loader", {"fetch": 4, "update": 1, "zero": 1}),
    "gan": ("loader", {"fetch": 1, "update": 2, "zero": 2}),
    "gan_without_loader": ("update", {"update": 4, "zero": 4}),
    "inference": ("inference", {"fetch": 1}),
    "calls": ("call", {}),
    "inference_then_training": ("loader", {"fetch": 1, "update": 1, "zero": 1}),
    "closure": ("update", {"update": 1}),
    "manual": ("backward", {}),
    "sealed_loader": ("loader", {"fetch": 1, "update": 1, "zero": 1}),
    "two_loaders": ("loader", {"fetch": 2, "update": 1, "zero": 1}),
    "one_batch": ("update", {"update": 1, "zero": 1}),
    "in_backward": ("loader", {"fetch": 1, "update": 6, "zero": 6}),
    "in_backward_without_loader": ("update", {"update": 6, "zero": 6}),
    "in_thread": ("loader", {"fetch": 1, "update": 1, "zero": 1}),
    "prefetched": ("update", {"update": 1, "zero": 1}),
}

OTHERS = ("evaluation", *(["skipped_updates"] if TORCH >= (2, 3) else []))
ALL = pytest.mark.run("loops.py", *LOOPS, *OTHERS)


@ALL
@pytest.mark.parametrize(("kind", "rule", "work"), [(kind, *expected) for kind, expected in LOOPS.items()])
def test_every_recorded_step_holds_the_same_work(run: Run, kind: str, rule: str, work: dict[str, int]) -> None:
    assert run.code == 0, run.stderr
    timing = run.traces_of(kind)["timing"]
    assert timing.metadata["step_rule"] == rule
    assert list(timing.steps) == [8, 9, 10, 11, 12]
    for step in timing.steps.values():
        del step["other"]
        if kind == "closure":
            del step["zero"]  # LBFGS calls its closure as often as it likes
        assert step == Counter(work)


@ALL
def test_a_loader_that_cannot_be_described_stops_nothing(run: Run) -> None:
    for trace in run.traces_of("sealed_loader").values():
        assert any("RuntimeError: sealed" in note for note in trace.metadata["notes"])
        assert "sealed" not in run.stderr


@ALL
@pytest.mark.skipif(TORCH < (2, 3), reason="its GradScaler works with CUDA alone")
def test_an_update_that_the_scaler_skips_ends_a_step_too(run: Run) -> None:
    timing = run.traces_of("skipped_updates")["timing"]
    assert [step["fetch"] for step in timing.steps.values()] == [1] * 5
    assert timing.metadata["skipped_updates"] > 10


@ALL
def test_an_evaluation_is_kept_out_of_the_recorded_steps(run: Run) -> None:
    traces = run.traces_of("evaluation")
    for step in [*traces["timing"].steps.values(), *traces["detail"].steps.values()]:
        assert step["fetch"] == step["update"] == 1
    assert len(traces["timing"].steps) == 4
    ledger = traces["timing"].metadata["ledger"]
    evaluated = [step for step, us in enumerate(ledger["eval_us"]) if us]
    assert len(evaluated) == 4, "between five epochs; the last evaluation follows the last step"
    assert ledger["end"]["eval_us"] > 0
    [place] = ledger["evaluations"]
    assert (place["file"], place["function"], place["count"]) == ("loops.py", "evaluation", 5)
    assert "the timing cycle has 4 of 5 steps: the script reads another DataLoader (evaluation?)" in run.stderr


@pytest.mark.run("loops.py", "without_loader", options=("--step-on", "forward", "--wait", "2", "--with-stack"))
def test_step_on_forward(run: Run) -> None:
    plain = run.cycle("plain")
    assert any(e["name"] == "nn.Module: Linear_0" for e in plain.document["traceEvents"])
    assert plain.metadata["step_rule"] == "given"
    assert [step["update"] for step in plain.steps.values()] == [1] * 5


@pytest.mark.run("-m", "package.train", "--epochs", "2", options=("--step-on", "package.train:two_updates"))
def test_step_on_a_function_of_a_module(run: Run) -> None:
    assert run.stdout == "['--epochs', '2'] package.train\n"
    assert [step["update"] for step in run.cycle("timing").steps.values()] == [2] * 5


@pytest.mark.run("loops.py", "without_loader", options=("--step-on", "__main__:train", "--preset", "quick"))
def test_step_on_a_function_of_the_script_itself(run: Run) -> None:
    """It is found when it is called for the first time, so 39 of 40 calls are seen to end."""
    for trace in run.traces:
        assert trace.metadata["step_rule"] == "given"
        assert [(step["zero"], step["update"]) for step in trace.steps.values()] == [(1, 1)] * len(trace.steps)
        assert len(trace.metadata["ledger"]["step_us"]) == 39
    assert [list(trace.steps) for trace in run.traces] == [[2, 3, 4], [6, 7]]


@pytest.mark.run("loops.py", "accumulation", options=("--step-on", "batch", "--repeat", "2", "--active", "2"))
def test_step_on_batch_with_two_plain_cycles(run: Run) -> None:
    first, second = run.traces
    assert list(first.steps) == [8, 9]
    assert list(second.steps) == [18, 19]
    assert all(step["fetch"] == 1 for step in [*first.steps.values(), *second.steps.values()])


@pytest.mark.run("loops.py", "endless", options=("--stop-after", "--preset", "quick"))
def test_stop_after_ends_the_script_when_all_is_recorded(run: Run) -> None:
    assert run.code == 0, run.stderr
    assert [list(trace.steps) for trace in run.traces] == [[2, 3, 4], [6, 7]]
    lasted = [len(trace.metadata["ledger"]["step_us"]) for trace in run.traces]
    assert 8 < lasted[0] <= 8 + PLAIN_STEPS, "steps without a profiler show what recording costs"
