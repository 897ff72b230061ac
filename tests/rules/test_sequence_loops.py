"""EF010 and EF011: loops over time steps that index a tensor, or call a recurrent cell."""

from __future__ import annotations

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Finding
from traceopt.rules.catalogue.ef010_indexing_in_loop import IndexingInLoop
from traceopt.rules.catalogue.ef011_recurrent_cell_loop import RecurrentCellLoop
from traceopt.rules.rule import Rule
from traceopt.testing import A100, answer
from traceopt.testing import events as build

STEP_US, STEPS, TIMES = 20_000, 4, 20
NODE = "autograd::engine::evaluate_function: "


def facts(*, times: int = TIMES, index_us: int = 50, gpu: bool = False, pads: bool = False) -> Facts:
    """Each time step of the loop indexes for 20 us and calls a cell for 100 us. The backward pass takes 50 us for the
    index and 150 us for the cell, a GPU 30 us for each. `pads`: a circular padding does the indexing.
    """
    events: list[build.Json] = []
    launches = 0
    for step in range(STEPS):
        start = step * STEP_US
        events.append(build.annotation(f"ProfilerStep#{step}", start, STEP_US))
        events.append(build.python("train.py(21): forward", start, 8_000))
        events.append(build.annotation("Optimizer.step#SGD.step", start + 19_000, 500))
        for time in range(times):
            at, back = start + 10 + 150 * time, start + 8_100 + 300 * time
            first = 1_000 * step + 2 * time
            index, cell = ({"Sequence number": first + n, "Fwd thread id": 1} for n in (0, 1))
            nodes = [
                build.op(f"{NODE}UnsafeSplitBackward0", back, 150, **cell),
                build.op(f"{NODE}SelectBackward0", back + 200, index_us, **index),
            ]
            events += [
                build.op("aten::select", at, 20, **index | {"Fwd thread id": 0}),
                build.op("aten::lstm_cell", at + 30, 100, **cell | {"Fwd thread id": 0}),
                *nodes,
                *([build.op("aten::pad", at - 5, 30)] if pads else []),
            ]
            for node in nodes if gpu else []:
                launches += 1
                events.append(build.runtime("cudaLaunchKernel", node["ts"] + 1, 2, launches))
                events.append(build.kernel("elementwise_kernel", node["ts"] + 5, 30, launches))
    return Facts(build.read(build.document(events, **({"deviceProperties": [A100]} if gpu else {}))))


def the(rule: type[Rule], found: Facts) -> Finding:
    check, findings = answer(rule, found)
    return findings[0] if findings else pytest.fail(check.reason or "")


def test_the_backward_nodes_of_an_index_are_saved_at_its_line() -> None:
    found = the(IndexingInLoop, facts())
    assert "A line indexes a tensor 20 times per step" in found.why
    assert "This takes 1.0 ms of each 20.0 ms step." in found.why
    assert found.saving is not None
    assert found.saving.low_us < found.saving.est_us == pytest.approx(900, rel=0.02)
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 21)]
    assert found.shares_cause_with == ["EF011"]  # without the loop, nothing is indexed


def test_a_padding_indexes_by_itself() -> None:
    """No line of the script can split what F.pad(mode="circular") slices."""
    assert answer(IndexingInLoop, facts(pads=True))[1] == []


def test_on_a_gpu_their_kernels_count() -> None:
    assert "This takes 0.60 ms of each 20.0 ms step." in the(IndexingInLoop, facts(gpu=True)).why


def test_a_cell_costs_its_forward_and_backward() -> None:
    found = the(RecurrentCellLoop, facts())
    assert "calls a recurrent cell 20 times per step" in found.why
    assert "this line takes 6.0 ms of each 20.0 ms step" in found.why  # with the index, which the layer does not need
    assert found.saving is not None
    assert found.saving.low_us == 0  # the loop may have to stay
    assert found.saving.est_us == pytest.approx(3_000, rel=0.05)


@pytest.mark.parametrize("rule", [IndexingInLoop, RecurrentCellLoop])
def test_a_few_calls_are_no_loop(rule: type[Rule]) -> None:
    check, findings = answer(rule, facts(times=3))
    assert findings == []
    assert check.status == "passed"


def test_the_elements_of_a_small_tensor_are_no_sequence() -> None:
    check, findings = answer(IndexingInLoop, facts(index_us=20, times=36))
    assert findings == []
    assert "The backward pass of indexing takes 0.72 ms" in (check.reason or "")
