"""Wall time of every step of the run, recorded or not, and of garbage collection and saving."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from .cores import CoreWait
from .evaluations import EvaluationClock
from .user_line import Places, user_line

LIMIT = 100_000  # individual steps; later ones are only counted and summed
SETTLED = 3  # the first steps of a run are slow and left out
LOOP_STEPS = 3  # the first steps show which functions hold the training loop
MOST_SAVES = 1000  # individual saves
MOST_LONG = 1000  # long steps with their waits
LONG = 5  # times as long as the step before: something else than training happened


class LedgerWriter:
    """Times are microseconds. traceopt's own work belongs to no step.

    Step 0 starts with the import of torch. Garbage collection and saves count from the end of step 0. What an
    evaluation loads and collects is part of the evaluation; what it saves is not.
    """

    def __init__(self, gc_range: Callable[[], Any]) -> None:
        """`gc_range` returns the range that marks a collection in the trace, None while nothing is recorded."""
        self._new_gc_range = gc_range
        self._gc_range: Any = None
        self.reset()

    def reset(self) -> None:
        self.step_us = array("d")
        self.fetch_us = array("d")  # in the DataLoader: fetching batches and starting workers
        self.gc_us = array("d")
        self.eval_us = array("d")
        self.until_backward_us = array("d")  # from the step's start to its first backward pass: waits for no other rank
        self.page_faults = array("q")  # of all threads: pages that the system had to provide
        self.samples = array("q")  # in the batches that the step fetched
        self.elements = array("q")  # of the largest tensors of these batches
        self.windows: list[dict[str, Any]] = []  # the steps that had a profiler, including warm-up
        self.drains: list[tuple[int, float]] = []  # after how many steps the host waited for the GPU, and how long
        self.later_steps = 0
        self.later_us = self.later_eval_us = 0.0
        self.end: dict[str, Any] | None = None  # after the last step
        self.ended_early = False  # by --stop-after or an exception
        self.own_us = 0.0
        self.gc_count = self.full_gc_count = 0
        self.all_gc_us = self.full_gc_us = 0.0
        self.save_count = 0
        self.save_us = 0.0
        self.save_places = Places()
        self.saves: list[tuple[int, float]] = []  # step and duration of each
        self.skipped_updates = 0
        self.long_places = Places()  # where long steps ended
        self.long_waits: list[tuple[int, float]] = []  # step, and the wait for a core since the long step before
        self.last_us = 0.0  # the last step, without evaluation and saves
        self._previous_us = 0.0
        self._opened = time.perf_counter()
        self._opened_faults = _page_faults()
        self._fetch_us = self._gc_us = self._save_us = self._until_backward_us = 0.0
        self._samples = self._elements = 0
        self._fetch_in_eval_us = self._gc_in_eval_us = 0.0  # since the last sign of the evaluation
        self._gc_began = 0.0
        self._in_step = True
        self.evaluation = EvaluationClock()
        self._core_wait: CoreWait | None = None  # of the training thread

    def close_step(self) -> None:
        now = time.perf_counter()
        if self._core_wait is None:
            self._core_wait = CoreWait()
        self._outside_evaluation()
        if len(self.step_us) < LOOP_STEPS:
            self.evaluation.step_ended()
        eval_us = self.evaluation.take_us()
        self.last_us = (now - self._opened) * 1e6 - eval_us - self._save_us
        self._note_if_long(self.last_us - self._fetch_us - self._gc_us)
        if len(self.step_us) < LIMIT:
            self.step_us.append((now - self._opened) * 1e6)
            self.fetch_us.append(self._fetch_us)
            self.gc_us.append(self._gc_us)
            self.eval_us.append(eval_us)
            self.until_backward_us.append(self._until_backward_us)
            self.page_faults.append(_page_faults() - self._opened_faults)
            self.samples.append(self._samples)
            self.elements.append(self._elements)
        else:
            self.later_steps += 1
            self.later_us += (now - self._opened) * 1e6
            self.later_eval_us += eval_us
        self._fetch_us = self._gc_us = self._save_us = self._until_backward_us = 0.0
        self._samples = self._elements = 0
        self._in_step = False
        self._opened = now

    def _note_if_long(self, own_us: float) -> None:
        if self.step_us and own_us > LONG * self._previous_us:
            self.long_places.add(user_line(), own_us / 1e6)
            waited_us = self._core_wait.since_last_us() if self._core_wait is not None else None
            if waited_us is not None and len(self.long_waits) < MOST_LONG:
                self.long_waits.append((len(self.step_us) + self.later_steps, round(waited_us, 1)))
        self._previous_us = own_us

    def open_step(self) -> None:
        """The time since close_step was traceopt's own."""
        now = time.perf_counter()
        self.own_us += (now - self._opened) * 1e6
        self.evaluation.skip(now - self._opened)
        self._in_step = True
        self._opened = now
        self._opened_faults = _page_faults()

    @contextmanager
    def own_work(self) -> Iterator[None]:
        """The time inside belongs to no step. Between close_step and open_step it has no effect."""
        began, faults, outermost = time.perf_counter(), _page_faults(), self._in_step
        self._in_step = False
        try:
            yield
        finally:
            if outermost:
                self._in_step = True
                seconds = time.perf_counter() - began
                self._opened += seconds
                self._opened_faults += _page_faults() - faults
                self.evaluation.skip(seconds)
                self.own_us += seconds * 1e6

    def caught_up(self, seconds: float) -> None:
        """Between two steps: the GPU has done the work of all steps so far, and was behind the host by this time."""
        step = len(self.step_us) + self.later_steps
        if not self.drains or self.drains[-1][0] != step:  # else it has nothing left to do
            self.drains.append((step, round(seconds * 1e6, 1)))

    def backward_begins(self) -> None:
        """Evaluations and saves before it leave out what they take."""
        if not self._until_backward_us:
            so_far_us = (time.perf_counter() - self._opened) * 1e6
            self._until_backward_us = max(0.0, so_far_us - self.evaluation.so_far_us - self._save_us)

    def fetched(self, seconds: float) -> None:
        if self.evaluation.running:
            self._fetch_in_eval_us += seconds * 1e6
        else:
            self._fetch_us += seconds * 1e6

    def got_batch(self, samples: int, elements: int) -> None:
        if not self.evaluation.running:
            self._samples += samples
            self._elements += elements

    def evaluates(self) -> None:
        """A sign that the script evaluates."""
        self.evaluation.sign()
        self._fetch_in_eval_us = self._gc_in_eval_us = 0.0

    def evaluated(self) -> None:
        """Training goes on from now."""
        if self.evaluation.running:
            self.evaluates()
            self.evaluation.end()

    def trains(self) -> None:
        """Training goes on; the evaluation ended with its last sign."""
        if self.evaluation.running:
            self._outside_evaluation()
            self.evaluation.end()

    def ends(self) -> None:
        """The run ends: what follows the last step is no step."""
        self.trains()
        self.end = {
            "us": round((time.perf_counter() - self._opened) * 1e6, 1) if self._in_step else 0.0,
            "eval_us": round(self.evaluation.take_us(), 1),
            "save_us": round(self._save_us, 1),
            "early": self.ended_early,
        }

    def _outside_evaluation(self) -> None:
        """What was loaded and collected since the last sign of an evaluation is the step's."""
        self._fetch_us += self._fetch_in_eval_us
        self._gc_us += self._gc_in_eval_us
        self._fetch_in_eval_us = self._gc_in_eval_us = 0.0

    def saved(self, seconds: float) -> None:
        self.evaluation.skip(seconds)
        if self.step_us:
            self.save_count += 1
            self._save_us += seconds * 1e6
            self.save_us += seconds * 1e6
            self.save_places.add(user_line(), seconds)
            if len(self.saves) < MOST_SAVES:
                self.saves.append((len(self.step_us) + self.later_steps, round(seconds * 1e6, 1)))

    def watch_gc(self) -> None:
        gc.callbacks.append(self._gc)

    def unwatch_gc(self) -> None:
        if self._gc in gc.callbacks:
            gc.callbacks.remove(self._gc)

    def _gc(self, phase: str, collection: dict[str, int]) -> None:
        if phase == "start":
            self._gc_range = self._new_gc_range()
            self._gc_began = time.perf_counter()
            if self._gc_range is not None:
                self._gc_range.__enter__()  # last: a call inside the range would look like one of the user's function
            return
        took_us = (time.perf_counter() - self._gc_began) * 1e6
        if self._gc_range is not None:
            self._gc_range.__exit__(None, None, None)
        if self.step_us and self._in_step:
            self.gc_count += 1
            self.all_gc_us += took_us
            if self.evaluation.running:
                self._gc_in_eval_us += took_us
            else:
                self._gc_us += took_us
            if collection["generation"] == 2:
                self.full_gc_count += 1
                self.full_gc_us += took_us

    @property
    def plain_steps(self) -> int:
        """How many steps had no profiler, except the first ones."""
        busy = {step for window in self.windows for step in range(window["warmup_from"], window["until"])}
        return sum(step not in busy for step in range(SETTLED, len(self.step_us)))

    def collections(self) -> dict[str, Any]:
        return {
            "collections": self.gc_count,
            "us": round(self.all_gc_us, 1),
            "full_collections": self.full_gc_count,
            "full_us": round(self.full_gc_us, 1),
            "frozen_objects": gc.get_freeze_count(),
        }

    def document(self) -> dict[str, Any]:
        return {
            "step_us": [round(us, 1) for us in self.step_us],
            "fetch_us": [round(us, 1) for us in self.fetch_us],
            **({"gc_us": [round(us, 1) for us in self.gc_us]} if any(self.gc_us) else {}),
            **({"eval_us": [round(us, 1) for us in self.eval_us]} if any(self.eval_us) else {}),
            **(
                {"until_backward_us": [round(us, 1) for us in self.until_backward_us]}
                if any(self.until_backward_us)
                else {}
            ),
            **({"page_faults": list(self.page_faults)} if any(self.page_faults) else {}),
            **({"samples": list(self.samples)} if len(set(self.samples[SETTLED:])) > 1 else {}),
            **({"elements": list(self.elements)} if len(set(self.elements[SETTLED:])) > 1 else {}),
            "evaluations": self.evaluation.places.document(),
            "saved_at": self.save_places.document(),
            "long_steps": self.long_places.document(),
            "long_waits": self.long_waits,
            "saves": self.saves,
            "windows": self.windows,
            **({"drains": self.drains} if self.drains else {}),
            "later_steps": self.later_steps,
            "later_us": round(self.later_us, 1),
            "later_eval_us": round(self.later_eval_us, 1),
            "end": self.end,
            "own_us": round(self.own_us, 1),
            "core_wait": self._core_wait.document() if self._core_wait is not None else None,
        }


def _page_faults() -> int:
    """Pages that the system has provided to this process without reading from a disk. Reading it takes about 1 us."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt
