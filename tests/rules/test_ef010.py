"""EF010 indexing-in-loop: split the tensor once instead of indexing it in a loop."""

from __future__ import annotations

import pytest
from support.autograd_steps import the
from support.sequence_loops import sequence_loop

from traceopt.rules.catalogue.ef010_indexing_in_loop import IndexingInLoop
from traceopt.testing import answer
from traceopt.testing import events as build


def test_fires_on_the_backward_nodes_of_an_index_at_its_line() -> None:
    found = the(IndexingInLoop, sequence_loop())
    assert "A line indexes a tensor 20 times per step" in found.why
    assert "This takes 1.0 ms of each 20.0 ms step." in found.why
    assert found.saving is not None
    assert found.saving.low_us < found.saving.est_us == pytest.approx(900, rel=0.02)
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 21)]
    assert found.shares_cause_with == ["EF011"]  # without the loop, nothing is indexed


def test_rows_of_groups_are_sorted_once_and_split() -> None:
    found = the(IndexingInLoop, sequence_loop(index=("aten::index", "IndexBackward0")))
    assert "A line indexes a tensor 20 times per step" in found.why
    assert "x[group == g]" in (found.fix.code or "")
    assert found.shares_cause_with == ["EF018"]


@pytest.mark.parametrize("index", [("aten::index", "IndexBackward0"), ("aten::select", "SelectBackward0")])
def test_a_line_that_each_layer_calls_once_is_no_loop(index: tuple[str, str]) -> None:
    assert answer(IndexingInLoop, sequence_loop(index=index, calls=20))[1] == []


def test_a_padding_indexes_by_itself() -> None:
    """No line of the script can split what F.pad(mode="circular") slices."""
    assert answer(IndexingInLoop, sequence_loop(inside=build.op("aten::pad", 0, 30)))[1] == []


def test_what_a_layer_of_torch_indexes_is_not_the_script_s() -> None:
    attention = build.python("torch/nn/functional.py(5700): _in_projection_packed", 0, 30)
    assert answer(IndexingInLoop, sequence_loop(inside=attention))[1] == []


def test_on_a_gpu_their_kernels_count() -> None:
    assert "This takes 0.60 ms of each 20.0 ms step." in the(IndexingInLoop, sequence_loop(gpu=True)).why


def test_silent_on_the_elements_of_a_small_tensor() -> None:
    check, findings = answer(IndexingInLoop, sequence_loop(index_us=20, times=36))
    assert findings == []
    assert "The backward pass of indexing takes 0.72 ms" in (check.reason or "")
