"""The part of the result document about torch.compile: graph breaks, recompilations, time by phase, CUDA graphs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location


class CompilePhase(Struct, frozen=True):
    """A part of the compiler, without the parts that it calls."""

    name: Annotated[
        Literal[
            "dynamo",
            "aot_autograd",
            "inductor",
            "code_generation",
            "kernel_compilation",
            "autotuning",
            "cuda_graph_recording",
        ],
        note("key of the phase"),
    ]
    us: Annotated[float, note("time over the whole run", "us")]


class CompileBreak(Struct, frozen=True):
    """A place where torch.compile split the graph."""

    reason: Annotated[str, note("why Dynamo cannot trace the line")]
    explanation: Annotated[str | None, note("PyTorch's explanation of the reason")]
    hint: Annotated[str | None, note("PyTorch's first hint on how to avoid it")]
    page: Annotated[str | None, note("PyTorch's page about the reason")]
    location: Annotated[Location | None, note("line that breaks the graph")]
    count: Annotated[int, note("graph breaks at this line in the whole run")]
    in_steps: Annotated[bool | None, note("whether the recorded steps run this code; null if no trace says")]


class CompileAgain(Struct, frozen=True):
    """Recompilations of a function because of one guard."""

    function: Annotated[str | None, note("compiled function")]
    guard: Annotated[str, note("guard that failed the first time")]
    other_values: Annotated[list[str], note("the same guard with other values that failed later; at most 5")]
    kind: Annotated[str | None, note("what the guard checks: shape, stride, dtype, number, object, ...")]
    location: Annotated[Location | None, note("line of the guard, else of the function")]
    count: Annotated[int, note("recompilations in the whole run")]
    us: Annotated[float | None, note("time that they took; null if it was not recorded", "us")]


class CompileFallback(Struct, frozen=True):
    """A function that torch.compile gave up on: it runs in eager mode."""

    function: Annotated[str | None, note("function")]
    reason: Annotated[str, note("why it is not compiled")]
    location: Annotated[Location | None, note("line of the guard that failed last, else of the function")]


class CompileGraphSkip(Struct, frozen=True):
    """Compiled code that is not replayed as a CUDA graph."""

    reason: Annotated[str, note("Inductor's reason")]
    location: Annotated[Location | None, note("line of the cause, else of the function")]
    count: Annotated[int, note("compilations that it concerns")]


class TorchCompile(Struct, frozen=True):
    """What torch.compile did in the whole run."""

    source: Annotated[Literal["log", "run"], note("log: a TORCH_TRACE folder; run: traceopt run asked Dynamo")]
    processes: Annotated[int, note("processes whose logs were read")]
    compilations: Annotated[int, note("compiled frames: functions, and the rest of them after graph breaks")]
    unknown: Annotated[int, note("compilations of which only the number is known")]
    us: Annotated[float | None, note("time in the compiler; null if it was not recorded", "us")]
    phases: Annotated[list[CompilePhase], note("that time by part of the compiler, in the order in which they run")]
    breaks: Annotated[list[CompileBreak], note("graph breaks by line, most frequent first; at most 50")]
    recompilations: Annotated[list[CompileAgain], note("by function and guard, longest first; at most 50")]
    fallbacks: Annotated[list[CompileFallback], note("functions that run in eager mode; at most 50")]
    graph_skips: Annotated[list[CompileGraphSkip], note("CUDA graphs that were skipped; at most 50")]
    graph_recordings: Annotated[int | None, note("CUDA graphs that Inductor recorded; null if unknown")]
    graph_rerecordings: Annotated[int | None, note("of these, for code that had a graph; null if unknown")]
    pieces_per_step: Annotated[
        float | None, note("calls of compiled code in a step; null without a trace that names them", "per step")
    ]
