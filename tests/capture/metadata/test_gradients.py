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
    counts: dict[str, int] = describe_model(torch, model, Updated([optimizer], [model]), ByHand(torch))["gradients"]
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
    watch = ByHand(torch)
    model(torch.ones(1, 3)).sum().backward()
    described = describe_model(torch, model, Updated([], [model]), watch)
    assert described["updated_by_hand"] is None
    if by_hand:
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)
    watch.look_again()
    assert described["updated_by_hand"] is by_hand


class Cuda:
    """The part of torch that tells whether a GPU is done."""

    def __init__(self, idle: bool) -> None:
        self.cuda, self.idle = self, idle

    def current_stream(self, _device: Any) -> Any:
        return self

    def query(self) -> bool:
        return self.idle


class OnDevice:
    """A weight whose values change at each look, on a device of this kind."""

    def __init__(self, kind: str) -> None:
        self.type, self.looks = kind, 0
        self.device = self

    def is_contiguous(self) -> bool:
        return True

    def numel(self) -> int:
        return 4

    def detach(self) -> Any:
        import torch

        self.looks += 1
        return torch.full((4,), float(self.looks))


OnDevice.__name__ = "Parameter"


@pytest.mark.parametrize(
    ("kind", "idle", "seen"), [("cuda", True, True), ("cuda", False, None), ("mps", True, None), ("cpu", False, True)]
)
def test_values_are_not_waited_for(kind: str, idle: bool, seen: bool | None) -> None:
    from traceopt.capture.metadata.inventory import ByHand

    model: dict[str, Any] = {"updated_by_hand": None}
    fake = Cuda(True)
    watch = ByHand(fake)
    watch.watch(model, [OnDevice(kind)])
    fake.idle = idle
    watch.look_again()
    assert model["updated_by_hand"] is seen


def test_a_weight_that_is_not_a_number_has_not_changed() -> None:
    import torch

    from traceopt.capture.metadata.inventory import ByHand

    model: dict[str, Any] = {"updated_by_hand": None}
    weight = torch.nn.Parameter(torch.full((3,), float("nan")))
    watch = ByHand(torch)
    watch.watch(model, [weight, torch.nn.Parameter(torch.rand(3, 4).t())])
    watch.look_again()
    assert model["updated_by_hand"] is False
