"""Training loops of Hugging Face, Lightning and Accelerate: under `traceopt run`, and with traceopt's callbacks."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from runs import Run, Runner, Trace

from traceopt.analyzer.run_log.run_settings import captured

pytestmark = [
    pytest.mark.skipif(find_spec(name) is None, reason=f"pip install {name}, or the extra traceopt-profiler[dev]")
    for name in ("accelerate", "lightning", "transformers")
]

TIMING, DETAIL = range(8, 13), range(17, 19)
FETCHES_AND_STEPS = {
    "huggingface": (1, TIMING, DETAIL),
    "huggingface_accumulation": (4, TIMING, DETAIL),
    "huggingface_evaluation": (1, range(26, 31), range(15, 17)),
    "lightning": (1, TIMING, DETAIL),
    "lightning_under_its_other_name": (1, TIMING, DETAIL),
    "lightning_accumulation": (4, range(24, 29), range(14, 16)),  # timing again, after an evaluation cut it short
    "accelerated": (2, TIMING, DETAIL),
}
WITH_A_CALLBACK = [kind for kind in FETCHES_AND_STEPS if kind != "accelerated"]

BARE = ("frameworks.py", *FETCHES_AND_STEPS)
UNCHANGED = pytest.mark.run(*BARE)
CALLBACKS = pytest.mark.run("frameworks.py", "--callback", *FETCHES_AND_STEPS)
EACH_CALLBACK = ("huggingface", "lightning")


def check_steps(traces: dict[str, Trace], kind: str) -> None:
    fetches, timing, detail = FETCHES_AND_STEPS[kind]
    assert list(traces["timing"].steps) == list(timing)
    assert list(traces["detail"].steps) == list(detail)
    for trace in traces.values():
        for step in trace.steps.values():
            assert (step["fetch"], step["update"]) == (fetches, 1)


@UNCHANGED
@pytest.mark.parametrize("kind", FETCHES_AND_STEPS)
def test_every_step_of_a_framework_holds_one_update(run: Run, kind: str) -> None:
    assert run.code == 0, run.stderr
    traces = run.traces_of(kind)
    assert {trace.metadata["step_rule"] for trace in traces.values()} == {"loader"}
    check_steps(traces, kind)


SETTINGS = {
    "huggingface": ("Hugging Face Trainer", "huggingface"),
    "lightning": ("Lightning", "train_with_lightning"),
    "lightning_under_its_other_name": ("Lightning", "train_with_lightning"),
    "accelerated": ("Accelerate", "accelerated"),
}
# The function that constructs the loader and the optimizer, and the library that does so for it.
CONSTRUCTED = {
    "huggingface": [("huggingface", "transformers"), ("huggingface", "transformers")],
    "lightning": [("train_with_lightning", None), ("configure_optimizers", None)],
    "lightning_under_its_other_name": [("train_with_lightning", None), ("configure_optimizers", None)],
    "accelerated": [("accelerated", None), ("accelerated", None)],
}


@UNCHANGED
@pytest.mark.parametrize("kind", CONSTRUCTED)
def test_the_lines_that_construct_loader_optimizer_and_settings_are_noted(run: Run, kind: str) -> None:
    found = captured(run.traces_of(kind)["timing"].document)
    own = [one for one in found.frameworks if one.built.library is None]
    assert [(one.framework, one.built.site.function) for one in own] == [SETTINGS[kind]]
    [optimizer] = found.optimizers  # without the wrappers of Accelerate and Lightning
    assert optimizer.class_name in ("torch.optim.adam.Adam", "torch.optim.adamw.AdamW")
    places = [one.built for one in (found.training_loader, optimizer) if one is not None and one.built is not None]
    assert [(one.site.function, one.library) for one in places] == CONSTRUCTED[kind]
    assert {one.site.file for one in places} == {"frameworks.py"}


@UNCHANGED
def test_losses_are_the_same_to_the_last_bit(run: Run, bare: Run) -> None:
    assert bare.code == 0, bare.stderr
    assert losses(run) == losses(bare)
    assert len(losses(bare)) > 6 * 40


def losses(run: Run) -> list[str]:
    """Some libraries print the time."""
    return [line for line in run.stdout.splitlines() if "loss" in line or "0x1." in line]


@CALLBACKS
@pytest.mark.parametrize("kind", WITH_A_CALLBACK)
def test_a_callback_records_the_same_steps(bare: Run, kind: str) -> None:
    assert bare.code == 0, bare.stderr
    traces = bare.traces_of(kind)
    assert {trace.metadata["step_rule"] for trace in traces.values()} == {"given"}
    check_steps(traces, kind)


@CALLBACKS
def test_a_callback_changes_no_loss(bare: Run, runner: Runner) -> None:
    assert losses(bare) == losses(runner.run(*BARE, bare=True))


@CALLBACKS
def test_a_callback_logs_its_result_at_the_end(bare: Run) -> None:
    logged = [line for line in bare.stdout.splitlines() if line.startswith("logged")]
    assert logged == ["logged traceopt-report.html traceopt-result.json"] * len(WITH_A_CALLBACK)


@pytest.mark.run("frameworks.py", "--callback", *EACH_CALLBACK)
def test_under_traceopt_run_a_callback_does_nothing(run: Run) -> None:
    """Two recordings of one process would collide in `traces_of`."""
    assert run.code == 0, run.stderr
    for kind in EACH_CALLBACK:
        traces = run.traces_of(kind)
        assert {trace.metadata["step_rule"] for trace in traces.values()} == {"loader"}
        check_steps(traces, kind)
    assert "torch.profiler itself" not in run.stderr
    assert "logged" not in run.stdout


@CALLBACKS
def test_an_evaluation_is_the_reason_that_is_given(bare: Run) -> None:
    for kind, why in (("huggingface_evaluation", "evaluation"), ("lightning_accumulation", "validation")):
        metadata = bare.traces_of(kind)["timing"].metadata
        assert any(note.endswith(f"the timing cycle was closed early: {why}") for note in metadata["notes"])
        assert metadata["cycle"]["closed_early"] is None, "it was recorded again"
        assert metadata["ledger"]["evaluations"]
