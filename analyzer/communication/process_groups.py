"""Collectives by their process group: its members, what it is for, and how much of its time is exposed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import numbered
from traceopt.analyzer.arrays.intervals import intersect, union
from traceopt.analyzer.communication.collectives import CollectiveCalls, bus_factor
from traceopt.analyzer.communication.gradient_reductions import REDUCING, GradientReductions
from traceopt.analyzer.communication.parallelism import DATA, PIPELINE, parallelism_of
from traceopt.analyzer.communication.stage_waits import StageWaits
from traceopt.analyzer.tables.json_values import table, whole, word
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.gpu_work import GpuWork

MOST = 0.9  # of the reduced bytes, or of the calls: that is what a group is for
_NO_DESCRIPTION = "undefined"  # PyTorch's word
_MOST_RANKS = 1 << 20
_MOST_GROUPS = 100  # a rank is in a few; each takes a pass over all collectives
_LIST = re.compile(r"\[\d{1,7}(, *\d{1,7})*\]")  # a long list is cut: "[0, 1, ..., 511]"


class ProcessGroup(Struct, frozen=True):
    """The collectives of one group inside the window. Times in ns."""

    name: str
    description: str  # by the framework; "": none
    ranks: tuple[int, ...]  # its members; empty: not recorded
    size: int  # its number of ranks, 0: not recorded
    parallelism: str | None  # what it is for; None: not known
    by_kind: list[CollectiveCalls]  # longest first
    beside_ns: int  # in which a collective of another group runs, too

    @property
    def rows(self) -> I8:
        return np.concatenate([calls.rows for calls in self.by_kind])

    @property
    def exposed_ns(self) -> int:
        return sum(int(calls.exposed.sum()) for calls in self.by_kind)

    @property
    def known_bytes(self) -> int | None:
        """What one rank puts in; None if that was not recorded for every call."""
        if any((calls.bytes < 0).any() for calls in self.by_kind):
            return None
        return sum(int(calls.bytes.sum()) for calls in self.by_kind)

    @property
    def link_bytes(self) -> float | None:
        """What goes over the link; None if that is not known for every call."""
        if self.known_bytes is None or any(calls.bus_factor is None for calls in self.by_kind):
            return None
        return sum(float(calls.bytes.sum()) * (calls.bus_factor or 0.0) for calls in self.by_kind)


class GroupOverlap(Struct, frozen=True):
    """For how long something runs while a group communicates. Time in ns."""

    group: ProcessGroup
    beside: str  # kind of compute, "memcpy", "memset", or the name of another group
    is_group: bool
    ns: int
    of_ns: int  # while the group communicates


class _Declared(Struct, frozen=True):
    """A group as the file's header declares it."""

    description: str
    ranks: tuple[int, ...]


def find_process_groups(
    trace: Trace,
    gpu: GpuWork,
    collectives: Sequence[CollectiveCalls],
    reductions: GradientReductions,
    stages: StageWaits,
) -> list[ProcessGroup]:
    """The groups of a GPU's collectives, most exposed first: at most the _MOST_GROUPS that take longest. Empty if a
    collective does not name its group.
    """
    work, group_of = gpu.work, gpu.work.process_group
    every = np.concatenate([np.empty(0, np.int64), *(calls.rows for calls in collectives)])
    if (group_of[every] < 0).any():
        return []
    declared = _declared_groups(trace.meta.header)
    out = []
    for code in _longest(group_of[every], gpu.in_window[every]):
        mine, others = every[group_of[every] == code], every[group_of[every] != code]
        name = trace.texts[code].strip('"')
        about = declared.get(name) or _Declared("", _listed_ranks(trace, int(work.process_group_ranks[mine[0]])))
        size = len(about.ranks) or max(0, int(work.group_size[mine].max()))
        by_kind = [_in_group(calls.take(group_of[calls.rows] == code), size, trace) for calls in collectives]
        by_kind = [calls for calls in by_kind if len(calls.rows)]
        by_kind.sort(key=lambda calls: -int(gpu.in_window[calls.rows].sum()))
        beside = union(work.start[others], work.end_of(others))
        out.append(
            ProcessGroup(
                name=name,
                description=about.description,
                ranks=about.ranks,
                size=size,
                parallelism=parallelism_of(about.description) or _by_its_work(by_kind, reductions, stages),
                by_kind=by_kind,
                beside_ns=int(beside.within(work.start[mine], work.end_of(mine)).sum()),
            )
        )
    return sorted(out, key=lambda group: -group.exposed_ns)


def find_group_overlaps(gpu: GpuWork, groups: Sequence[ProcessGroup]) -> list[GroupOverlap]:
    """What runs while each group communicates, longest first for each group; without what never does."""
    kinds = {kind: gpu.area(gpu.kind.among(kind)) for kind in sorted(gpu.kind.used - {"collective"})} if groups else {}
    work = gpu.work
    areas = [intersect(union(work.start[group.rows], work.end_of(group.rows)), gpu.window) for group in groups]
    out = []
    for group, area in zip(groups, areas, strict=True):
        others = [(other.name, True, its) for other, its in zip(groups, areas, strict=True) if other is not group]
        found = [*((kind, False, its) for kind, its in kinds.items()), *others]
        overlaps = [
            GroupOverlap(group, beside, is_group, intersect(area, its).total, area.total)
            for beside, is_group, its in found
        ]
        out += sorted((overlap for overlap in overlaps if overlap.ns), key=lambda overlap: -overlap.ns)
    return out


def find_only_group(
    trace: Trace, collectives: Sequence[CollectiveCalls], reductions: GradientReductions, stages: StageWaits
) -> list[ProcessGroup]:
    """The group of a CPU-only run, whose collectives do not name theirs: empty unless the file declares just one."""
    declared = _declared_groups(trace.meta.header)
    if len(declared) != 1 or not collectives:
        return []
    ((name, about),) = declared.items()
    by_kind = [_in_group(calls, len(about.ranks), trace) for calls in collectives]
    parallelism = parallelism_of(about.description) or _by_its_work(by_kind, reductions, stages)
    return [ProcessGroup(name, about.description, about.ranks, len(about.ranks), parallelism, by_kind, beside_ns=0)]


def _longest(codes: npt.NDArray[np.int32], duration: I8) -> list[int]:
    """The groups that take longest."""
    known, group = numbered(codes)
    order = np.argsort(-np.bincount(group, duration), kind="stable")
    longest: list[int] = known[order[:_MOST_GROUPS]].tolist()
    return longest


def _in_group(calls: CollectiveCalls, size: int, trace: Trace) -> CollectiveCalls:
    """Some of the calls, as those of a group of this size."""
    return replace(calls, bus_factor=bus_factor(calls.name, size, trace.meta.world_size or 0), group_size=size)


def _by_its_work(by_kind: Sequence[CollectiveCalls], reductions: GradientReductions, stages: StageWaits) -> str | None:
    """What a group is for, by what it does: data parallelism if it reduces gradients, and next to nothing outside
    backward passes; a pipeline if it sends and receives. Tensor, context and expert parallelism look alike.
    """
    rows = np.concatenate([calls.rows for calls in by_kind])
    if np.isin(rows, stages.rows).mean() >= MOST:
        return PIPELINE
    reducing = [calls for calls in by_kind if calls.name in REDUCING]
    reduced = sum(float(np.maximum(calls.bytes, 1).sum()) for calls in reducing)
    in_backward = sum(
        float(np.maximum(calls.bytes, 1)[np.isin(calls.rows, reductions.rows)].sum()) for calls in reducing
    )
    return DATA if reduced and in_backward >= MOST * reduced else None


def _declared_groups(header: dict[str, Any]) -> dict[str, _Declared]:
    """By name. The header is untrusted: what is not as PyTorch writes it is left out."""
    groups = table(header.get("distributedInfo")).get("pg_config")
    out = {}
    for group in map(table, groups if isinstance(groups, list) else []):
        if (name := word(group.get("pg_name"))) is not None:
            described = word(group.get("pg_desc")) or ""
            out[name] = _Declared("" if described == _NO_DESCRIPTION else described, _ranks(group.get("ranks")))
    return out


def _listed_ranks(trace: Trace, code: int) -> tuple[int, ...]:
    text = trace.texts[code].strip('"') if code >= 0 else ""
    return _ranks(list(map(int, text[1:-1].split(",")))) if _LIST.fullmatch(text) else ()


def _ranks(values: Any) -> tuple[int, ...]:
    """The members of a group; empty if one of them is no rank."""
    ranks = [whole(value, _MOST_RANKS) for value in values] if isinstance(values, list) else []
    return () if None in ranks else tuple(rank for rank in ranks if rank is not None)
