"""The step ledger that `traceopt run` wrote into the trace: how long every step took, recorded or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.json_values import MOST_ROWS, MOST_US, amount, rows, table, time_ns, times_ns, whole, word
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.python_frames import shown_file
from traceopt.result.finding import Location

EARLY = 2  # the first steps of a run allocate what stays
SETTLED = 3  # the first steps of a run are slow and left out of medians
MOST_LINE = 10_000_000
MOST_ELEMENTS = 2**53  # of a step's batches
LONG = 5  # times the usual step: then something else than training happened in a step
MOST_LONG = 0.34  # of all steps: one in three, with some more by chance
FEW = 5  # fewer unrecorded steps are too few for a median
LAGS = 0.25  # of the first steps: if the GPU is behind by more, most of their times on the host are too short
AHEAD = 0.05  # of the steps since it last caught up: if the GPU is behind by more, the host ran ahead of it


class Window(Struct, frozen=True):
    """Steps with a profiler: it was active from `warmup_from` on; steps from `start` to `until` - 1 are in a trace."""

    cycle: str
    warmup_from: int
    start: int
    until: int


class Place(Struct, frozen=True):
    """How often something was done at a line of the user's code, and for how long in all."""

    location: Location
    count: int
    total_ns: int


class WholeRun(Struct, frozen=True):
    """The time of the process from its start to its end, or to when the trace was written. traceopt's own work is left
    out. Where the start of the process is not known, the time begins with the import of torch.

    `start_up_ns` ends with step 0; `steps_ns` are the other steps without evaluations and saves; `rest_ns` follows the
    last step.
    """

    start_up_ns: int
    steps_ns: int
    evaluation_ns: int
    save_ns: int
    rest_ns: int

    @property
    def total_ns(self) -> int:
        return max(1, self.start_up_ns + self.steps_ns + self.evaluation_ns + self.save_ns + self.rest_ns)


class Ledger(Struct, frozen=True, dict=True):
    """Arrays have an entry per step, from step 0 (the start of the program), in ns.

    `step_ns` leaves out the evaluations in the step, which take `eval_ns`. `fetch_ns` is the time in the DataLoader,
    None if no loader was observed; `samples` and `elements` are those of the batches that the step fetched, None if
    they are always the same or not known; `gc_ns` is the garbage collector's time, `save_ns` that of torch.save.
    `until_backward_ns` is from the start of the step to its first backward pass, without evaluations and saves; None if
    not recorded.
    `ended_early`: the run was stopped before its end, by --stop-after, an exception or a signal.
    `core_wait_share` is the share of the run in which the training thread was ready but no core was free;
    `core_wait_ns` is that time, and `core_wait_per_cpu` the same as a multiple of its CPU time. `page_faults` are the
    pages that the system provided in each step, None if not recorded; one costs `page_fault_ns`, 0 if not known.
    `drains`: after how many steps the host waited for the GPU, and how long, in the order of the steps.
    """

    step_ns: I8
    fetch_ns: I8 | None
    gc_ns: I8
    save_ns: I8
    eval_ns: I8
    windows: tuple[Window, ...]
    later_steps: int  # not recorded individually
    whole_run: WholeRun
    evaluations: tuple[Place, ...]  # where they began, longest first
    saved_at: tuple[Place, ...]  # where torch.save was called, longest first
    long_ends: tuple[Place, ...]  # where steps ended that took several times as long as the one before
    core_wait_ns: float | None
    core_wait_share: float | None
    core_wait_per_cpu: float | None
    long_wait_ns: I8 | None  # at most so much of a long step is a wait for a core; -1: not known; None: not recorded
    ended_early: bool
    samples: I8 | None = None
    elements: I8 | None = None
    until_backward_ns: I8 | None = None
    page_faults: I8 | None = None
    page_fault_ns: float = 0.0
    drains: tuple[tuple[int, int], ...] = ()

    @property
    def count(self) -> int:
        return len(self.step_ns) + self.later_steps

    @cached_property
    def usual(self) -> I8:
        """Numbers of the steps without a profiler, except the first ones, and except those of which the GPU still did
        the work when it was waited for first: their times on the host say nothing.
        """
        free = np.ones(len(self.step_ns), bool)
        free[:SETTLED] = False
        if self.drains and self.drains[0][1] > LAGS * self.step_ns[SETTLED : self.drains[0][0]].sum():
            free[: self.drains[0][0]] = False
        for window in self.windows:
            free[window.warmup_from : window.until] = False
        return np.flatnonzero(free)

    @property
    def usual_save_share(self) -> float | None:
        """Share (0..1) of the median step without a profiler that torch.save takes. None if too few such steps are
        known, or most of them save nothing.
        """
        if len(self.usual) < FEW:
            return None
        share = median(self.save_ns[self.usual] / np.maximum(1, self.step_ns[self.usual]))
        return share if share > 0 else None

    @cached_property
    def usual_ns(self) -> float | None:
        """Median step without a profiler, excluding the wait for data; None if there are too few such steps."""
        usual = median(self._own_ns[self.usual]) if len(self.usual) >= FEW else 0.0
        return usual if usual > 0 else None

    @cached_property
    def usual_step_ns(self) -> float | None:
        """Median step without a profiler, with the wait for data; None if there are too few such steps."""
        return median(self._caught_up(self.step_ns)[self.usual]) if len(self.usual) >= FEW else None

    @cached_property
    def long_steps(self) -> I8:
        """Numbers of the steps without a profiler that take several times as long as the median one, excluding the wait
        for data, garbage collection, torch.save and evaluations. None if they are many: then no step is usual.
        """
        if len(self.usual) < FEW:
            return self.usual[:0]
        found = self.usual[self.other_ns[self.usual] > LONG * self.usual_other_ns]
        if len(found) > MOST_LONG * len(self.usual):
            return found[:0]
        return found if self.long_wait_ns is None else found[self.long_wait_ns[found] >= 0]

    @property
    def long_extra_ns(self) -> int:
        """What the long steps take beyond as many usual ones, with their waits for a core."""
        return int((self._with_waits_ns[self.long_steps] - self.usual_other_ns).sum()) if len(self.long_steps) else 0

    @property
    def long_for_other_work(self) -> bool:
        """Whether the long steps do other work. If the waits in them were not recorded: whether most of what they take
        longer is work, even if the thread waited for cores only in them.
        """
        if self.long_wait_ns is not None:
            return len(self.long_steps) > 0
        return 2 * (self.core_wait_ns or 0.0) < self.long_extra_ns

    @cached_property
    def usual_other_ns(self) -> float:
        """Median of `other_ns` of the usual steps, of which there must be one; at least 1."""
        return max(1.0, median(self.other_ns[self.usual]))

    @staticmethod
    def evaluation_name(reads_loaders: bool) -> str:
        """What evaluations are called. A script without loaders may also collect its data in evaluation mode."""
        return "Evaluation" if reads_loaders else "Evaluation mode (evaluation, rollouts or self-play)"

    @cached_property
    def other_ns(self) -> I8:
        """Each step without the wait for data, garbage collection, torch.save and evaluations; long steps without the
        wait for a core, too.
        """
        waits_ns = 0 if self.long_wait_ns is None else np.maximum(self.long_wait_ns, 0)
        other_ns: I8 = np.maximum(self._with_waits_ns - waits_ns, 0)
        return other_ns

    @cached_property
    def _with_waits_ns(self) -> I8:
        with_waits_ns: I8 = np.maximum(self._own_ns - self.gc_ns - self.save_ns, 0)
        return with_waits_ns

    @cached_property
    def recorded_ns(self) -> dict[str, float]:
        """Median recorded step by cycle, excluding the wait for data."""
        recorded: dict[str, list[I8]] = {}
        for window in self.windows:
            recorded.setdefault(window.cycle, []).append(self._own_ns[window.start : window.until])
        joined = {cycle: np.concatenate(steps) for cycle, steps in recorded.items()}
        return {cycle: median(steps) for cycle, steps in joined.items() if len(steps)}

    @property
    def stretch(self) -> dict[str, float]:
        """Median recorded step as a multiple of the median unrecorded one, by cycle, excluding the wait for data."""
        usual = self.usual_ns
        return {cycle: step / usual for cycle, step in self.recorded_ns.items()} if usual else {}

    @cached_property
    def usual_page_faults(self) -> float:
        """Of the median step before the first recorded one, without the first steps of the run; 0 if not known."""
        until = min((window.start for window in self.windows), default=len(self.step_ns))
        if self.page_faults is None or until - EARLY < 2:
            return 0.0
        return median(self.page_faults[EARLY:until])

    @cached_property
    def _own_ns(self) -> I8:
        """Without the wait for data, and as if the profiler had not changed how many pages a step needs: memory that it
        frees stays with the process, and later steps take their tensors from there.
        """
        own_ns = self.step_ns if self.fetch_ns is None else self.step_ns - self.fetch_ns
        own_ns = self._caught_up(own_ns)
        if self.page_faults is None or not self.windows:
            return own_ns
        spared = np.maximum(0, self.usual_page_faults - self.page_faults)
        spared[: min(window.start for window in self.windows)] = 0
        longer: I8 = own_ns + (spared * self.page_fault_ns * own_ns / np.maximum(1, self.step_ns)).astype(np.int64)
        return longer

    @property
    def paced_ns(self) -> I8:
        """Each step without evaluations and saves, at the pace of the GPU where the host ran ahead of it."""
        return self._caught_up(self.step_ns - self.save_ns)

    @property
    def host_runs_ahead(self) -> bool:
        """Whether the host ever waited long for the GPU to catch up: then its own delays may cost nothing."""
        return any(True for _ in self._behind)

    def _caught_up(self, times_ns: I8) -> I8:
        """Times of steps, in ns. Where the host ran ahead of the GPU, a step takes the mean of its stretch, with the
        wait for the GPU that ended it: there, the host's times only say how fast it gave work to the GPU's queue.
        """
        times_ns = times_ns.copy()
        for start, end, behind_ns in self._behind:
            times_ns[start:end] = (times_ns[start:end].sum() + behind_ns) // (end - start)
        return times_ns

    @property
    def _behind(self) -> Iterator[tuple[int, int, int]]:
        """The stretches of steps in which the host ran ahead of the GPU, and by how long."""
        for (start, _), (end, behind_ns) in pairwise(self.drains):
            if behind_ns > AHEAD * self.step_ns[start:end].sum() and end > start:
                yield start, end, behind_ns


def read_ledger(value: object, start_up_ns: int = 0, page_fault_ns: float = 0.0) -> Ledger | None:
    """Reads the ledger; None if step times are missing or invalid. `start_up_ns`: from the start of the process to the
    end of step 0, if known. `page_fault_ns`: cost of a page fault, if known.
    """
    document = table(value)
    step_ns = times_ns(document.get("step_us"))
    if step_ns is None or not len(step_ns):
        return None
    fetch_ns, gc_ns = times_ns(document.get("fetch_us")), times_ns(document.get("gc_us"))
    if fetch_ns is not None and (len(fetch_ns) != len(step_ns) or not fetch_ns.any() or (fetch_ns > step_ns).any()):
        fetch_ns = None
    if gc_ns is None or len(gc_ns) != len(step_ns):
        gc_ns = np.zeros(len(step_ns), np.int64)
    eval_ns = times_ns(document.get("eval_us"))
    if eval_ns is None or len(eval_ns) != len(step_ns) or (eval_ns > step_ns).any():
        eval_ns = np.zeros(len(step_ns), np.int64)
    step_ns = step_ns - eval_ns
    save_ns = np.zeros(len(step_ns), np.int64)
    for step, save in _times_of_steps(document.get("saves")):
        if step < len(step_ns):
            save_ns[step] += save
    save_ns = np.minimum(save_ns, step_ns)
    until_backward_ns = times_ns(document.get("until_backward_us"))
    windows = [_window(row) for row in rows(document.get("windows"))]
    wait = table(document.get("core_wait"))
    waited, ran, wall = (amount(wait.get(name), MOST_US) for name in ("us", "cpu_us", "wall_us"))
    return Ledger(
        step_ns,
        fetch_ns,
        gc_ns,
        save_ns,
        eval_ns,
        tuple(window for window in windows if window is not None),
        whole(document.get("later_steps")) or 0,
        _whole_run(document, step_ns, eval_ns, save_ns, start_up_ns),
        _places(document.get("evaluations")),
        _places(document.get("saved_at")),
        _places(document.get("long_steps")),
        None if waited is None else waited * 1000,
        min(1.0, waited / wall) if waited is not None and wall else None,
        waited / max(1.0, ran) if waited is not None and ran else None,
        _long_waits(document.get("long_waits"), len(step_ns)),
        "end" in document and (document["end"] is None or table(document["end"]).get("early") is True),
        _counts(document.get("samples"), len(step_ns)),
        _counts(document.get("elements"), len(step_ns)),
        until_backward_ns if until_backward_ns is not None and len(until_backward_ns) == len(step_ns) else None,
        _counts(document.get("page_faults"), len(step_ns)),
        page_fault_ns,
        _drains(document.get("drains"), len(step_ns)),
    )


def _counts(value: object, steps: int) -> I8 | None:
    """A whole number for each step; None if one is missing or no such number."""
    if not isinstance(value, list) or len(value) != steps:
        return None
    known = [whole(number, MOST_ELEMENTS) for number in value]
    return None if None in known else np.array(known, np.int64)


def _whole_run(document: Mapping[str, Any], step_ns: I8, eval_ns: I8, save_ns: I8, start_up_ns: int) -> WholeRun:
    end = table(document.get("end"))
    later_ns, later_eval_ns, end_ns, end_eval_ns, end_save_ns = (
        time_ns(value) or 0
        for value in (
            document.get("later_us"),
            document.get("later_eval_us"),
            end.get("us"),
            end.get("eval_us"),
            end.get("save_us"),
        )
    )
    return WholeRun(
        start_up_ns=max(int(step_ns[0]), start_up_ns - int(eval_ns[0])),
        steps_ns=int((step_ns - save_ns)[1:].sum()) + max(0, later_ns - later_eval_ns),
        evaluation_ns=int(eval_ns.sum()) + later_eval_ns + end_eval_ns,
        save_ns=int(save_ns[1:].sum()) + end_save_ns,
        rest_ns=max(0, end_ns - end_eval_ns - end_save_ns),
    )


def _places(value: object) -> tuple[Place, ...]:
    found = []
    for row in rows(value):
        file, function = word(row.get("file")), word(row.get("function"))
        line, count, total_ns = whole(row.get("line"), MOST_LINE), whole(row.get("count")), time_ns(row.get("us"))
        if file and function and line and count and total_ns is not None:
            found.append(Place(Location(shown_file(file), line, function), count, total_ns))
    return tuple(sorted(found, key=lambda place: -place.total_ns))


def _long_waits(value: object, steps: int) -> I8 | None:
    if not isinstance(value, list):
        return None
    wait_ns = np.full(steps, -1, np.int64)
    for step, waited in _times_of_steps(value):
        if step < steps:
            wait_ns[step] = waited
    return wait_ns


def _times_of_steps(value: object) -> Iterator[tuple[int, int]]:
    """Pairs of a step and a time in it, in ns."""
    for pair in value[:MOST_ROWS] if isinstance(value, list) else []:
        if isinstance(pair, list) and len(pair) == 2:
            step, time = whole(pair[0]), time_ns(pair[1])
            if step is not None and time is not None:
                yield step, time


def _drains(value: object, steps: int) -> tuple[tuple[int, int], ...]:
    """Of the steps that are listed, in their order; nothing if they have none."""
    found = tuple(_times_of_steps(value))
    ordered = all(before[0] <= after[0] for before, after in pairwise(found))
    return tuple(pair for pair in found if pair[0] <= steps) if ordered else ()


def _window(row: Mapping[str, Any]) -> Window | None:
    cycle = word(row.get("cycle"))
    warmup_from, start, until = (whole(row.get(name)) for name in ("warmup_from", "from", "until"))
    if cycle is None or warmup_from is None or start is None or until is None or not warmup_from <= start <= until:
        return None
    return Window(cycle, warmup_from, start, until)
