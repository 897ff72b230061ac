"""The iterations of a loop without ProfilerStep marks: what repeats once in each of them.

Several calls repeat: batches are loaded, gradients computed, weights updated. Gradient accumulation loads several
batches for one update, and a GAN updates two models with one batch. So an iteration is the longest regular period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values, group_rows, split
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.schema import I8, Mask, ThreadSpans
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary import op_names, torch_compile

MIN_CALLS = 3  # fewer do not repeat
MIN_COVERAGE = 0.6  # of the trace from the first iteration on; otherwise it could be a section of the model
MAX_SPREAD = 3.0  # times the median, either way: other durations are uneven
MAX_UNLIKE = 0.1  # of the operators of two iterations: more or fewer are another kind of iteration
USUAL = 0.5  # of the iterations that a call of the loop marks: others may save or evaluate
MOST = 0.8  # of the iterations that something else marks
MAX_CALLS = 256  # in one iteration
LONGER = 1.5  # times the period of another loop: less is the same loop
MAX_OUTSIDE = 0.05  # of the operators: a model has more outside of compiled layers
MAX_BETWEEN = 0.05  # of a step: more time between two annotations than this belongs to the loop

LoopSource = Literal["annotation", "data_loader", "optimizer", "compiled_region", "backward"]


class Loop(Struct, frozen=True):
    """Iterations from border to border. `border`: ns, shape (iterations + 1,). `thread`: index into trace.threads.

    `call` is what repeats, `every` times in each iteration.
    """

    source: LoopSource
    call: str
    thread: int
    border: I8
    every: int

    @property
    def period_ns(self) -> float:
        return median(np.diff(self.border))


class _Calls(Struct, frozen=True):
    """Calls of one kind on one thread. `at`: where an iteration may begin, or end (`closing`), ns, shape (calls,).

    `alike`: how many iterations must do the same work as the next one if each has one call. `even`: none, if they take
    about as long.
    """

    source: LoopSource
    call: str
    thread: int
    at: I8
    closing: bool = False
    alike: float = MOST
    even: bool = False


def find_loop(trace: Trace) -> Loop | None:
    """The loop with the longest regular period over the trace; None if nothing repeats.

    Compiled code and backward passes may repeat within a step. They count only where no call stands for a step.
    """
    loops = _regular(trace, _loop_calls(trace))
    for annotated in _regular(trace, _annotations(trace)):
        within = {loop.source for loop in loops if LONGER * loop.period_ns < annotated.period_ns}
        if within != {"data_loader", "optimizer"}:  # both: it is an epoch
            loops.insert(0, annotated)
    if not loops and not any(map(_stands_for_a_step, trace.names)):
        loops = _regular(trace, _compiled_regions(trace)) or _regular(trace, _backward_passes(trace))
    best = None
    for loop in loops:
        if best is None or loop.period_ns > LONGER * best.period_ns:
            best = loop
    return best


def is_of_the_loop(name: str) -> bool:
    """Data loading and the optimizer, which the training loop itself runs once per step."""
    return op_names.is_dataloader(name) or op_names.is_optimizer_step(name) or op_names.is_zero_grad(name)


def _stands_for_a_step(name: str) -> bool:
    return op_names.is_dataloader(name) or op_names.is_optimizer_step(name)


def _regular(trace: Trace, kinds: Iterator[_Calls]) -> list[Loop]:
    """The kinds of calls that make regular iterations."""
    host = trace.ops if len(trace.ops) else trace.runtime
    end = max((int(table.end.max()) for table in (host, trace.annotations) if len(table)), default=0)
    loops = (_loop(calls, host.start, end) for calls in kinds if len(calls.at) >= MIN_CALLS)
    return [loop for loop in loops if loop is not None]


def _loop(calls: _Calls, work: I8, end: int) -> Loop | None:
    """The iterations that these calls make; None if they are irregular, or a small part of the trace. Compiled code may
    be a layer, so the trace may hold nothing outside of its iterations.

    The last one ends with the recording, perhaps early. So it counts only where there are few. `work`: when the host
    began each operator, ns.
    """
    done = np.diff(np.searchsorted(work, calls.at))
    every = _calls_per_iteration(calls, done)
    border = calls.at[::every] if every else calls.at[:0]
    if len(border) < 2:
        return None
    place = np.searchsorted(work, border)
    usual, left = median(np.diff(place)), len(work) - int(place[-1])
    outside = left > (1 + MAX_UNLIKE) * usual or place[0] > MAX_OUTSIDE * len(work)
    if calls.source == "compiled_region" and outside:
        return None
    if not calls.closing and len(border) <= MIN_CALLS and abs(left - usual) <= MAX_UNLIKE * usual:
        border = np.append(border, end)
    enough = len(border) > MIN_CALLS or (len(border) == MIN_CALLS and _is_even(np.diff(border)))
    covers = border[-1] - border[0] >= MIN_COVERAGE * (end - border[0])
    return Loop(calls.source, calls.call, calls.thread, border, every) if enough and covers else None


def _calls_per_iteration(calls: _Calls, done: I8) -> int:
    """After how many calls the work repeats; 0: it does not. `done`: operators from call to call."""
    length = np.diff(calls.at)
    if len(done) >= MIN_CALLS:  # the first may be a cold start
        done, length = done[1:], length[1:]
    for every in range(1, min(len(done) // 2, MAX_CALLS) + 1):
        left, right = done[every:], done[:-every]
        alike = np.abs(left - right) <= MAX_UNLIKE * np.maximum(left, right)
        if alike.mean() >= (calls.alike if every == 1 else MOST):
            return every
    return int(calls.even and _is_even(length))


def _is_even(length: I8) -> bool:
    """Whether most take about as long as the median."""
    usual = median(length)
    return bool(((length >= usual / MAX_SPREAD) & (length <= MAX_SPREAD * usual)).mean() >= MOST)


def _loop_calls(trace: Trace) -> Iterator[_Calls]:
    """The calls of data loaders, of which each may begin an iteration, and the updates of optimizers, which end one."""
    table = trace.annotations
    loads, updates = (
        np.flatnonzero(named[table.name])
        for named in (_names(trace, op_names.is_dataloader), _names(trace, op_names.is_optimizer_step))
    )
    if len(loads):
        thread = int(np.bincount(table.thread[loads]).argmax())
        at = distinct_values(table.start[loads[table.thread[loads] == thread]])
        yield _Calls("data_loader", "DataLoader iteration", thread, at, alike=USUAL, even=True)
    inside = np.maximum.accumulate(table.end_of(updates))[:-1] > table.start[updates][1:]
    updates = updates[np.append(True, ~inside)[: len(updates)]]  # an optimizer may wrap another
    for code, thread, rows in _by_name_and_thread(table, updates):
        yield _Calls("optimizer", trace.names[code], thread, table.end_of(rows), closing=True, alike=USUAL)


def _annotations(trace: Trace) -> Iterator[_Calls]:
    """The annotation that covers most of the trace, of those that could be a step."""
    table = trace.annotations
    part = _names(trace, _is_part_of_a_step)
    best, longest = None, 0
    for code, thread, rows in _by_name_and_thread(table, np.flatnonzero(~part[table.name] & (table.duration > 0))):
        start, end, duration = table.start[rows], table.end_of(rows), table.duration[rows]
        cover = int(end[-1] - start[0])
        disjoint = (start[1:] >= end[:-1]).all()
        if len(rows) < MIN_CALLS or cover <= longest or not disjoint:
            continue
        if duration.sum() >= MIN_COVERAGE * cover and _is_even(duration[1:]):
            gapless = (start[1:] - end[:-1]).mean() < MAX_BETWEEN * (start[-1] - start[0]) / (len(rows) - 1)
            at = np.append(start, end[-1:]) if gapless else start
            longest, best = cover, _Calls("annotation", trace.names[code], thread, at, closing=bool(gapless), alike=0.0)
    if best is not None:
        yield best


def _compiled_regions(trace: Trace) -> Iterator[_Calls]:
    """The calls of each region that torch.compile made."""
    named = _names(trace, lambda name: torch_compile.compiled_region(name) is not None)
    for table in (trace.ops, trace.annotations):
        for code, thread, rows in _by_name_and_thread(table, np.flatnonzero(named[table.name])):
            yield _Calls("compiled_region", trace.names[code], thread, table.start[rows])


def _backward_passes(trace: Trace) -> Iterator[_Calls]:
    """The first nodes of backward passes, each after operators that record gradients."""
    ops = trace.ops
    forward = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0))
    nodes = ops.start[_names(trace, op_names.is_backward)[ops.name]]
    if len(forward) and len(nodes):
        before = np.searchsorted(ops.start[forward], nodes)
        first = np.flatnonzero(np.diff(before, prepend=0))
        yield _Calls("backward", "backward pass", int(np.bincount(ops.thread[forward]).argmax()), nodes[first])


def _by_name_and_thread(table: ThreadSpans, rows: I8) -> Iterator[tuple[int, int, I8]]:
    """Code of the name, thread, and the rows that have both, for each pair."""
    if not len(rows):
        return
    first, group = group_rows(table.name[rows], table.thread[rows])
    for row, own in zip(first.tolist(), split(rows, group, len(first)), strict=True):
        yield int(table.name[rows[row]]), int(table.thread[rows[row]]), own


def _names(trace: Trace, test: Callable[[str], bool]) -> Mask:
    """Which names pass a test. Shape (len(trace.names),)."""
    return np.array([test(name) for name in trace.names] or [False])


def _is_part_of_a_step(name: str) -> bool:
    """Data loading, the optimizer, compiled code and collectives repeat in a step but are not the step."""
    return is_of_the_loop(name) or torch_compile.is_compiled_code(name) or op_names.is_collective_annotation(name)
