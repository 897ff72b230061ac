"""Subnormal numbers are found in samples of tensors, and neither the tensors nor the thread's setting change."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.torch


def looked_at(*tensors: Any) -> dict[str, Any]:
    import torch

    from traceopt.capture.metadata.values.subnormals import Subnormals

    subnormals = Subnormals(torch)
    subnormals.look("parameter", tensors)
    return subnormals.document()


def test_full_of_them_and_next_to_none() -> None:
    import torch

    numbers = torch.full((64, 64), 1e-39)
    mixed = torch.zeros(40, 64)
    mixed[0, 0] = 1e-39
    found = looked_at(numbers, torch.rand(32, 64), mixed, torch.full((4,), 1e-39), torch.full((64, 64), 1, dtype=int))
    [row] = found["tensors"]
    assert (row["kind"], row["shape"], row["share"]) == ("parameter", [64, 64], 1.0)
    assert row["slowdown"] >= 1
    assert not found["flushed"]
    assert float(torch.full((1,), 1e-38).mul(0.1)) > 0  # as before: the measurement has a thread of its own
    assert bool((numbers == torch.full((64, 64), 1e-39)).all())


def test_a_sample_of_any_layout() -> None:
    import torch

    numbers = torch.full((512, 300), 1e-39).t()[:, ::2]
    assert looked_at(numbers)["tensors"][0]["share"] == 1.0


def test_a_shard_whose_memory_was_given_back() -> None:
    import torch

    shard = torch.full((64, 64), 1e-39)
    shard.untyped_storage().resize_(0)
    assert looked_at(shard)["tensors"] == []


def test_activations_are_those_that_the_backward_pass_needs() -> None:
    import torch

    from traceopt.capture.metadata.values.saved_tensors import saved_tensors

    weight = torch.rand(8, 8, requires_grad=True)
    hidden = torch.full((8, 8), 0.5)
    loss = torch.exp(hidden @ weight).sum()
    shapes = [tuple(one.shape) for one in saved_tensors(torch, loss)]
    assert shapes.count((8, 8)) >= 2
    loss.backward()  # it still can
    assert list(saved_tensors(torch, loss)) == []  # they are freed now
    assert list(saved_tensors(torch, torch.ones(1))) == []
