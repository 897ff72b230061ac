"""Which parameters have gradients, and which of them no optimizer updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torch


def gradients(optimized: Callable[[Any], list[Any]], frozen: bool = False) -> dict[str, int]:
    """Of a model with two layers, after a backward pass. `optimized`: the tensors of the optimizer."""
    import torch

    from traceopt.capture.metadata.inventory import ByHand, Updated, describe_model

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).requires_grad_(not frozen)
    optimizer = torch.optim.SGD(optimized(model), lr=0.1)
    image = torch.ones(1, 3, requires_grad=True)
    model(image).sum().backward()
    counts: dict[str, int] = describe_model(torch, model, Updated([optimizer], [model]), ByHand())["gradients"]
    return counts


def test_all_are_updated() -> None:
    found = gradients(lambda model: list(model.parameters()))
    assert found == {"tensors": 4, "unused_tensors": 0, "weights": 20, "unused_weights": 0}


def test_only_the_input_is_updated() -> None:
    import torch

    image = torch.ones(1, 3, requires_grad=True)
    assert gradients(lambda _: [image]) == {"tensors": 4, "unused_tensors": 4, "weights": 20, "unused_weights": 20}
    assert gradients(lambda _: [image], frozen=True) == dict.fromkeys(
        ("tensors", "unused_tensors", "weights", "unused_weights"), 0
    )


def test_only_the_last_layer_is_updated() -> None:
    found = gradients(lambda model: list(model[1].parameters()))
    assert found == {"tensors": 4, "unused_tensors": 2, "weights": 20, "unused_weights": 12}


@pytest.mark.parametrize("flat", [False, True])
def test_copies_that_an_optimizer_updates(flat: bool) -> None:
    """As those for mixed precision, and of sharded optimizers."""
    import torch

    def copies(model: Any) -> list[Any]:
        copied = [parameter.detach().double().clone() for parameter in model.parameters()]
        return [torch.cat([one.flatten() for one in copied])] if flat else copied

    assert gradients(copies)["unused_tensors"] == 0


@pytest.mark.parametrize("by_hand", [False, True])
def test_weights_that_the_script_updates_by_itself(by_hand: bool) -> None:
    import torch

    from traceopt.capture.metadata.inventory import ByHand, Updated, describe_model

    model = torch.nn.Linear(3, 4)
    watch = ByHand()
    model(torch.ones(1, 3)).sum().backward()
    described = describe_model(torch, model, Updated([], [model]), watch)
    assert described["updated_by_hand"] is None
    if by_hand:
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)
    watch.look_again()
    assert described["updated_by_hand"] is by_hand
