"""EF012: a one-hot matrix is multiplied by a parameter."""

from __future__ import annotations

from typing import Any

import pytest
from support.facts import repeated

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Finding
from traceopt.rules.catalogue.ef012_one_hot_matmul import OneHotMatmul
from traceopt.testing import A100, answer
from traceopt.testing import events as build

STEP_US, STEPS = 20_000, 4
NODE = "autograd::engine::evaluate_function: "
COUNT, CLASSES, WIDTH = 64, 512, 32
LAUNCHES = ("aten::one_hot", "aten::to", "aten::addmm", "aten::mm")

Event = build.Json


def op(name: str, start: float, duration: float, *dims: Any, **ids: int) -> Event:
    return build.op(name, start, duration, **{"Input Dims": list(dims), "Input type": ["float"] * len(dims)}, **ids)


def recorded(number: int) -> dict[str, int]:
    return {"Sequence number": number, "Fwd thread id": 0}


def one_hot(classes: int = CLASSES) -> list[Event]:
    shape = [8, COUNT // 8, classes]
    return [
        build.python("model.py(9): forward", 0, 7_900),
        op("aten::one_hot", 100, 1_000, [8, COUNT // 8], []),
        op("aten::scatter_", 900, 100, shape, [], [*shape[:2], 1], []),
        op("aten::to", 1_200, 1_000, shape),
    ]


def product(classes: int = CLASSES, rows: int = COUNT, start: float = 3_000) -> list[Event]:
    return [
        op("aten::linear", start, 2_000, [8, rows // 8, classes], [WIDTH, classes], [WIDTH]),
        op("aten::addmm", start + 100, 1_800, [WIDTH], [rows, classes], [classes, WIDTH], **recorded(5)),
    ]


def backward(
    classes: int = CLASSES, *, of_input: bool = False, parameter: tuple[int, ...] | None = (WIDTH, CLASSES)
) -> list[Event]:
    """`of_input`: the left factor has a gradient as well. `parameter`: the shape whose gradient is accumulated."""
    ran = {"Sequence number": 5, "Fwd thread id": 1}
    events = [
        op(f"{NODE}AddmmBackward0", 10_000, 4_000, **ran),
        op("AddmmBackward0", 10_001, 3_990, [COUNT, WIDTH], **ran),
        op("aten::mm", 10_100, 2_000, [WIDTH, COUNT], [COUNT, classes]),
    ]
    if of_input:
        events.append(op("aten::mm", 12_200, 1_000, [COUNT, WIDTH], [WIDTH, classes]))
    if parameter:
        events.append(op(f"{NODE}torch::autograd::AccumulateGrad", 14_100, 20))
        events.append(op("torch::autograd::AccumulateGrad", 14_101, 15, list(parameter)))
    return events


def later(events: list[Event], us: float) -> list[Event]:
    """The same for another parameter, so many microseconds later."""
    moved = [one | {"ts": one["ts"] + us, "args": dict(one.get("args", {}))} for one in events]
    for one in moved:
        if "Sequence number" in one["args"]:
            one["args"]["Sequence number"] += 1
    return moved


def facts(*parts: list[Event]) -> Facts:
    """Four steps of these events, whose times count from the start of a step."""
    return Facts(build.read(build.document(_steps(parts))))


def gpu_facts(*parts: list[Event]) -> Facts:
    """The same, 100 times as fast on the host. Each of the operators in LAUNCHES launches a kernel that runs for its
    time. The kernels run one after the other, and another until 19.5 ms. The host waits for them.
    """
    parts = tuple([one | {"ts": one["ts"] / 100, "dur": one["dur"] / 100} for one in part] for part in parts)
    events = _steps(parts)
    for step in range(STEPS):
        at, end = step * STEP_US + 20.0, step * STEP_US + 19_500
        work = [one for one in events if one["name"] in LAUNCHES and 0 <= one["ts"] - step * STEP_US < STEP_US]
        for number, one in enumerate(work, 10 * step):
            events.append(build.runtime("cudaLaunchKernel", one["ts"] + 1, 2, number))
            events.append(build.kernel("elementwise_kernel", max(at, one["ts"] + 5), 100 * one["dur"], number))
            at = events[-1]["ts"] + events[-1]["dur"]
        events.append(build.runtime("cudaLaunchKernel", step * STEP_US + 190, 2, 10 * step + 9))
        events.append(build.kernel("other_kernel", at, end - at, 10 * step + 9))
        events.append(build.runtime("cudaDeviceSynchronize", step * STEP_US + 200, 19_310, 10 * step + 8))
    return Facts(build.read(build.document(events, deviceProperties=[A100])))


def _steps(parts: tuple[list[Event], ...]) -> list[Event]:
    return repeated([build.annotation("Optimizer.step#SGD.step", 19_600, 300)], *parts, step_us=STEP_US)


def the(found: Facts) -> Finding:
    check, findings = answer(OneHotMatmul, found)
    return findings[0] if findings else pytest.fail(check.reason or "")


def silent(found: Facts) -> bool:
    check, findings = answer(OneHotMatmul, found)
    assert check.status in ("passed", "not_applicable", "found"), check.reason
    return not findings


def test_fires_on_the_matrix_its_cast_and_both_products() -> None:
    found = the(facts(one_hot(), product(), backward()))
    assert "one-hot matrix with 512 columns" in found.why
    assert "this takes 6.0 ms of each 20.0 ms step" in found.why
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(0.95 * 6_000, rel=0.02)
    assert found.saving.low_us < 5_000 < 6_000 < found.saving.high_us
    assert [(one.file, one.line) for one in found.locations] == [("model.py", 9)]


def test_on_a_gpu_that_is_busy_the_time_of_the_kernels_is_saved() -> None:
    found = the(gpu_facts(one_hot(), product(), backward()))
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(0.95 * 5_800, rel=0.06)  # the window begins inside the first step
    assert found.saving.low_us > 0.7 * 5_800


def test_views_and_copies_of_other_tensors_may_come_between() -> None:
    between = [op("aten::zeros", 2_300, 50), op("aten::to", 2_400, 300, [16, 4]), op("aten::t", 2_750, 5, [8, 8])]
    found = the(facts(one_hot(), between, product(), backward(parameter=(CLASSES, WIDTH))))
    assert "this takes 6.0 ms" in found.why  # without the copy of the other tensor


def test_a_product_of_an_einsum_counts() -> None:
    left, right = [1, COUNT, CLASSES], [1, CLASSES, WIDTH]
    einsum = [op("aten::einsum", 3_000, 2_000, [], [], []), op("aten::bmm", 3_100, 1_800, left, right, **recorded(5))]
    assert "this takes 6.0 ms" in the(facts(one_hot(), einsum, backward())).why


def test_fires_on_matrices_of_two_features_whose_products_follow_both() -> None:
    second = [
        *later(one_hot(256)[1:3], 2_200),
        *later(product(256), 2_500),
        *later(backward(256, parameter=None), 4_500),
    ]
    gradient = [op("torch::autograd::AccumulateGrad", 18_700, 15, [WIDTH, 256])]
    found = the(facts(one_hot(), product(start=3_400), backward(), second, gradient))
    assert "this takes 11.0 ms" in found.why


SHAPE = [8, COUNT // 8, CLASSES]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((one_hot(), product(rows=32), backward()), id="rows that do not fit"),
        pytest.param((one_hot(), product(256), backward(256, parameter=(WIDTH, 256))), id="other columns"),
        pytest.param((one_hot(), product(), backward(of_input=True)), id="activations as the left factor"),
        pytest.param((one_hot(), product(), backward(parameter=None)), id="dispatch to experts: no parameter"),
        pytest.param((one_hot(), product(), backward(parameter=(WIDTH, 99))), id="another parameter"),
        pytest.param((one_hot(), product()), id="no backward pass"),
        pytest.param((product(start=50), backward(), one_hot()[1:]), id="after the product"),
        pytest.param(
            (one_hot(), [op("aten::mul", 2_300, 300, SHAPE, [])], product(), backward()), id="smoothed labels"
        ),
        pytest.param(
            (one_hot(), product(), [op("aten::mse_loss", 6_000, 100, SHAPE, SHAPE, [])], backward()),
            id="the target of a loss, before a product with data of the same size",
        ),
        pytest.param(
            (one_hot(), product(), [op("aten::mul", 6_000, 100, [COUNT, CLASSES], [COUNT, CLASSES])], backward()),
            id="Dice loss",
        ),
        pytest.param((one_hot(), one_hot()[1:3], [op("aten::lstm", 3_000, 2_000, SHAPE)]), id="a recurrent layer"),
        pytest.param(
            (one_hot(), [op("aten::relu", 2_300, 300, [4, 4])], product(), backward()), id="a product of a later layer"
        ),
        pytest.param((one_hot(32), product(32), backward(32, parameter=(WIDTH, 32))), id="few classes"),
    ],
)
def test_silent_where_an_embedding_is_not_the_same_or_no_faster(parts: tuple[list[Event], ...]) -> None:
    assert silent(facts(*parts))


def test_a_loss_of_single_ids_does_not_hide_it() -> None:
    """A language model whose logits have the size of the one-hot matrix."""
    loss = [op("aten::cross_entropy_loss", 6_000, 100, [COUNT, CLASSES], [COUNT], [], [], [])]
    assert not silent(facts(one_hot(), product(), loss, backward()))
