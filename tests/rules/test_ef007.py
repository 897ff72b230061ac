"""EF007: forward passes without gradients are found by the operators that have no number of autograd."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.facts import launched_by, repeated
from support.findings import document_of, only

from traceopt.analyzer.facts import Facts
from traceopt.reports.text.terminal import render_terminal
from traceopt.rules.catalogue.ef007_forward_without_gradients import ForwardWithoutGradients
from traceopt.testing import A100, answer
from traceopt.testing import events as build

STEP_US = 10_000
NUMBER = {"Sequence number": 7}


def facts(operators: Sequence[build.Json], gpu: bool = False) -> Facts:
    """Four steps of these events, whose times count from the start of a step. On a GPU, each product launches a kernel
    that runs for its time.
    """
    events = repeated(operators, step_us=STEP_US)
    if gpu:
        return Facts(build.read([*events, *launched_by(events, "aten::mm")], deviceProperties=[A100]))
    return Facts(build.read(events))


TARGETS = [
    build.python("train.py(30): train", 100, 8_900),
    build.python("train.py(7): targets", 500, 3_000),
    build.op("aten::mm", 600, 2_000),
    build.op("aten::relu", 2_700, 500),
]
TRAINING = [
    build.op("aten::mm", 4_000, 1_000, **NUMBER),
    build.op("autograd::engine::evaluate_function: MmBackward0", 5_500, 2_000),
    build.op("aten::mm", 5_600, 1_500),
    build.annotation("Optimizer.step#SGD.step", 8_000, 500),
]


def test_fires_at_the_time_and_the_place_of_the_pass_without_gradients() -> None:
    found = only(ForwardWithoutGradients, facts(TARGETS + TRAINING))
    assert found.saving is None
    assert "take 2.5 ms in each 10.0 ms step" in found.why
    assert [row.us_per_step for row in found.evidence] == [2_500]
    assert [(one.file, one.function) for one in found.locations] == [("train.py", "train")]


def test_rollouts_of_reinforcement_learning_are_no_such_passes() -> None:
    rollout = [build.annotation("rollout", 200, 3_500), build.annotation("reward", 3_800, 100)]
    of_phases = facts(rollout + TARGETS + TRAINING)
    assert of_phases.rl_phases
    assert answer(ForwardWithoutGradients, of_phases)[1] == []


def test_on_a_gpu_it_is_the_time_of_the_kernels() -> None:
    found = only(ForwardWithoutGradients, facts(TARGETS + TRAINING, gpu=True))
    assert "take 2.0 ms of GPU time in each 10.0 ms step" in found.why


@pytest.mark.parametrize(
    "around",
    [
        build.op("Custom", 500, 3_000, **NUMBER),  # an autograd.Function turns gradients off inside it
        build.op("autograd::engine::evaluate_function: CustomBackward", 500, 3_000),
        build.annotation("Optimizer.step#Muon.step", 500, 3_000),
    ],
    ids=lambda event: event["name"],
)
def test_silent_inside_what_trains(around: build.Json) -> None:
    check, _ = answer(ForwardWithoutGradients, facts([around, *TARGETS, *TRAINING]))
    assert check.reason == "Forward passes without gradients take 0% of the step."


def test_found_inside_the_closure_of_an_optimizer() -> None:
    """LBFGS runs forward and backward passes itself."""
    closure = build.annotation("Optimizer.step#LBFGS.step", 400, 9_000)
    assert "take 2.5 ms" in only(ForwardWithoutGradients, facts([closure, *TARGETS, *TRAINING[:3]])).why


def test_a_trace_without_numbers_of_autograd_does_not_tell() -> None:
    silent = [one | {"args": {}} for one in TARGETS + TRAINING]
    assert answer(ForwardWithoutGradients, facts(silent))[0].status == "not_applicable"


def test_the_verdict_names_it_if_no_fix_saves_more() -> None:
    found = facts(TARGETS + TRAINING)
    document = document_of(found)
    sentence = "Forward passes without gradients take 25% of the step (train.py:30)."
    assert sentence in document.verdict
    assert sentence in " ".join(render_terminal(document, width=80, color=False, unicode=True).split())


def test_a_metric_that_ends_with_gradients_on_counts_whole() -> None:
    """Only its matmul and its sort run under torch.no_grad. The comparison creates no node."""
    compared = [build.op("aten::eq", 3_250, 100, **NUMBER), build.op("aten::item", 3_370, 10, **NUMBER)]
    sorts = [*TARGETS[:3], build.op("aten::argsort", 2_700, 500), *compared]
    found = only(ForwardWithoutGradients, facts(sorts + TRAINING))
    assert "take 2.6 ms in each 10.0 ms step" in found.why
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 30)]


def test_a_part_that_creates_a_node_is_trained() -> None:
    later = [one | {"args": {"Sequence number": 8}} if one["name"] == "aten::mm" else one for one in TRAINING[:1]]
    scaled = [*TARGETS[:3], build.op("aten::mul", 2_700, 500, **NUMBER)]
    assert "take 2.0 ms in each 10.0 ms step" in only(ForwardWithoutGradients, facts(scaled + later + TRAINING[1:])).why


def numbered(number: int) -> dict[str, int]:
    return {"Sequence number": number}


TEACHER = [
    build.python("train.py(30): train", 100, 8_900),
    build.python("train.py(7): teacher", 500, 3_000),
    build.op("aten::mm", 600, 2_000, **numbered(3)),
    build.op("aten::relu", 2_700, 500, **numbered(4)),
]
STUDENT = [
    build.op("aten::mm", 4_000, 1_000, **numbered(7)),
    build.op("autograd::engine::evaluate_function: MmBackward0", 5_500, 2_000, **numbered(7)),
    build.op("aten::mm", 5_600, 1_500),
    build.annotation("Optimizer.step#SGD.step", 8_000, 500),
]


def test_gradients_that_no_backward_pass_uses() -> None:
    found = only(ForwardWithoutGradients, facts(TEACHER + STUDENT))
    assert found.title == "Turn gradients off in forward passes that train nothing"
    assert "take 2.5 ms in each 10.0 ms step, but no backward pass uses these gradients" in found.why
    assert found.saving is None
    assert [(one.file, one.function) for one in found.locations] == [("train.py", "train")]


@pytest.mark.parametrize("number", [3, 7], ids=["in the backward pass", "of a frozen layer before the student"])
def test_gradients_that_the_backward_pass_uses(number: int) -> None:
    teacher = [one | {"args": numbered(number)} if one["name"].startswith("aten::") else one for one in TEACHER]
    student = [*STUDENT, build.op("autograd::engine::evaluate_function: MmBackward0", 7_600, 100, **numbered(3))]
    findings = answer(ForwardWithoutGradients, facts(teacher + student))[1]
    assert "unused gradients" not in [one.aspect for one in findings]


def test_a_backward_pass_without_numbers_tells_nothing() -> None:
    student = [one | {"args": {}} if "Backward" in one["name"] else one for one in STUDENT]
    assert answer(ForwardWithoutGradients, facts(TEACHER + student))[1] == []


FROZEN = [
    *(one | {"args": numbered(7)} if one["name"].startswith("aten::") else one for one in TARGETS),
    build.op("aten::mm", 4_000, 1_000, **numbered(7)),  # of the head, creates the node
    build.op("aten::sum", 5_100, 100, **numbered(8)),
    build.op("autograd::engine::evaluate_function: MmBackward0", 5_500, 2_000, **numbered(7)),
    build.op("aten::mm", 5_600, 1_500),
    build.annotation("Optimizer.step#SGD.step", 8_000, 500),
]


def of_model(**counts: int) -> Facts:
    own = {"models": [{"class": "Classifier", "parameters": 1_000, **counts}]}
    return Facts(build.read(repeated(FROZEN, step_us=STEP_US), traceopt=own))


@pytest.mark.parametrize("found", [facts(FROZEN), of_model(trainable=10), of_model()], ids=["plain", "seen", "unknown"])
def test_frozen_layers_create_no_node(found: Facts) -> None:
    finding = only(ForwardWithoutGradients, found)
    assert finding.title == "Compute the output of frozen layers once"
    assert "take 2.5 ms in each 10.0 ms step" in finding.why
    assert (finding.saving, finding.confidence) == (None, "low")
    assert [(one.file, one.line) for one in finding.locations] == [("train.py", 30)]
    assert "Forward passes of frozen layers take 25% of the step (train.py:30)." in document_of(found).verdict


def test_a_product_of_data_is_no_layer_where_all_weights_are_trained() -> None:
    assert answer(ForwardWithoutGradients, of_model(trainable=1_000))[1] == []


def test_frozen_layers_in_the_backward_pass_are_needed() -> None:
    """Gradients pass through them to trained layers before them."""
    passed = [one | {"args": numbered(6)} if one["name"] == "aten::mm" and one["ts"] == 600 else one for one in FROZEN]
    node = build.op("autograd::engine::evaluate_function: MmBackward0", 7_600, 100, **numbered(6))
    assert answer(ForwardWithoutGradients, facts([*passed, node]))[1] == []
