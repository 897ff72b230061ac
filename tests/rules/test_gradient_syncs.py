"""Whose sync it is: of gradient clipping and the loss scaler (HS005), or of the user's code (HS001)."""

from __future__ import annotations

from support.facts import facts_of

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, annotation, kernel, op, python, runtime


def item(at: float, number: int) -> list[Json]:
    return [
        op("aten::item", at, 20),
        op("aten::_local_scalar_dense", at + 1, 18),
        runtime("cudaStreamSynchronize", at + 5, 10, number),
    ]


def after_a_launch(*events: Json) -> Facts:
    return facts_of(runtime("cudaLaunchKernel", 10, 5, 99), kernel("k", 20, 100, 99), *events)


def test_below_a_frame_of_clipping_or_scaling() -> None:
    for frame in (
        "torch/nn/utils/clip_grad.py(20): clip_grad_norm_",
        "/usr/lib/python3/site-packages/torch/amp/grad_scaler.py(350): _maybe_opt_step",
        "train.py(30): clip_gradients",
    ):
        assert after_a_launch(python(frame, 90, 60), *item(100, 1)).gradient_syncs.tolist() == [True]
    assert after_a_launch(python("train.py(30): train_step", 90, 60), *item(100, 1)).gradient_syncs.tolist() == [False]


def test_the_first_read_after_the_scalers_operator() -> None:
    unscale = op("aten::_amp_foreach_non_finite_check_and_unscale_", 50, 10)
    step = annotation("Optimizer.step#AdamW.step", 150, 20)
    facts = after_a_launch(*item(20, 1), unscale, *item(100, 2), step, *item(200, 3))
    assert facts.gradient_syncs.tolist() == [False, True, False]


def test_a_read_behind_the_update_is_the_users() -> None:
    unscale = op("aten::_amp_foreach_non_finite_check_and_unscale_", 50, 10)
    fused = annotation("Optimizer.step#AdamW.step", 70, 20)
    assert after_a_launch(unscale, fused, *item(100, 2)).gradient_syncs.tolist() == [False]
