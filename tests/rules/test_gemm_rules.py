"""GM003 to GM005 beyond their planted traces: what may depend on each other, what a larger batch really gives."""

from __future__ import annotations

import pytest
from support.findings import found
from support.traces import GetExample


@pytest.mark.parametrize("code", ["GM003", "GM004", "GM005"])
@pytest.mark.parametrize("scenario", ["healthy", "five_faults", "launch_bound", "fp32_matmul"])
def test_silent_without_their_fault(example: GetExample, code: str, scenario: str) -> None:
    assert found(code, example(scenario).facts) == []
