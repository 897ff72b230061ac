"""GM003 to GM005 beyond their planted traces: what may depend on each other, what a larger batch really gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.findings import found
from support.jobs import facts_with

if TYPE_CHECKING:
    from conftest import GetExample


@pytest.mark.parametrize("code", ["GM003", "GM004", "GM005"])
@pytest.mark.parametrize("scenario", ["healthy", "five_faults", "launch_bound", "fp32_matmul"])
def test_silent_without_their_fault(example: GetExample, code: str, scenario: str) -> None:
    assert found(code, example(scenario).facts) == []


def test_fused_attention_is_no_mixed_precision() -> None:
    """In FP32 it uses Tensor Cores, too."""
    facts = facts_with("fp32_matmul", tokens=4096, batch=1)
    work = facts.tensor_core_work
    assert work.used_ns > 0.1 * work.eligible_ns
    (finding,) = found("TC001", facts)
    assert "in FP32, without the Tensor Cores of the NVIDIA A100-SXM4-40GB." in finding.why
