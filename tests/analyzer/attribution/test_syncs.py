"""Blocking calls: why each is there, where it was called, and the stall it causes."""

from __future__ import annotations

import pytest
from support.facts import facts_of
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, annotation, kernel, op, python, read, runtime, span

SCENARIOS_WITH_SYNC = {
    "item_stall": "scalar_read",
    "blocking_copy": "blocking_copy",
    "explicit_synchronize": "explicit",
    "nonzero": "data_dependent_shape",
    "metric_sync": "scalar_read",
}


def facts_with(*events: Json) -> Facts:
    """Beside a kernel of 0.1 ms."""
    return facts_of(kernel("gemm", 0, 100, 99), *events)


@pytest.mark.parametrize(
    ("ops", "reason", "outermost"),
    [
        (["aten::item", "aten::_local_scalar_dense"], "scalar_read", "aten::item"),
        (["aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"], "scalar_read", "aten::is_nonzero"),
        (["aten::to", "aten::_to_copy", "aten::copy_"], "blocking_copy", "aten::to"),
        (["aten::nonzero"], "data_dependent_shape", "aten::nonzero"),
        (["aten::index", "aten::nonzero"], "data_dependent_shape", "aten::index"),
        (["aten::masked_select"], "data_dependent_shape", "aten::masked_select"),
        (["aten::equal", "aten::item", "aten::copy_"], "scalar_read", "aten::equal"),  # the most specific wins
        (["aten::linalg_solve"], "other", None),
        ([], "explicit", None),
    ],
)
def test_reason_from_the_operators_around(ops: list[str], reason: str, outermost: str | None) -> None:
    nested = [op(name, 200 + depth, 100 - 2 * depth) for depth, name in enumerate(ops)]
    facts = facts_with(*nested, runtime("cudaStreamSynchronize", 220, 50, 1))
    assert facts.syncs.reason.tolist() == [reason]
    if outermost:
        (cause,) = facts.syncs.cause_slice.tolist()
        assert facts.trace.names[facts.slices.name[cause]] == outermost


@pytest.mark.parametrize(("direction", "reason"), [("HtoD", "to_device"), ("DtoH", "blocking_copy")])
def test_a_copy_waits_in_one_of_two_directions(direction: str, reason: str) -> None:
    copy = span("gpu_memcpy", f"Memcpy {direction} (Pinned -> Device)", 212, 5, 7, correlation=2, device=0, stream=7)
    calls = [runtime("cudaMemcpyAsync", 205, 5, 2), runtime("cudaStreamSynchronize", 220, 50, 1)]
    facts = facts_with(op("aten::to", 200, 100), op("aten::copy_", 202, 90), *calls, copy | {"pid": 0})
    assert facts.syncs.reason.tolist() == [reason]


@pytest.mark.parametrize(
    "name",
    ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize", "cudaMemcpy"],
)
def test_calls_that_block(name: str) -> None:
    assert len(facts_with(runtime(name, 220, 50, 1)).syncs) == 1


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventQuery"])
def test_calls_that_do_not(name: str) -> None:
    assert len(facts_with(runtime(name, 220, 50, 1)).syncs) == 0


def test_nested_calls_are_one() -> None:
    """A driver call inside the runtime call is the same wait."""
    facts = facts_with(
        runtime("cudaDeviceSynchronize", 220, 50, 1), span("cuda_driver", "cuCtxSynchronize", 222, 46, correlation=2)
    )
    assert len(facts.syncs) == 1


def test_idle_during_the_call_is_its_stall() -> None:
    facts = facts_with(runtime("cudaDeviceSynchronize", 50, 350, 1), kernel("gemm", 300, 50, 98))
    # busy [0, 100) and [300, 350) by orphan work: what was queued is not the sync's; after 350 nothing is launched
    assert facts.syncs.idle.tolist() == [50_000]


def test_steps_and_window() -> None:
    facts = Facts(
        read(
            [
                annotation("ProfilerStep#0", 1000, 1000),
                annotation("ProfilerStep#1", 2000, 1000),
                runtime("cudaLaunchKernel", 1000, 5, 99),
                kernel("gemm", 1010, 1500, 99),
                runtime("cudaLaunchKernel", 2000, 5, 98),
                kernel("gemm", 2520, 100, 98),
                runtime("cudaDeviceSynchronize", 100, 50, 1),  # before the window
                runtime("cudaDeviceSynchronize", 1100, 50, 2),
                runtime("cudaDeviceSynchronize", 2100, 50, 3),
                runtime("cudaDeviceSynchronize", 3100, 50, 4),  # after it
            ]
        )
    )
    assert facts.syncs.step.tolist() == [0, 1]


@pytest.mark.parametrize(("scenario", "reason"), SCENARIOS_WITH_SYNC.items())
def test_planted_syncs(example: GetExample, scenario: str, reason: str) -> None:
    """The most expensive reason is the planted one, and its stall is close to the planted cost; the fixed twin has
    none.
    """
    facts = example(scenario).facts
    by_reason = {name: int(facts.syncs.stall[facts.syncs.reason == name].sum()) for name in set(facts.syncs.reason)}
    assert max(by_reason, key=lambda name: by_reason[name]) == reason
    fixed = example(scenario, fixed=True).facts
    stall = int(fixed.syncs.stall[fixed.syncs.reason == reason].sum())
    assert stall / fixed.steps.window_ns < 0.02
    where = facts.call_sites.of(facts.syncs.cause_slice[facts.syncs.stall.argmax()][None])[0]
    site = facts.call_sites.sites[where]
    assert f"{site.file}:{site.line}" == example(scenario).planted.site


def test_the_healthy_wait_is_free(example: GetExample) -> None:
    """loss.item() at the end of the step waits for a busy GPU: much sync time, hardly any stall."""
    facts = example("loss_item").facts
    waited = int((facts.syncs.end - facts.syncs.start).sum())
    assert waited > 0.3 * facts.steps.window_ns
    assert facts.syncs.stall.sum() < 0.03 * facts.steps.window_ns


def test_a_sync_that_the_user_asked_for_is_placed_by_its_frame() -> None:
    facts = facts_with(
        python("train.py(33): timed", 200, 100),
        python("torch/cuda/__init__.py(9): synchronize", 210, 80),
        runtime("cudaDeviceSynchronize", 220, 50, 1),
    )
    (site,) = facts.call_sites.of(facts.syncs.cause_slice).tolist()
    assert str(facts.call_sites.sites[site].file) == "train.py"
