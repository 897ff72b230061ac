"""The result document, schema 1: the one value that every report format is rendered from.

Times are microseconds with three decimals, shares are 0..1, and an unmeasured value is None, never 0. Every field
carries its meaning and its unit (`field_notes.py`); docs/result.schema.json is generated from them.
JSON is this document's serialization; `Result.from_json` reads it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import orjson
from msgspec import Struct, field
from msgspec.structs import astuple

from traceopt.result.encoding.serialization import to_indented_json
from traceopt.result.field_notes import note
from traceopt.result.finding import Finding
from traceopt.result.sections.companions import (
    FlightRecorder,
    GpuSamplesSection,
    MemorySnapshotSection,
    StartUpSection,
    TorchCompile,
)
from traceopt.result.sections.rank_rows import RankRow
from traceopt.result.sections.run import Cost, Run, Tool, WholeRun
from traceopt.result.sections.step import (
    Communication,
    Cpu,
    DataLoader,
    Efficiency,
    Gpu,
    Memory,
    RlPhaseRow,
    Serving,
    Step,
    Sync,
    TensorCores,
    Throughput,
)
from traceopt.result.sections.timeline_rows import FlameGraph, SpanTable, Timeline
from traceopt.result.sections.work_rows import (
    BreakdownPart,
    Copy,
    CounterRangeRow,
    Gemm,
    Kernel,
    ModuleClass,
    ModuleRow,
    Op,
    PlanRow,
    ShapedOperator,
)
from traceopt.result.trial import TriedChange
from traceopt.result.words.message import Spoken

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA_VERSION = 1
CheckStatus = Literal["found", "passed", "not_checked", "not_applicable", "error"]


class _Version(msgspec.Struct):
    """The one field that documents of all schemas share."""

    schema_version: int


class Note(Spoken, frozen=True):
    """A trace-quality rule that fired."""

    messages: ClassVar = ("text",)

    code: Annotated[str, note("code of the rule")]
    name: Annotated[str, note("name of the rule")]
    text: Annotated[str, note("what it means for the numbers")]
    aspect: Annotated[str | None, note("which of the things that the rule looks at; null where it is one")] = None


NOT_JUDGED = "This trace cannot be judged."  # the verdict on an unusable trace, before the reason


class Quality(Spoken, frozen=True):
    """How far the trace can be trusted."""

    messages: ClassVar = ("caveat",)

    verdict: Annotated[Literal["good", "limited", "unusable"], note("how far the trace can be trusted")]
    notes: Annotated[list[Note], note("why")]
    unusable_by: Annotated[str | None, note("code of the note that says why it cannot be judged")] = None
    record_again: Annotated[bool, note("another recording comes before any fix: this one shows no steady step")] = False
    sampled_share: Annotated[
        float | None, note("events that a sampled file kept; null where no events were left out on purpose", "share")
    ] = None
    caveat: Annotated[
        str | None,
        note(
            "why the times are not those of the run, or may not be; the verdict begins with it; null: nothing says so"
        ),
    ] = None


class BeforeAndAfter(Struct, frozen=True):
    """A step without and with the top fixes."""

    step_us: Annotated[float, note("step without the fixes", "us")]
    step_us_after: Annotated[float, note("step after the fixes", "us")]


class Combined(Struct, frozen=True):
    """The top fixes together."""

    codes: Annotated[list[str], note("one entry per finding: a code listed twice means its first two findings")]
    saving_us: Annotated[float, note("saving per step", "us")]
    share: Annotated[float, note("saving as a part of the step", "share")]
    step_us_after: Annotated[float, note("step after the fixes", "us")]
    replay_error_share: Annotated[
        float | None,
        note(
            "largest error of a replay without changes, or of the step time that it cannot explain; null: the fixes "
            "were not replayed",
            "share",
        ),
    ]
    limit_after: Annotated[str | None, note("part of the breakdown that limits the step after the fixes")] = None
    breakdown_after: Annotated[
        list[BreakdownPart],
        note(
            "parts of step_us_after; empty where the fixes were not replayed or the replay does not explain the saving"
        ),
    ] = field(default_factory=list)
    low_us: Annotated[float | None, note("saving per step if each fix saves the least that is likely", "us")] = None
    high_us: Annotated[float | None, note("saving per step if each fix saves the most that is likely", "us")] = None
    unrecorded: Annotated[
        BeforeAndAfter | None,
        note(
            "a step of the run without a profiler, and what the fixes leave of it; null if the recorded steps are less "
            "than 10% or more than 100% longer, or if that is not known"
        ),
    ] = None


class Check(Spoken, frozen=True):
    """What one rule answered."""

    messages: ClassVar = ("title", "reason")

    code: Annotated[str, note("code of the rule")]
    name: Annotated[str, note("name of the rule")]
    title: Annotated[str, note("what to change if it fires")]
    status: Annotated[CheckStatus, note("found, passed, not_checked, not_applicable or error")]
    reason: Annotated[str, note("what passed, what is missing, or what went wrong")]


class RankView(Struct, frozen=True):
    """Another rank than the shown one: its steps and spans."""

    rank: Annotated[int, note("rank")]
    late: Annotated[bool, note("whether the other ranks wait for it")]
    step: Annotated[Step, note("its steps")]
    table: Annotated[SpanTable, note("its spans, as in the timeline of the shown rank")]


class Result(Spoken, frozen=True, eq=False):
    """The document."""

    messages: ClassVar = ("verdict", "ending", "warnings")

    tool: Annotated[Tool, note("program that made the document")]
    verdict: Annotated[
        str, note("the headline: a fact and its cause, and before it what takes more of the run than the steps")
    ]
    run: Annotated[Run, note("what was analyzed")]
    quality: Annotated[Quality, note("how far the trace can be trusted")]
    step: Annotated[Step, note("the measured steps")]
    breakdown: Annotated[list[BreakdownPart], note("exclusive parts of the typical step, which add up to it")]
    gpu: Annotated[Gpu, note("the device over the measured window")]
    sync: Annotated[Sync, note("calls that block the host on the GPU")]
    dataloader: Annotated[DataLoader, note("waiting for the next batch")]
    communication: Annotated[Communication, note("all collectives")]
    copies: Annotated[list[Copy], note("copies by kind, longest first")]
    tensor_cores: Annotated[TensorCores, note("use of Tensor Cores")]
    efficiency: Annotated[Efficiency, note("arithmetic against the peak of the device")]
    memory: Annotated[Memory, note("device memory over the shown step")]
    kernels: Annotated[list[Kernel], note("GPU work by kernel name, longest first; at most 200 names")]
    ops: Annotated[list[Op], note("CPU operators by name, by the GPU time they launched; at most 200 names")]
    gemms: Annotated[list[Gemm], note("matmuls by shape, longest first; at most 200 shapes")]
    ranks: Annotated[list[RankRow], note("a row for each file that was read")]
    timeline: Annotated[Timeline | None, note("one typical step as lanes of bars")]
    findings: Annotated[list[Finding], note("what the rules found, most valuable first")]
    combined: Annotated[Combined | None, note("the top fixes together")]
    checks: Annotated[list[Check], note("what each rule answered")]
    ending: Annotated[str | None, note("how the script or the job ended, if not well; the verdict begins with it")] = (
        None
    )
    warnings: Annotated[list[str], note("what the reader should know: files and rules left out")] = field(
        default_factory=list
    )
    plan: Annotated[list[PlanRow], note("the fixes worth making, in order; their savings add up to `combined`")] = (
        field(default_factory=list)
    )
    throughput: Annotated[
        Throughput | None, note("throughput of one GPU; null: the user did not say what a step holds")
    ] = None
    serving: Annotated[Serving | None, note("steps of a serving engine; null: no serving engine ran the steps")] = None
    rl_phases: Annotated[
        list[RlPhaseRow], note("phases of a reinforcement-learning step, in their order; empty: the steps have none")
    ] = field(default_factory=list)
    cpu: Annotated[Cpu | None, note("operators of a CPU-only run; null: it used a GPU, or no shapes were recorded")] = (
        None
    )
    whole_run: Annotated[
        WholeRun | None,
        note("the whole run, of which the trace holds a few steps; null: traceopt run did not record it"),
    ] = None
    tried: Annotated[
        list[TriedChange], note("changes that `traceopt try` made, ran and measured, in the order in which it did")
    ] = field(default_factory=list)
    memory_snapshot: Annotated[
        MemorySnapshotSection | None, note("a memory snapshot recorded beside the trace; null: there is none")
    ] = None
    shaped_ops: Annotated[
        list[ShapedOperator], note("convolutions and attention by shape, longest first; at most 200 shapes")
    ] = field(default_factory=list)
    modules: Annotated[
        list[ModuleRow], note("the model as a tree of nn.Modules, callers first; empty if the trace does not name them")
    ] = field(default_factory=list)
    module_classes: Annotated[
        list[ModuleClass], note("the same modules by class, longest first; empty if the trace does not name them")
    ] = field(default_factory=list)
    flame: Annotated[FlameGraph | None, note("call tree of one step; null: no Python frames with times")] = None
    torch_compile: Annotated[
        TorchCompile | None, note("what torch.compile did; null: it was not used, or nothing recorded it")
    ] = None
    flight_recorder: Annotated[
        FlightRecorder | None, note("collectives of all ranks, by dumps of the flight recorder; null: no dumps")
    ] = None
    gpu_samples: Annotated[
        GpuSamplesSection | None, note("samples of the GPUs while the command ran; null: none were taken")
    ] = None
    start_up: Annotated[
        StartUpSection | None, note("the run before its first step had ended; null: traceopt run did not record it")
    ] = None
    gemm_known_share: Annotated[
        float | None,
        note(
            "part of the time of matmul kernels that `gemms` holds, convolutions aside; null: no such kernels", "share"
        ),
    ] = None
    counter_ranges: Annotated[
        list[CounterRangeRow],
        note("hardware counters by kernel and metric, of CUPTI's range profiler; at most 200 rows; empty: not used"),
    ] = field(default_factory=list)
    cost: Annotated[Cost | None, note("what the steps cost; null: the user gave no price")] = None
    rank_views: Annotated[
        list[RankView],
        note(
            "other ranks with their steps and spans: first those that findings name, as many as a report has room for"
        ),
    ] = field(default_factory=list)
    created: Annotated[str | None, note("when the document was made; null by default, so that documents compare")] = (
        None
    )
    schema_version: Annotated[int, note("version of this schema")] = SCHEMA_VERSION

    @property
    def planned(self) -> list[tuple[PlanRow, Finding]]:
        """The rows of the plan, each with its finding."""
        of_id = {finding.id: finding for finding in self.findings}
        return [(row, of_id[row.finding]) for row in self.plan if row.finding in of_id]

    def __eq__(self, other: object) -> bool:
        """Whether the documents are the same, whichever subclass holds them."""
        return isinstance(other, Result) and astuple(self) == astuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Short: a notebook keeps it beside each summary."""
        return f"<Result {self.verdict!r}>"

    def to_json(self) -> bytes:
        """Indented JSON, byte for byte the same for the same input and version."""
        return to_indented_json(self)

    @staticmethod
    def json_schema() -> bytes:
        """JSON Schema 2020-12, indented. `unit` says what a number counts; a share is 0..1."""
        import inspect

        schema: dict[str, Any] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"traceopt result document, schema {SCHEMA_VERSION}",
        } | msgspec.json.schema(Result)
        for definition in schema["$defs"].values():  # descriptions are docstrings, which Python 3.13 no longer indents
            definition["description"] = inspect.cleandoc(definition["description"])
        return to_indented_json(schema)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Raises msgspec.DecodeError, a ValueError, when `data` is not a result document of this schema."""
        try:
            version = msgspec.json.decode(data, type=_Version).schema_version
            if version == SCHEMA_VERSION:
                return msgspec.convert(orjson.loads(data), cls)  # orjson refuses what it could not write again
        except (ValueError, RecursionError) as error:
            raise msgspec.DecodeError(f"not a result document: {error}") from error
        raise msgspec.DecodeError(f"a result document of schema {version}; this traceopt reads schema {SCHEMA_VERSION}")
