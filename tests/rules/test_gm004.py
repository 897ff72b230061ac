"""GM004 many-small-gemms: batch the small matmuls of a loop."""

from __future__ import annotations

import pytest
from support.findings import found
from support.planted import PlantedFault
from support.traces import GetExample

from traceopt.analyzer.facts import Facts


class TestPlanted(PlantedFault):
    code = "GM004"


def test_gm004_leaves_what_may_be_a_chain_alone(example: GetExample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products whose result could be the next one's input: N equals K."""
    facts = example("looped_products").facts
    assert found("GM004", facts)
    square = Facts(facts.trace)
    sizes = facts.gemm_calls.sizes.copy()
    sizes[:, 2] = sizes[:, 1]
    monkeypatch.setitem(square.gemm_calls.__dict__, "sizes", sizes)
    assert found("GM004", square) == []
