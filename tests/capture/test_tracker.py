"""The step rule on its own, without torch: signals in, ends of steps out."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from traceopt.capture.script.closing_optimizer import ClosingOptimizer, OptimizerRoles
from traceopt.capture.script.step_tracker import StepTracker


class Log:
    """A listener that records what it receives."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.signs: list[str] = []  # of training, which come often

    def step_ended(self, rule: str) -> None:
        self.told.append(rule)

    def interrupted(self, why: str) -> None:
        assert why
        self.told.append("interrupted")

    def perhaps_interrupted(self) -> None:
        self.told.append("perhaps interrupted")

    def resumed(self) -> None:
        self.signs.append("resumed")

    def trained(self) -> None:
        self.signs.append("trained")

    def restarted(self, why: str) -> None:
        assert why
        self.told.append("restarted")

    def backward_ended(self) -> None: ...


def tracker(step_on: str | None = None) -> tuple[StepTracker, list[str]]:
    log = Log()
    return StepTracker(log, step_on), log.told


def backward(steps: StepTracker) -> None:
    steps.backward_begins()
    steps.backward_ends()


def test_a_step_ends_at_the_fetch_after_an_update() -> None:
    steps, told = tracker()
    steps.fetch(1)
    steps.update(1)
    assert told == []
    steps.fetch(1)
    assert told == ["loader"]


def test_without_a_loader_it_ends_with_the_update() -> None:
    steps, told = tracker()
    steps.update(1)
    steps.update(1)
    assert told == ["update", "update"]


def test_an_optimizer_that_steps_rarely_closes_no_step() -> None:
    steps, told = tracker()
    for _ in range(40):
        steps.update(1)
    ended = len(told)
    steps.update(2)  # once in forty steps, such as a temperature's
    assert len(told) == ended
    steps.update(1)
    assert len(told) == ended + 1


def test_another_loader_interrupts_once_that_of_the_training_is_known() -> None:
    steps, told = tracker()
    for _ in range(3):
        steps.fetch(1)
        steps.update(1)
    steps.fetch(2)
    assert told == ["loader", "loader", "loader", "interrupted"]


def test_batches_read_without_gradients_are_no_part_of_the_steps() -> None:
    """Training on batches made by hand, and an evaluation that reads a DataLoader."""
    steps, told = tracker()
    for _ in range(10):
        steps.fetch(1, gradients=False)  # before the training
    for _ in range(3):
        for _ in range(4):
            steps.update(1)
        for _ in range(10):
            steps.fetch(1, gradients=False)
    assert [event for event in told if event != "interrupted"][2:] == ["restarted", *["update"] * 12]
    assert told.count("interrupted") == 30


def test_an_evaluation_is_over_when_the_training_s_loader_is_read() -> None:
    log = Log()
    steps = StepTracker(log)
    for _ in range(3):
        steps.fetch(1)
        steps.update(1)
    log.signs.clear()
    steps.fetch(2)
    steps.fetch(2)
    assert (log.told[-2:], log.signs) == (["interrupted", "interrupted"], [])
    steps.fetch(1)
    assert log.signs == ["resumed"]


def test_evaluation_mode_without_gradients_is_an_evaluation() -> None:
    steps, told = tracker()
    steps.evaluation_mode(gradients=False)  # nothing was trained so far
    assert told == []
    steps.update(1)
    steps.evaluation_mode(gradients=True)
    steps.evaluation_mode(gradients=False)
    assert told == ["update", "perhaps interrupted", "interrupted"]
    other = threading.Thread(target=steps.evaluation_mode, args=[False])
    other.start()
    other.join()
    assert len(told) == 3


def test_an_evaluation_ends_the_step_before_it() -> None:
    steps, told = tracker()
    for _ in range(3):
        steps.fetch(1)
        steps.update(1)
    steps.evaluation_mode(gradients=False)
    assert told == ["loader", "loader", "loader", "interrupted"]
    steps.fetch(1)
    assert told == ["loader", "loader", "loader", "interrupted"]


def test_a_model_that_is_trained_in_evaluation_mode_reads_batches_as_usual() -> None:
    steps, told = tracker()
    for _ in range(3):
        steps.fetch(1)
        steps.evaluation_mode(gradients=True)  # of a part that is frozen
        backward(steps)
        steps.update(1)
    steps.evaluation_mode(gradients=True)
    steps.fetch(1)
    assert [event for event in told if event != "perhaps interrupted"] == ["loader"] * 3


def test_batches_that_are_only_looked_at_are_inference_until_an_update_comes() -> None:
    steps, told = tracker()
    for _ in range(10):
        steps.fetch(1)
    assert told == ["inference", "inference"]
    steps.update(1)
    assert told[2:] == ["restarted"]


def test_calls_of_a_model_are_inference_until_something_else_is_a_sign_of_steps() -> None:
    for sign in (lambda steps: steps.fetch(1), backward):
        steps, told = tracker()
        assert all(steps.model_called() for _ in range(18))
        assert told == ["call", "call"]
        sign(steps)
        assert told[2:] == ["restarted"]
        assert not steps.model_called()
    steps, told = tracker("backward")
    assert not steps.model_called()
    assert told == []


def test_zero_grad_stands_in_for_a_compiled_optimizer() -> None:
    steps, told = tracker()
    for _ in range(4):
        backward(steps)
        steps.zero_grad()
    assert told == ["zero_grad"] * 3


def test_calls_inside_of_an_update_are_no_steps_of_their_own() -> None:
    steps, told = tracker()
    steps.inside_update = 1
    for _ in range(40):
        steps.zero_grad()
        backward(steps)
    assert told == []


def test_a_batch_read_once_does_not_hide_later_steps() -> None:
    steps, told = tracker()
    steps.fetch(1)
    for _ in range(40):
        steps.update(1)
    assert told == ["update"] * 8


def test_fetches_of_another_thread_are_not_the_training_loop() -> None:
    steps, told = tracker()
    for _ in range(3):
        thread = threading.Thread(target=steps.fetch, args=(1,))
        thread.start()
        thread.join()
        steps.update(1)
    assert told == ["update"] * 3


@pytest.mark.parametrize(
    ("updates", "restarts_at"),
    [("ddddd" + "g" + "d", 6), ("dg" * 8, None), ("a" * 5 + "b" * 20, None), ("p" * 20 + "x" + "p", None)],
)
def test_steps_that_were_parts_of_a_step_are_dropped(updates: str, restarts_at: int | None) -> None:
    """As of a critic that is updated five times before the generator."""
    steps, told = tracker()
    found = []
    for number, letter in enumerate(updates):
        before = told.count("restarted")
        steps.update(ord(letter))
        found += [number] * (told.count("restarted") - before)
    assert found == ([] if restarts_at is None else [restarts_at])


def test_step_on_takes_one_signal_alone() -> None:
    for source, expected in (("batch", 2), ("update", 3), ("backward", 3), ("forward", 0)):
        steps, told = tracker(source)
        for _ in range(3):
            steps.fetch(1)
            backward(steps)
            steps.update(1)
        assert told == ["given"] * expected


@pytest.mark.parametrize(
    ("updates", "step"),
    [
        ("dg" * 20, "dg"),
        ("dddddg" * 10, "dddddg"),
        ("qaAaAq" * 10, "aAqqaA"),  # an actor every second iteration, then twice: CleanRL's SAC
        ("qqqq" + "aAaAaAaAqqqq" * 10, "aAaAaAqqqqaA"),
        ("a" * 20 + "b" * 60, "b"),  # an optimizer for each fold of a cross-validation
        ("g" * 20 + "dg" * 20, "gd"),  # a generator that is trained on its own first
        ("qaAaAq" * 30 + "qaAatAq" + "qaAaAq" * 5, "aAqqaA"),  # a rare one in between
        (("p" * 30 + "x" * 12) * 3, "x"),  # phases
    ],
)
def test_steps_of_several_optimizers_hold_the_same_updates(updates: str, step: str) -> None:
    """Each letter is an update of one optimizer."""
    closing = ClosingOptimizer()
    steps = "".join(letter + "|" * closing.closes(ord(letter)) for letter in updates).split("|")
    assert steps[-4:-1] == [step] * 3


def test_an_optimizer_for_each_task_is_forgotten() -> None:
    closing = ClosingOptimizer()
    for task in range(1000):
        for _ in range(3):
            closing.closes(task)
    assert len(closing._uses) < 10


@pytest.mark.parametrize("inner", [1, 3, 12, 100])
def test_an_optimizer_made_for_each_task_ends_no_step_beside_one_that_lasts(inner: int) -> None:
    """As in meta-learning: a new optimizer for each of two tasks, then an update of the weights they started from."""
    steps, told = tracker()
    for iteration in range(6):
        for task in range(2):
            for _ in range(inner):
                steps.update(1, renewed=iteration + task > 0)
        ended = len(told)
        steps.update(2)
        assert told[ended:] == ["update"]
    assert told[2 * inner + 1 :] == ["restarted", *["update"] * 5]


def test_an_optimizer_made_for_each_task_ends_no_step_if_one_was_made_that_waits() -> None:
    """Many tasks before the first update of the outer one: no cycle may end in them."""
    script, (steps, told) = Maker(), tracker()
    script.make("o", "outer")
    for _ in range(8):
        script.make("i", "inner")
        for _ in range(5):
            steps.update(*script.roles.of(script.made["i"]), script.roles.others_wait)
    assert told == ["update"] * 5  # of the first task
    for _ in range(3):
        steps.update(*script.roles.of(script.made["o"]), script.roles.others_wait)
    assert not script.roles.others_wait
    assert told[5:] == ["update"] * 3


def test_optimizers_made_anew_end_steps_if_none_lasts() -> None:
    """The folds of a cross-validation, after a training with another optimizer."""
    steps, told = tracker()
    for _ in range(30):
        steps.update(1)
    for fold in range(4):
        for _ in range(10):
            steps.update(2, renewed=fold > 0)
    assert told[-30:] == ["update"] * 30


class Made(SimpleNamespace):
    """An optimizer, which can be referred to weakly."""


class Maker:
    """Makes and uses optimizers; a letter is one of them, made at the place of that name."""

    def __init__(self) -> None:
        self.roles = OptimizerRoles()
        self.made: dict[str, Made] = {}

    def make(self, name: str, place: str) -> None:
        self.made[name] = Made(_traceopt_built=[[place]])
        self.roles.made(self.made[name])

    def used(self, names: str) -> list[tuple[int, bool]]:
        return [self.roles.of(self.made[name]) for name in names]


def test_an_optimizer_takes_the_role_of_a_used_one_of_its_place() -> None:
    script = Maker()
    script.make("o", "outer")
    for first in (True, False):
        script.make("i", "inner")
        assert script.used("iii") == [(1, not first)] * 3
        assert script.used("o") == [(2, False)]


def test_optimizers_made_together_at_one_place_have_their_own_roles() -> None:
    script = Maker()
    for name in "dg":
        script.make(name, "list")
    assert script.used("dgdg") == [(1, False), (2, False)] * 2
    for name in "dg":
        script.make(name, "list")
    assert script.used("dgdg") == [(1, True), (2, True)] * 2


def test_an_optimizer_that_goes_on_after_one_of_its_place_was_made_has_its_own_role() -> None:
    script = Maker()
    script.make("a", "helper")
    assert script.used("a") == [(1, False)]
    script.make("b", "helper")
    assert script.used("bababa")[1:] == [(2, False), (1, True), (2, False), (1, True), (2, False)]
