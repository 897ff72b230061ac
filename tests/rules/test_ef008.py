"""EF008: gradients that no optimizer uses, by what capture recorded of the models."""

from __future__ import annotations

from typing import Any

import pytest
from support.autograd_steps import accumulation, node, operator, steps, the

from traceopt.analyzer.facts import Facts
from traceopt.rules.catalogue.ef008_unused_gradients import UnusedGradients
from traceopt.rules.savings.work.backward_nodes import weight_share
from traceopt.testing import A100, answer
from traceopt.testing import events as build

STEP_US, STEPS = 10_000, 4
UNUSED = {"tensors": 4, "unused_tensors": 4, "weights": 2, "unused_weights": 2}
TRAINED = {"tensors": 4, "unused_tensors": 0, "weights": 2, "unused_weights": 0}


def facts(
    gradients: dict[str, int] | None,
    accumulations: int = 4,
    gpu: bool = False,
    trained: dict[str, int] | None = None,
    by_hand: bool | None = False,
    optimizers: int = 1,
) -> Facts:
    """Four steps of 10 ms. In each, two products of the backward pass take 2 ms each, one below attention 1 ms.
    `by_hand`: whether the values of the weights were seen to change although no optimizer has them.
    """
    events: list[build.Json] = []
    for step in range(STEPS):
        start = step * STEP_US
        products = [
            build.op("aten::convolution_backward", start + 2_100, 2_000),
            build.op("aten::mm", start + 4_600, 2_000),
        ]
        events += [
            build.annotation(f"ProfilerStep#{step}", start, STEP_US),
            build.op("aten::mm", start + 100, 1_000),
            build.op("autograd::engine::evaluate_function: ConvolutionBackward0", start + 2_000, 2_200),
            build.op("autograd::engine::evaluate_function: AddmmBackward0", start + 4_500, 2_200),
            build.op("autograd::engine::evaluate_function: BmmBackward0", start + 6_800, 1_100),
            build.op("aten::bmm", start + 6_850, 1_000),
            *products,
            *(build.op("torch::autograd::AccumulateGrad", start + 8_000 + 10 * n, 5) for n in range(accumulations)),
            build.annotation("Optimizer.step#Adam.step", start + 9_000, 500),
        ]
        for number, one in enumerate(products if gpu else [], 2 * step + 1):
            events.append(build.runtime("cudaLaunchKernel", one["ts"] + 1, 2, number))
            events.append(build.kernel("ampere_sgemm_128x64_nn", one["ts"] + 5, one["dur"] - 5, number))
    models: list[build.Json] = [{"class": "vgg.Features", "gradients": gradients, "updated_by_hand": by_hand}]
    if trained is not None:
        models.append({"class": "train.Student", "gradients": trained})
    recorded = {"models": models, "optimizers": optimizers * [{"class": "torch.optim.adam.Adam"}]}
    metadata: dict[str, Any] = {"traceopt": {"schema": 1, "cycle": {"name": "timing"}, **recorded}}
    return Facts(build.read(build.document(events, **metadata, **({"deviceProperties": [A100]} if gpu else {}))))


def test_fires_on_half_of_the_backward_products() -> None:
    check, [found] = answer(UnusedGradients, facts(UNUSED))
    assert check.status == "found"
    assert "the gradients of 4 parameters of Features" in found.why
    assert "take 4.0 ms of each 10.0 ms step" in found.why
    assert found.saving is not None
    assert [found.saving.low_us, found.saving.est_us, found.saving.high_us] == [1_020, 2_020, 4_020], (
        "the 20 us in which they are added go in any case"
    )


def test_on_a_gpu_that_waits_for_the_host_nothing_is_saved() -> None:
    _, [found] = answer(UnusedGradients, facts(UNUSED, gpu=True))
    assert (found.saving, found.impact) == (None, "info")


def test_a_part_of_the_weights_saves_their_part_or_little() -> None:
    _, [found] = answer(UnusedGradients, facts({**UNUSED, "weights": 4, "tensors": 4, "unused_tensors": 2}))
    assert found.saving is not None
    assert [found.saving.low_us, found.saving.est_us, found.saving.high_us] == [10, 1_010, 2_010], "as above"


def test_without_a_whole_model_its_part_of_the_backward_passes_may_go() -> None:
    """A reference model under no_grad has no backward pass at all, with all that is not a product: 5.5 ms in a step."""
    _, [found] = answer(UnusedGradients, facts(UNUSED, accumulations=8, trained=TRAINED))
    assert found.saving is not None
    assert [found.saving.low_us, found.saving.est_us] == [0, 1_000]
    assert found.saving.high_us == pytest.approx(0.5 * (2_200 + 2_200 + 1_100), rel=0.03)
    assert "under torch.no_grad()" in found.fix.text
    assert "At most, 50% of all backward passes" in found.saving.basis


@pytest.mark.parametrize(
    ("products", "called", "low", "expected"),
    [
        pytest.param(1, ["Features_0"], 0.8 * 3_500, 7_000, id="its first layer gives no gradient of its input"),
        pytest.param(2, ["Features_0"], 0, 0.25 * 6_000, id="a gradient leaves it: earlier weights may be trained"),
        pytest.param(1, ["Features_0", "Features_1"], 0, 0.25 * 3_000, id="another module of its class"),
        pytest.param(1, [], 0, 0.25 * 3_000, id="no frames"),
    ],
)
def test_the_whole_backward_pass_of_a_reference_goes_if_nothing_before_it_takes_part(
    products: int, called: list[str], low: float, expected: float
) -> None:
    """7 ms of backward pass: a linear layer with 1 or 2 products of 3 ms, and what follows it."""
    models = [
        {"class": "vgg.Features", "gradients": UNUSED, "updated_by_hand": False},
        {"class": "train.Student", "gradients": TRAINED},
    ]
    recorded = {"models": models, "optimizers": [{"class": "torch.optim.adam.Adam"}]}
    facts = steps(
        [build.python(f"nn.Module: {name}", 100 + 1_000 * at, 900) for at, name in enumerate(called)],
        [operator("aten::linear", 200, 300, number=1), operator("aten::relu", 600, 300, number=2)],
        node("ReluBackward0", 8_000, 500, 2)[:1],
        node("AddmmBackward0", 9_000, 6_500, 1)[:1],
        [build.op("aten::mm", 9_100 + 3_100 * at, 3_000) for at in range(products)],
        [event for at in range(8) for event in accumulation(15_550 + 30 * at, [8])],
        traceopt={"schema": 1, "cycle": {"name": "timing"}, **recorded},
    )
    found = the(UnusedGradients, facts)
    assert found.saving is not None
    assert [found.saving.low_us, found.saving.est_us] == pytest.approx([low, expected], rel=0.01)


@pytest.mark.parametrize(("ends", "high_us"), [(1, 0.5 * 6_000), (2, 0.5 * (6_200 + 8 * 20))])
def test_a_model_that_passes_gradients_on_keeps_the_rest_of_its_backward_pass(ends: int, high_us: float) -> None:
    """Two convolutions of 3 ms, of which one or both have no gradient of their input. One of two models is trained."""
    models = [
        {"class": "nn.Sequential", "gradients": UNUSED, "updated_by_hand": False},
        {"class": "nn.Sequential", "gradients": TRAINED},
    ]
    masks = (2 - ends) * ["[True, True, True]"] + ends * ["[False, True, True]"]
    recorded = {"models": models, "optimizers": [{"class": "torch.optim.adam.Adam"}]}
    products = [
        build.op("aten::convolution_backward", 9_100 + 3_100 * at, 3_000, **{"Concrete Inputs": [""] * 10 + [mask]})
        for at, mask in enumerate(masks)
    ]
    facts = steps(
        [operator("aten::relu", 600, 300, number=2)],
        *(node("ConvolutionBackward0", 9_000 + 3_100 * at, 3_100, 3 + at)[:1] for at in range(2)),
        products,
        [event for at in range(8) for event in accumulation(15_550 + 30 * at, [8])],
        traceopt={"schema": 1, "cycle": {"name": "timing"}, **recorded},
    )
    saving = the(UnusedGradients, facts).saving
    assert saving is not None
    assert saving.est_us == pytest.approx(0.25 * 6_000, rel=0.01)
    assert saving.high_us == pytest.approx(high_us, rel=0.01)
    assert ("they pass gradients on" in saving.basis) == (ends == 1)


def test_names_of_kernels_tell_which_compute_gradients_of_weights() -> None:
    """Of 2 ms: 0.6 ms in a kernel for weights, and 0.2 ms to sum up the gradient of the bias."""
    kernels = {
        "sm80_xmma_wgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize32x128x32": 600,
        "sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x32": 1_200,
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16>>": 200,
    }
    events: list[build.Json] = []
    for step in range(STEPS):
        start = step * STEP_US
        events += [
            build.annotation(f"ProfilerStep#{step}", start, STEP_US),
            build.op("autograd::engine::evaluate_function: ConvolutionBackward0", start + 2_000, 2_200),
            build.op("aten::convolution_backward", start + 2_100, 2_000),
        ]
        at = start + 2_110
        for number, (name, duration) in enumerate(kernels.items(), 3 * step + 1):
            events += [
                build.runtime("cudaLaunchKernel", at, 2, number),
                build.kernel(name, at + 5, duration - 5, number),
            ]
            at += duration
    facts = Facts(build.read(build.document(events, deviceProperties=[A100])))
    assert weight_share(facts, facts.backward_products) == pytest.approx(0.4, rel=0.02)


@pytest.mark.parametrize(
    ("gradients", "accumulations", "reason"),
    [
        (None, 4, "Which parameters have gradients was not recorded; traceopt run does."),
        ({**UNUSED, "unused_tensors": 0, "unused_weights": 0}, 4, "Optimizers use the gradients of all 4 parameters"),
        (UNUSED, 3, "whose gradients are not used take 40%"),  # left from an earlier phase: no step adds to them
        ({**UNUSED, "weights": 1}, 4, "not recorded"),  # a file that contradicts itself
    ],
)
def test_silent(gradients: dict[str, int] | None, accumulations: int, reason: str) -> None:
    check, findings = answer(UnusedGradients, facts(gradients, accumulations))
    assert findings == []
    assert reason in (check.reason or "")


@pytest.mark.parametrize(
    ("recording", "reason"),
    [
        (facts(UNUSED, optimizers=0), "No optimizer of torch was recorded"),
        (facts(UNUSED, by_hand=None), "No optimizer updates any of the weights"),
        (facts(UNUSED, by_hand=True), "Optimizers use the gradients of all 4 parameters"),
        (facts(UNUSED, 8, trained=TRAINED, by_hand=True), "Optimizers use the gradients of all 8 parameters"),
    ],
)
def test_silent_about_weights_that_the_script_may_update_by_itself(recording: Facts, reason: str) -> None:
    check, findings = answer(UnusedGradients, recording)
    assert findings == []
    assert reason in (check.reason or "")
