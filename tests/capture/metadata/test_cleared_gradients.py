"""Which optimizer reads the gradients of which backward pass, followed with real networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from traceopt.capture.metadata.cleared_gradients import MOST_PASSES, MOST_STEPS, ClearedGradients

pytestmark = pytest.mark.torch

Rows = list[dict[str, Any]]


class Pair:
    """A generator and a discriminator, each with an optimizer."""

    def __init__(self) -> None:
        import torch

        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
        self.optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (self.first, self.second)]
        self.followed = ClearedGradients()

    def outputs(self) -> Any:
        import torch

        return self.first(torch.ones(2, 3))

    def backward(self, step: int, loss: Any) -> None:
        if self.followed.active:
            self.followed.backward_begins(step)
        loss.sum().backward()
        if self.followed.active:
            self.followed.backward_ends()

    def update(self, which: int) -> None:
        self.optimizers[which].step()
        if self.followed.active:
            self.followed.read(self.optimizers[which])

    def clear(self, which: int, **options: bool) -> None:
        self.optimizers[which].zero_grad(**options)


def rows(step_of: Callable[[Pair, int], None], steps: int = 10) -> Rows:
    pair = Pair()
    for step in range(steps):
        step_of(pair, step)
    return [
        {key: row[key] for key in ("backward", "of", "runs", "cleared", "shapes")} for row in pair.followed.document()
    ]


def gan(pair: Pair, step: int, *, detached: bool = False, frozen: bool = False, **clearing: bool) -> None:
    images = pair.outputs()
    pair.clear(1, **clearing)
    pair.backward(step, pair.second(images.detach() if detached else images))
    pair.update(1)
    pair.clear(0, **clearing)
    pair.second.requires_grad_(not frozen)
    pair.backward(step, pair.second(pair.outputs()))
    pair.second.requires_grad_(True)
    pair.update(0)


def test_both_networks_of_a_gan() -> None:
    assert rows(gan) == [
        {"backward": 1, "of": 2, "runs": 9, "cleared": 8, "shapes": [[1, 4], [1]]},
        {"backward": 0, "of": 2, "runs": 9, "cleared": 9, "shapes": [[4, 3], [4]]},
    ]


def test_a_detached_batch_leaves_the_discriminator() -> None:
    [row] = rows(lambda pair, step: gan(pair, step, detached=True))
    assert (row["backward"], row["shapes"]) == (1, [[1, 4], [1]])
    assert rows(lambda pair, step: gan(pair, step, detached=True, frozen=True)) == []


def test_gradients_that_are_filled_with_zeros_are_not_seen() -> None:
    assert rows(lambda pair, step: gan(pair, step, set_to_none=False)) == []


def test_one_loss_for_two_optimizers_is_read_by_both() -> None:
    def step_of(pair: Pair, step: int) -> None:
        pair.backward(step, pair.second(pair.outputs()))
        for which in (0, 1):
            pair.update(which)
            pair.clear(which)

    assert rows(step_of) == []


def test_accumulated_gradients_are_read_later() -> None:
    def step_of(pair: Pair, step: int) -> None:
        pair.backward(step, pair.second(pair.outputs()))
        if step % 4 == 3:
            for which in (0, 1):
                pair.update(which)
                pair.clear(which)

    assert rows(step_of, 16) == []


def test_gradients_that_no_optimizer_reads_have_other_reasons() -> None:
    """An adversarial example, or the gradients of single tasks, which a script reads itself."""

    def step_of(pair: Pair, step: int) -> None:
        pair.backward(step, pair.second(pair.outputs()))
        pair.clear(0)
        pair.clear(1)
        pair.backward(step, pair.second(pair.outputs()))
        pair.update(0)
        pair.update(1)
        pair.clear(0)
        pair.clear(1)

    assert rows(step_of) == []


def test_a_pass_inside_of_another_is_part_of_it() -> None:
    followed = ClearedGradients()
    for step in range(3):
        followed.backward_begins(step)
        followed.backward_begins(step)
        followed.backward_ends()
        followed.backward_ends()
    assert followed.document() == []
    assert dict(followed._passes) == {0: 1, 1: 2}


def test_the_gradients_of_a_network_that_is_gone_were_not_read() -> None:
    pair = Pair()
    gan(pair, 0)
    gan(pair, 1)
    pair.optimizers.pop()
    del pair.second
    pair.backward(2, pair.outputs())
    assert [row["cleared"] for row in pair.followed.document()] == [1, 1]


def test_only_the_first_passes_of_a_step_are_followed() -> None:
    pair = Pair()
    gan(pair, 0)
    for _ in range(MOST_PASSES):
        pair.backward(1, pair.second(pair.outputs()))
    pair.clear(0)
    for _ in range(3):
        pair.backward(1, pair.second(pair.outputs()))
    assert len(pair.followed._runs) == MOST_PASSES


def test_a_single_optimizer_is_not_followed() -> None:
    pair = Pair()
    for step in range(3):
        pair.backward(step, pair.outputs())
        pair.update(0)
        pair.clear(0)
    assert not pair.followed._runs


def test_an_unusual_optimizer_is_left_out() -> None:
    followed = ClearedGradients()
    followed.read(object())
    assert followed.document() == []


def test_the_first_steps_show_what_all_do() -> None:
    pair = Pair()
    for step in range(2 * MOST_STEPS):
        if pair.followed.active:
            gan(pair, step)
    [second, first] = pair.followed.document()
    assert (first["runs"], first["cleared"]) == (MOST_STEPS - 1, MOST_STEPS - 1)
    assert (second["runs"], second["cleared"]) == (MOST_STEPS - 1, MOST_STEPS - 1)
