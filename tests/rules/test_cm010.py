"""CM010 search-for-unused-parameters: stop searching for unused parameters."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_steps import Events, cpu_answer

from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.testing import events as build

SEARCH_US = 900
SEARCHING = {"looks_for_unused": True, "unused_bytes": 0, "built": [["train.py(12): main"]]}


def answered(search_us: float = SEARCH_US, **ddp: Any) -> tuple[Check, list[Finding]]:
    """Steps of 10 ms: the forward pass, and the search after it."""

    def events(t: float, _: int) -> Events:
        yield build.annotation("DistributedDataParallel.forward", t, 3_000 + search_us)
        yield build.op("aten::mm", t + 10, 2_900)
        yield build.op("torch.distributed.ddp.reducer::search_unused_parameters", t + 2_950, search_us)
        yield build.op("autograd::engine::evaluate_function: MmBackward0", t + 4_100, 4_000)

    return cpu_answer("CM010", events, traceopt={"environment": {"threads": 1}, "ddp": [SEARCHING | ddp]})


def test_fires_with_the_time_of_the_search() -> None:
    _, [found] = answered()
    saving = found.saving or pytest.fail("no saving")
    assert saving.est_us == pytest.approx(0.95 * SEARCH_US, rel=0.02)
    assert str(found.locations[0]) == "train.py:12"
    assert found.fix.code == "DistributedDataParallel(..., find_unused_parameters=False)"


def test_the_wait_for_the_other_ranks_counts_if_it_is_for_the_result() -> None:
    """After the last gradient is copied back, DDP waits for nothing but that; before, for the gradients."""

    def events(t: float, _: int) -> Events:
        yield build.op("aten::mm", t + 10, 2_900)
        yield build.op("torch.distributed.ddp.reducer::search_unused_parameters", t + 2_950, 50)
        yield build.op("gloo:all_reduce", t + 5_000, 1_000, 2)
        yield build.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", t + 6_000, 100)
        yield build.op("gloo:all_reduce", t + 5_500, 1_400, 3)
        yield build.op("aten::mm", t + 7_000, 2_900)

    own = {"environment": {"threads": 1}, "ddp": [SEARCHING]}
    _, [found] = cpu_answer("CM010", events, traceopt=own)
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(0.95 * (50 + 800), rel=0.02)
    assert "0.80 ms of it until all ranks know the result" in found.why


@pytest.mark.parametrize(
    ("ddp", "reason"),
    [
        ({"looks_for_unused": False}, "DDP does not look for unused parameters"),
        ({"unused_bytes": 4_096}, "DDP found unused parameters"),
        ({"unused_bytes": None}, "DDP found unused parameters, or it is unknown"),  # they changed
        ({"search_us": 50}, "The search for unused parameters takes 0.5% of"),
    ],
)
def test_silent(ddp: dict[str, Any], reason: str) -> None:
    check, findings = answered(**ddp)
    assert not findings
    assert (check.reason or "").startswith(reason)
