"""Detects where a training step ends, from the script's calls: DataLoader fetches, optimizer updates, backwards.

A step ends at the first DataLoader fetch of the training thread after an optimizer update. Without fetches between
updates, it ends when step() of the last optimizer returns. If there are no updates at all, it ends at zero_grad (the
optimizer is part of a compiled graph), at backward (a hand-written update), at a fetch (inference) or, if nothing reads
a loader, when the model that is in evaluation mode returns.
"""

from __future__ import annotations

import threading
from typing import Protocol

from .closing_optimizer import ClosingOptimizer

LOADER, UPDATE, ZERO_GRAD, BACKWARD, INFERENCE, CALL, GIVEN = (
    "loader", "update", "zero_grad", "backward", "inference", "call", "given",
)  # fmt: skip

INFERENCE_FETCHES = 8  # batches read without an update or a backward before they count as steps
INFERENCE_CALLS = 16  # calls of a model in evaluation mode, without any of these, before they count as steps
LONE_BACKWARDS = 16  # backwards without an optimizer before they count as steps
IDLE_UPDATES = 32  # updates of a loop that once read a batch and then no more


class Listener(Protocol):
    """Receives the detected steps. All calls come from the training thread, between two steps."""

    def step_ended(self, rule: str) -> None: ...

    def interrupted(self, why: str) -> None:
        """A sign that something other than training goes on, such as an evaluation."""

    def perhaps_interrupted(self) -> None:
        """An evaluation may have begun: it has if training resumes before the next backward."""

    def resumed(self) -> None:
        """Training goes on from now."""

    def trained(self) -> None:
        """Training goes on, perhaps for some time."""

    def restarted(self, why: str) -> None:
        """The steps counted so far were not training steps."""

    def backward_ended(self) -> None:
        """In the middle of a step, in any thread."""


class StepTracker:
    """Turns the script's calls into ends of steps. `step_on` selects the rule, as in Settings."""

    def __init__(self, listener: Listener, step_on: str | None = None) -> None:
        self._listener = listener
        self._given = step_on
        self.reset()

    def reset(self) -> None:
        """Forgets everything, as a forked child must."""
        self.fetches = self.updates = self.backwards = 0
        self.inside_update = 0  # depth: LBFGS and Lightning run the whole step inside optimizer.step()
        self._rule: str | None = None
        self._thread = threading.main_thread().ident if self._given is None else None
        self._pending = False  # an update was seen; the next fetch ends the step
        self._idle_updates = 0
        self._fetches_in_step = 0
        self._fetches_alone = 0
        self._calls = 0  # of a model in evaluation mode
        self._zero_grads = 0
        self._backward_depth = 0
        self._backward_since_zero_grad = False
        self._update_in_backward = False
        self._closing = ClosingOptimizer()
        self._step_loaders: set[int] = set()
        self._last_loaders: set[int] = set()
        self._training_loaders: set[int] = set()
        self._evaluation_mode = False  # since the last backward

    def fetch(self, loader: int, gradients: bool = True) -> None:
        """A DataLoader, identified by its number, is about to be asked for a batch, in any thread. `gradients`: they
        are enabled, so that the batch may be trained on.
        """
        if self._given is not None:
            self.fetches += 1
            if self._given == "batch" and self.fetches > 1:
                self._end_given()
            return
        if threading.get_ident() != self._thread:
            return
        self.fetches += 1
        self._end_of_calls("a DataLoader is read")
        self._fetches_alone += 1
        known = loader in self._training_loaders
        foreign = bool(self._training_loaders) and not known
        training = gradients and not (self._evaluation_mode and not known)
        evaluates = self._trains and (foreign or not training)
        if self._trains and not evaluates:
            self._listener.resumed()
        if self._pending:
            self._end(LOADER)
        elif not self.updates and not self.backwards and self._fetches_alone > INFERENCE_FETCHES:
            self._end(INFERENCE)
        if evaluates:
            why = "reads another DataLoader" if foreign else "reads a DataLoader but does not train on it"
            self._listener.interrupted(f"the script {why} (evaluation?)")
        if training:
            self._step_loaders.add(loader)
            self._fetches_in_step += 1

    def evaluation_mode(self, gradients: bool) -> None:
        """A model was put into evaluation mode. Without gradients that is an evaluation; with them it may also be a
        model, or a part of one, that is trained or used in this mode.
        """
        if not self._trains or not self._in_training_thread:
            return
        self._evaluation_mode = True
        if gradients:
            self._listener.perhaps_interrupted()
            return
        if self._pending:  # the step would end at the next fetch
            self._end(LOADER)
        self._listener.interrupted("the script puts the model into evaluation mode")

    def training_mode(self) -> None:
        """That model was put back into training mode."""
        if self._in_training_thread:
            self._evaluation_mode = False
            self._listener.resumed()

    def update(self, optimizer: int, renewed: bool = False, others_wait: bool = False) -> None:
        """An optimizer's step() has returned, or a GradScaler has skipped it. `optimizer` is the number of its role,
        `renewed` whether another optimizer had that role before, and `others_wait` whether one has not updated yet.
        """
        self.updates += 1
        if self._in_training_thread:
            self._listener.trained()
        if self._given is not None:
            if self._given == "update" and self._closing.closes(optimizer, renewed, others_wait):
                self._end_given()
            return
        if self.updates == 1 and self._rule not in (None, LOADER, UPDATE):
            self._listener.restarted(f"optimizer steps began after steps had been counted by {self._rule}")
            self._rule = None
        self._fetches_alone = 0
        if self._backward_depth:  # an optimizer per parameter, stepped during backward: one update at its end
            self._update_in_backward = True
            return
        self._thread = threading.get_ident()
        self._updated(optimizer, renewed, others_wait)

    def backward_begins(self) -> None:
        self._end_of_calls("a backward pass begins")
        self._backward_depth += 1
        if self._in_training_thread:
            self._evaluation_mode = False
            self._listener.trained()

    def backward_ends(self) -> None:
        self._backward_depth -= 1
        if self._backward_depth:
            return
        self.backwards += 1
        self._listener.backward_ended()
        if self._given is not None:
            if self._given == "backward":
                self._end_given()
            return
        self._fetches_alone = 0
        self._backward_since_zero_grad = True
        if self._update_in_backward:
            self._update_in_backward = False
            self._updated(0)
        elif not self.updates and self._zero_grads < 2 and self.backwards > LONE_BACKWARDS and not self.inside_update:
            self._end_or_wait(BACKWARD)

    def zero_grad(self) -> None:
        """Counts only until an update is seen: without one, the optimizer's step is part of a compiled graph."""
        if self._given or self.updates or self.inside_update or self._backward_depth:
            return
        if self._backward_since_zero_grad:
            self._backward_since_zero_grad = False
            self._zero_grads += 1
            if self._zero_grads >= 2:
                self._end_or_wait(ZERO_GRAD)

    def model_called(self) -> bool:
        """A model in evaluation mode has returned. Returns whether such calls may be steps."""
        if self._given is not None or self.fetches or self._trains:
            return False
        if self._in_training_thread:
            self._calls += 1
            if self._calls > INFERENCE_CALLS:
                self._end(CALL)
        return True

    def _end_of_calls(self, why: str) -> None:
        if self._rule == CALL:
            self._listener.restarted(f"{why} after calls of a model had been counted as steps")
            self._rule = None

    def marked(self) -> None:
        """The outermost forward, or the function that the user named, has returned."""
        self._end_given()

    @property
    def _trains(self) -> bool:
        return bool(self.updates or self.backwards)

    @property
    def _in_training_thread(self) -> bool:
        return self._thread in (None, threading.get_ident())

    def _updated(self, optimizer: int, renewed: bool = False, others_wait: bool = False) -> None:
        closes = self._closing.closes(optimizer, renewed, others_wait)
        if self._rule == UPDATE and self._closing.shows_parts(optimizer):
            self._listener.restarted("a step has updates of several optimizers, each of which had counted as a step")
        if self._fetches_in_step:
            self._pending = True
            self._idle_updates += 1
            if self._idle_updates > IDLE_UPDATES:  # one batch was read and has been trained on ever since
                self._end(UPDATE)
        elif closes and not self._pending:
            self._end(UPDATE)

    def _end_or_wait(self, rule: str) -> None:
        if self._fetches_in_step:
            self._pending = True
        else:
            self._end(rule)

    def _end_given(self) -> None:
        thread = threading.get_ident()
        if self._thread in (None, thread):
            self._thread = thread
            self._listener.step_ended(GIVEN)

    def _end(self, rule: str) -> None:
        self._pending = False
        self._idle_updates = 0
        self._fetches_in_step = 0
        self._training_loaders |= self._step_loaders & self._last_loaders
        self._last_loaders, self._step_loaders = self._step_loaders, set()
        self._rule = self._rule or rule
        self._listener.step_ended(rule)
