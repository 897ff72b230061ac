"""What torch.compile did in a run: graph breaks, recompilations, time by phase, CUDA graphs that were not used.

The source is a TORCH_TRACE folder (analyzer/companions/compile_log), or Dynamo's notes from `traceopt run`
(analyzer/run_log/compilations.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.torch_compile import BreakText, GuardText
from traceopt.result.finding import Location
from traceopt.result.sections.companions import CompilePhaseName, CompileSource

PHASES: tuple[CompilePhaseName, ...] = get_args(CompilePhaseName)  # each is without the others


class FrameKey(Struct, frozen=True):
    """A compilation of a frame, as traces name it: "Torch-Compiled Region: 3/1" is compilation 1 of frame "3".

    `frame` is None if unknown. Processes count their frames separately.
    """

    frame: str | None
    number: int
    process: int = 0


class Compiled(Struct, frozen=True):
    """One compilation, forward or backward. `duration_ns` is None if it was not recorded.

    `site` is where the function begins. `guard` is why the frame was compiled again; None for a first compilation.
    `failure` is why it was not compiled and runs in eager mode. A `resumed` frame is the rest of a function after a
    graph break.
    """

    key: FrameKey
    function: str | None
    site: Location | None
    duration_ns: int | None
    backward: bool = False
    resumed: bool = False
    guard: GuardText | None = None
    failure: BreakText | None = None
    graph_skip: str | None = None


class GraphBreak(Struct, frozen=True):
    """A place where Dynamo split the graph, and how often it did so. `frames` are the frames that it compiled there."""

    text: BreakText
    site: Location | None
    count: int
    frames: tuple[str, ...] = ()


class Recompiled(Struct, frozen=True):
    """Compilations of a function for one reason. `guards` are the different values of the guard, as they failed.

    `site` is the line that the guard stands for if it is known, else where the function begins. `total_ns` is None if
    no time was recorded.
    """

    function: str | None
    site: Location | None
    guards: tuple[GuardText, ...]
    count: int
    total_ns: int | None
    frames: tuple[str, ...]


class Fallback(Struct, frozen=True):
    """A function that Dynamo gave up on: the calls that no compiled code fits run in eager mode."""

    function: str | None
    site: Location | None
    text: BreakText
    count: int
    guard: GuardText | None

    @property
    def cause(self) -> Location | None:
        """The line of the last guard that failed; where the function begins if that is unknown."""
        return self.site if self.guard is None else self.guard.site or self.site


class KernelSource(Struct, frozen=True):
    """The operators that Inductor fused into a kernel ("aten.silu, aten.mul"), and a line. None: unknown."""

    operators: str | None
    site: Location | None


class GraphSkip(Struct, frozen=True):
    """Compiled code that Inductor does not replay as a CUDA graph, and why; `site` is the line of the cause."""

    reason: str
    site: Location | None
    count: int


class Compilation(Struct, frozen=True, dict=True):
    """All compilations of a process, or of one rank.

    `graph_recordings` counts recorded CUDA graphs, `graph_rerecordings` repeated recordings of the same compiled
    code; None if unknown. `missing` counts compilations that were not recorded one by one. `processes` were recorded.
    `kernels` are Inductor's by name, without names that stand for different operators.
    """

    source: CompileSource
    compiled: tuple[Compiled, ...]
    breaks: tuple[GraphBreak, ...]
    phases_ns: dict[str, int]
    graph_skips: tuple[GraphSkip, ...] = ()
    graph_recordings: int | None = None
    graph_rerecordings: int | None = None
    missing: int = 0
    processes: int = 1
    kernels: dict[str, KernelSource] = {}

    @cached_property
    def total_ns(self) -> int | None:
        """Time in the compiler; None if it was not recorded."""
        return sum(self.phases_ns.values()) if self.phases_ns else None

    @cached_property
    def resumed_frames(self) -> frozenset[str]:
        """The frames that exist because of graph breaks: the rest of a function after one."""
        return frozenset(
            compiled.key.frame for compiled in self.compiled if compiled.resumed and compiled.key.frame is not None
        )

    def frames_of(self, site: Location | None) -> frozenset[str]:
        """The frames that Dynamo compiled of a function, by any of its lines."""
        if site is None:
            return frozenset()
        wanted = (site.function, site.file)
        return frozenset(
            compiled.key.frame
            for compiled in self.compiled
            if compiled.key.frame is not None
            and compiled.site is not None
            and (compiled.function, compiled.site.file) == wanted
        )

    @property
    def count(self) -> int:
        """How often a frame was compiled; its backward pass belongs to it."""
        return sum(1 for compiled in self.compiled if not compiled.backward and compiled.failure is None) + self.missing

    @cached_property
    def recompilations(self) -> tuple[Recompiled, ...]:
        """Grouped by function and guard, without the values in it; most time first."""
        groups: defaultdict[tuple[object, ...], list[Compiled]] = defaultdict(list)
        for compiled in self.compiled:
            if compiled.guard is not None and compiled.failure is None:
                groups[compiled.function, compiled.guard.site or compiled.site, compiled.guard.pattern].append(compiled)
        found = [self._recompilation(group) for group in groups.values()]
        return tuple(sorted(found, key=lambda compiled: (-(compiled.total_ns or 0), -compiled.count)))

    @cached_property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """Functions that were not compiled, by function and reason; most often first."""
        groups: defaultdict[tuple[object, ...], list[Compiled]] = defaultdict(list)
        for compiled in self.compiled:
            if compiled.failure is not None:
                groups[compiled.function, compiled.site, compiled.failure.title].append(compiled)
        found = [
            Fallback(first.function, first.site, first.failure, len(group), first.guard)
            for group in groups.values()
            if (first := group[0]).failure is not None
        ]
        return tuple(sorted(found, key=lambda compiled: -compiled.count))

    @cached_property
    def _backward_ns(self) -> Counter[FrameKey]:
        """Time to compile the backward passes that are compiled later than their frame."""
        times: Counter[FrameKey] = Counter()
        for compiled in self.compiled:
            if compiled.backward and compiled.duration_ns is not None:
                times[compiled.key] += compiled.duration_ns
        return times

    def _recompilation(self, group: list[Compiled]) -> Recompiled:
        guards = tuple(dict.fromkeys(compiled.guard for compiled in group if compiled.guard is not None))
        forward = [compiled.duration_ns for compiled in group if compiled.duration_ns is not None]
        backward_ns = sum(self._backward_ns[key] for key in {compiled.key for compiled in group})
        return Recompiled(
            group[0].function,
            next((guard.site for guard in guards if guard.site is not None), group[0].site),
            guards,
            len(group),
            sum(forward) + backward_ns if forward else None,
            tuple(dict.fromkeys(compiled.key.frame for compiled in group if compiled.key.frame is not None)),
        )


def with_functions(compiled: Iterable[Compiled]) -> list[Compiled]:
    """Dynamo names no function for a failed compilation or a backward pass. They get the function of their frame."""
    compiled = list(compiled)
    named = {row.key.frame: row for row in compiled if row.function is not None}
    return [
        replace(row, function=other.function, site=other.site)
        if row.function is None and (other := named.get(row.key.frame)) is not None
        else row
        for row in compiled
    ]


def merged_breaks(breaks: Iterable[GraphBreak]) -> tuple[GraphBreak, ...]:
    """One for each reason and place; most often first."""
    groups: defaultdict[tuple[str, Location | None], list[GraphBreak]] = defaultdict(list)
    for graph_break in breaks:
        groups[graph_break.text.title, graph_break.site].append(graph_break)
    found = [
        GraphBreak(
            group[0].text,
            site,
            sum(compiled.count for compiled in group),
            tuple(dict.fromkeys(frame for compiled in group for frame in compiled.frames)),
        )
        for (_, site), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda graph_break: -graph_break.count))


def merged_skips(skips: Iterable[GraphSkip]) -> tuple[GraphSkip, ...]:
    """One for each reason and place; most often first."""
    counts: defaultdict[tuple[str, Location | None], int] = defaultdict(int)
    for skip in skips:
        counts[skip.reason, skip.site] += skip.count
    found = [GraphSkip(reason, site, count) for (reason, site), count in counts.items()]
    return tuple(sorted(found, key=lambda skip: -skip.count))
