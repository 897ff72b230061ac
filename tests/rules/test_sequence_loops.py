"""EF010 and EF011: loops over time steps that index a tensor, or call a recurrent cell."""

from __future__ import annotations

import pytest
from support.autograd_steps import the
from support.sequence_loops import sequence_loop

from traceopt.rules.catalogue.ef010_indexing_in_loop import IndexingInLoop
from traceopt.rules.catalogue.ef011_recurrent_cell_loop import RecurrentCellLoop
from traceopt.rules.rule import Rule
from traceopt.testing import answer


def test_a_cell_costs_its_forward_and_backward() -> None:
    found = the(RecurrentCellLoop, sequence_loop())
    assert "calls a recurrent cell 20 times per step" in found.why
    assert "this line takes 6.0 ms of each 20.0 ms step" in found.why  # with the index, which the layer does not need
    assert found.saving is not None
    assert found.saving.low_us == 0  # the loop may have to stay
    assert found.saving.est_us == pytest.approx(3_000, rel=0.05)


@pytest.mark.parametrize("rule", [IndexingInLoop, RecurrentCellLoop])
def test_a_few_calls_are_no_loop(rule: type[Rule]) -> None:
    check, findings = answer(rule, sequence_loop(times=3))
    assert findings == []
    assert check.status == "passed"
