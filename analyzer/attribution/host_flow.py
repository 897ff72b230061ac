"""What the host threads that launch work did: dispatch, and the long work that is no dispatch.

The host dispatches if it launches again and again: operators, launch calls, and a little Python between them. Every
launch ends the idle gap before it, so gaps made of dispatch are short. In a long gap the host did something else.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, merge, subtract, union
from traceopt.analyzer.attribution.idle import Gaps
from traceopt.analyzer.attribution.silent_work import LONG_NS, SilentWork
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline import call_tree
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.host_activity import Host
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import (
    CAUSES,
    CPU_OP,
    LAUNCH,
    LONG_PYTHON,
    LONG_WORK,
    PYTHON,
    SMALL_OPS,
    UNRECORDED,
    UNTRACED_PYTHON,
)

_MOST_HELPERS = 4  # other launching threads that are asked while the thread itself shows nothing


class CpuOperators(Struct, frozen=True):
    """Operators that computed on the CPU, and when. `rows` of Slices and `cost_ns` have shape (len,)."""

    rows: npt.NDArray[np.int64]
    cost_ns: I8
    area: Intervals


class HostFlow(Struct, frozen=True, dict=True):
    """Exclusive activities of the threads that launch work. `threads` are those, the training thread first."""

    host: Host
    regions: Regions
    gaps: Gaps
    threads: tuple[int, ...]
    untraced_python: Intervals

    def of(self, thread: int) -> dict[Cause, Intervals]:
        """What a thread did. While it shows nothing, or waits for the autograd engine, these are what the
        training thread does, then what the other launching threads do.
        """
        known = self._by_thread.get(thread)
        if known is None:
            known = self._by_thread[thread] = self._of(thread)
        return known

    @cached_property
    def _by_thread(self) -> dict[int, dict[Cause, Intervals]]:
        return {}

    def _of(self, thread: int) -> dict[Cause, Intervals]:
        helpers = [other for other in self.threads if other not in (thread, -1)][:_MOST_HELPERS]
        areas, taken, waits = dict[Cause, Intervals](), EMPTY, EMPTY
        for one in (thread, *helpers):
            own = self.own(one)
            waiting = intersect(own[PYTHON], self._engine(one))
            own |= {PYTHON: subtract(own[PYTHON], waiting)}
            areas = {cause: merge(areas.get(cause, EMPTY), subtract(area, taken)) for cause, area in own.items()}
            taken, waits = merge(*areas.values()), merge(waits, waiting)
        return self._without_long_gaps(areas | {PYTHON: merge(areas[PYTHON], subtract(waits, taken))})

    def _engine(self, thread: int) -> Intervals:
        """When a thread is in the autograd engine and runs no Python of the program there."""
        engine, slices = self.regions.engine, self.regions.slices
        if not engine.any():
            return EMPTY
        inside = (slices.kind == call_tree.PYTHON) & ~engine & (slices.nearest(engine) >= 0)
        return subtract(self.regions.area(engine, thread), self.regions.area(inside, thread))

    def own(self, thread: int) -> dict[Cause, Intervals]:
        """What a thread did itself. Operators and calls that show no event for long are named for what they are,
        and functions that only compute are no dispatch.
        """
        areas = self.host.of_thread(thread) | dict.fromkeys((*LONG_WORK, UNTRACED_PYTHON), EMPTY)
        silence = self._silent_work.of(thread)
        silence = silence.take((silence.end - silence.start >= LONG_NS) | self._long.contains(silence.start))
        for cause in {CAUSES[index] for index in silence.cause.tolist()} - {LAUNCH}:
            area = intersect(silence.of(cause).area, areas[LAUNCH])
            areas |= {cause: merge(areas[cause], area), LAUNCH: subtract(areas[LAUNCH], area)}
        functions = subtract(self.regions.area(self.regions.computing_functions, thread), self.untraced_python)
        computing = intersect(areas[PYTHON], functions)
        return areas | {PYTHON: subtract(areas[PYTHON], computing), LONG_PYTHON: merge(areas[LONG_PYTHON], computing)}

    @cached_property
    def _silent_work(self) -> SilentWork:
        return SilentWork(self.regions)

    def _without_long_gaps(self, areas: dict[Cause, Intervals]) -> dict[Cause, Intervals]:
        """Dispatch is left in short gaps, and in the operator that ends a long one."""
        launch, python, silent = areas[LAUNCH], areas[PYTHON], intersect(areas[PYTHON], self.untraced_python)
        known = merge(*areas.values())
        return areas | {
            LAUNCH: subtract(launch, self._long),
            PYTHON: subtract(python, merge(self._long, silent)),
            SMALL_OPS: intersect(launch, self._long),
            LONG_PYTHON: merge(areas[LONG_PYTHON], subtract(intersect(python, self._long), silent)),
            UNTRACED_PYTHON: silent,
            UNRECORDED: merge(areas[UNRECORDED], subtract(self._long, known)),
        }

    @cached_property
    def cpu_operators(self) -> CpuOperators:
        """The operators that computed on the CPU while the device starved, on any thread that launches."""
        slices = self.regions.slices
        is_op = slices.kind == OP
        rows, costs, areas = [np.empty(0, np.int64)], [np.empty(0, np.int64)], []
        for thread in self.threads:
            area = intersect(self.of(thread)[CPU_OP], self.gaps.starved)
            mine = slices.of_thread(thread)
            outer = slices.outermost(is_op)
            outer = outer[(outer >= mine.start) & (outer < mine.stop)]
            cost = area.within(slices.start[outer], slices.end[outer])
            rows.append(outer[cost > 0])
            costs.append(cost[cost > 0])
            areas.append(area)
        return CpuOperators(np.concatenate(rows), np.concatenate(costs), merge(*areas))

    @cached_property
    def _long(self) -> Intervals:
        """Long idle gaps without the operators that end them."""
        starved = self.gaps.starved
        long = starved.length >= LONG_NS
        return subtract(Intervals(starved.start[long], starved.end[long]), self._ending)

    @cached_property
    def _ending(self) -> Intervals:
        """In each gap, from the start of the operator that ends it until its first launch reaches the device."""
        regions, slices = self.regions, self.regions.slices
        ended = np.flatnonzero(self.gaps.next_row < len(regions.gpu.work))
        launch = regions.links.launch_slice[self.gaps.next_row[ended]]
        ended, launch = ended[launch >= 0], launch[launch >= 0]
        outermost = slices.mask(slices.outermost(slices.kind == OP))
        op = slices.ancestor(launch, outermost)
        first = np.where(op >= 0, op, launch)
        begin = np.maximum(slices.start[first], slices.end[launch] - LONG_NS)
        return union(np.maximum(begin, self.gaps.start[ended]), self.gaps.starved_end[ended])
