"""Operators that lines call: what lies between the rounds of a loop."""

from __future__ import annotations

import numpy as np
import pytest

from traceopt.analyzer.facts import Facts
from traceopt.testing import events as build


@pytest.mark.parametrize(("read_us", "between"), [(150, 1), (500, 0)])
def test_reads_before_the_backward_pass_are_not_between_the_rounds(read_us: int, between: int) -> None:
    events = [build.annotation("ProfilerStep#0", 0, 2_000), build.op("aten::_local_scalar_dense", read_us, 5)]
    events += [build.op("aten::add", at, 20) for at in (100, 200)]
    events += [build.op("autograd::engine::evaluate_function: AddBackward0", at, 20) for at in (1_000, 1_100)]
    facts = Facts(build.read(build.document(events)))
    names = facts.trace.names
    rounds = [row for row in facts.called_ops.rows.tolist() if "Add" in names[facts.slices.name[row]].title()]
    loop = facts.called_ops.only(np.array(rounds))
    assert len(loop.rows) == 4
    assert loop.between(facts.regions, facts.steps, "aten::_local_scalar_dense") == between
