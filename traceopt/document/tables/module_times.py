"""The nn.Modules of the model, as a tree and by class: calls, device time of forward and backward, host time."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values, group_rows
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I4, I8, Mask
from traceopt.analyzer.timeline.call_tree import OP, PYTHON
from traceopt.analyzer.vocabulary.python_frames import MODULE_FRAME
from traceopt.result.sections.work_rows import ModuleClass, ModuleRow
from traceopt.result.words.rounding import rate, share, us

MAX_ROWS = 300
MAX_DEPTH = 60
_NONE = -1
_NUMBER = re.compile(r"_\d+$")  # of a module among those of its class


class ModuleTimes(Struct, frozen=True):
    """Calls and times of the modules. Arrays have shape (nodes,): a node is a place in the model, callers come first.
    Times are ns of all typical steps.
    """

    names: list[str]  # class and number, "Linear_3"
    parent: I8  # node; -1: none
    calls: I8
    host: I8 | None  # of the forward; None: frames were not recorded with the times
    forward: I8  # of the device, without callees
    backward: I8
    steps: int

    def tree(self) -> list[ModuleRow]:
        """Callers come before callees, siblings by time. At most MAX_ROWS rows: those with the most time."""
        forward, backward = (_with_callees(own, self.parent) for own in (self.forward, self.backward))
        place = _in_order(self.parent, forward + backward)
        return [
            ModuleRow(
                name=self.names[node],
                parent=place[int(self.parent[node])] if self.parent[node] >= 0 else _NONE,
                calls_per_step=rate(self.calls[node] / self.steps),
                forward_us_per_step=us(forward[node] / self.steps),
                backward_us_per_step=us(backward[node] / self.steps),
                own_us_per_step=us((self.forward[node] + self.backward[node]) / self.steps),
                host_us_per_step=us(self.host[node] / self.steps) if self.host is not None else None,
            )
            for node in place
        ]

    def classes(self) -> list[ModuleClass]:
        """The modules of each class together, longest first."""
        found, group = np.unique([_NUMBER.sub("", name) for name in self.names], return_inverse=True)
        modules = [len({self.names[node] for node in np.flatnonzero(group == index)}) for index in range(len(found))]
        calls, forward, backward = (
            np.bincount(group, weights=values, minlength=len(found)) / self.steps
            for values in (self.calls, self.forward, self.backward)
        )
        own, whole = forward + backward, float((forward + backward).sum())
        return [
            ModuleClass(
                name=str(found[one]),
                modules=modules[one],
                calls_per_step=rate(calls[one]),
                forward_us_per_step=us(forward[one]),
                backward_us_per_step=us(backward[one]),
                share=share(own[one] / whole) if whole else 0.0,
            )
            for one in np.argsort(-own, kind="stable").tolist()
        ]


def module_times(facts: Facts) -> ModuleTimes | None:
    """None if the trace does not name modules."""
    slices, steps = facts.slices, facts.steps
    named = facts.regions.named(lambda name: name.startswith(MODULE_FRAME), PYTHON)
    if not named.any():
        return None
    called, sources = steps.host_window.contains(slices.start), facts.links.launch_slice
    shown = called
    if facts.has_gpu and facts.graph_origins.replayed.any():
        sources = _sources(facts)
        shown = called | slices.encloses(_launching(facts, sources))
    rows = np.flatnonzero(named & shown)
    around = np.where(slices.parent[rows] >= 0, slices.nearest(named)[slices.parent[rows]], _NONE)
    node_of, parent, name = _nodes(slices.name, rows, around, len(slices))
    count = len(parent)
    here = node_of[rows]
    known = (here >= 0) & called[rows]
    host = np.bincount(here[known], weights=slices.duration_of(rows)[known], minlength=count)
    if facts.has_gpu:
        forward, backward = _by_pass(facts, named, node_of, count, sources, facts.gpu.work.duration)
    else:
        forward, backward = _cpu_time(facts, named, node_of, count)
    return ModuleTimes(
        [facts.trace.names[code].removeprefix(MODULE_FRAME) for code in name],
        parent,
        np.bincount(here[known], minlength=count),
        host.astype(np.int64) if facts.frames_recorded_with_times else None,
        forward,
        backward,
        steps.count,
    )


def _nodes(
    names: npt.NDArray[np.int32], rows: npt.NDArray[np.intp], around: npt.NDArray[np.integer], slices: int
) -> tuple[I8, I8, I8]:
    """Calls of the same modules from the root down are one node: the node of each slice (-1: none), and the parent and
    the name of each node. Parents come first.
    """
    node_of = np.full(slices + 1, _NONE)  # the last entry stands for no slice
    inside = np.zeros(slices + 1, bool)
    inside[rows] = True
    level = np.flatnonzero(~inside[around])
    waiting = np.flatnonzero(inside[around])
    parents, called = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    count = 0
    for _ in range(MAX_DEPTH):
        if not len(level):
            break
        above = node_of[around[level]]
        first, group = group_rows(above, names[rows[level]])
        node_of[rows[level]] = count + group
        parents.append(above[first])
        called.append(names[rows[level[first]]].astype(np.int64))
        count += len(first)
        reached = node_of[around[waiting]] >= 0
        level, waiting = waiting[reached], waiting[~reached]
    return node_of, np.concatenate(parents), np.concatenate(called)


def _sources(facts: Facts) -> I4:
    """The slice behind each piece of GPU work: if a step replays it, the call that captured it into the CUDA graph."""
    launch, captured = facts.links.launch_slice, facts.graph_origins.launch_slice
    in_steps = (launch >= 0) & facts.steps.host_window.contains(facts.slices.start[launch])
    return np.where(in_steps & (captured >= 0), captured, launch)


def _launching(facts: Facts, sources: npt.NDArray[np.integer]) -> Mask:
    """The calls of a capture behind work that the steps replay, with the forward operators of its backward pass."""
    captured = distinct_values(sources[sources != facts.links.launch_slice])
    forward = facts.call_sites.forward_of(captured)
    return facts.slices.mask(np.concatenate((captured, forward[forward >= 0])))


def _cpu_time(facts: Facts, named: npt.NDArray[np.bool_], node_of: I8, count: int) -> tuple[I8, I8]:
    """The same of a step on the CPU: the time of the operators that no other operator calls."""
    slices = facts.slices
    rows = slices.outermost(slices.kind == OP)
    rows = rows[facts.steps.host_window.contains(slices.start[rows])]
    return _by_pass(facts, named, node_of, count, rows, slices.duration_of(rows))


def _by_pass(
    facts: Facts,
    named: npt.NDArray[np.bool_],
    node_of: I8,
    count: int,
    calls: npt.NDArray[np.integer],
    duration: npt.NDArray[np.integer],
) -> tuple[I8, I8]:
    """Time of each node without its callees, in the forward and in the backward pass, ns. `calls`: the slice of each
    piece of work, -1 for none; work of the device counts for the step that launched it. `duration`: its time, ns.
    """
    slices = facts.slices
    forward = slices.ancestor(calls, named)
    backward = np.full(len(calls), _NONE)
    rest = np.flatnonzero((forward < 0) & (calls >= 0))
    backward[rest] = slices.ancestor(facts.call_sites.forward_of(calls[rest]), named)
    times = []
    for module in (forward, backward):
        node = node_of[module]
        mine = node >= 0
        time = np.bincount(node[mine], weights=duration[mine], minlength=count)
        times.append(time.astype(np.int64))
    return times[0], times[1]


def _with_callees(own: I8, parent: I8) -> I8:
    total: I8 = own.copy()
    for node in range(len(parent) - 1, -1, -1):  # callees come after their callers
        if parent[node] >= 0:
            total[parent[node]] += total[node]
    return total


def _in_order(parent: I8, weight: npt.NDArray[np.number]) -> dict[int, int]:
    """The shown nodes, each with its row: callers before callees, siblings by weight."""
    kept = set(np.argsort(-weight, kind="stable")[:MAX_ROWS].tolist())
    children: dict[int, list[int]] = {}
    for node in sorted(kept, key=lambda node: -weight[node]):
        children.setdefault(int(parent[node]), []).append(node)
    order: dict[int, int] = {}
    waiting = children.get(_NONE, [])[::-1]
    while waiting:
        node = waiting.pop()
        order[node] = len(order)
        waiting += children.get(node, [])[::-1]
    return order
