"""The result document, schema 1: the one value that every report format is rendered from.

Times are microseconds with three decimals, shares are 0..1, and an unmeasured value is None, never 0.
JSON is this document's serialization; `Result.from_json` reads it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import orjson
from msgspec import Struct, field
from msgspec.structs import astuple

from traceopt.result.finding import Finding, Location
from traceopt.result.serialization import to_indented_json

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA_VERSION = 1

CheckStatus = Literal["found", "passed", "not_checked", "not_applicable", "error"]


class _Version(msgspec.Struct):
    """The one field that documents of all schemas share."""

    schema_version: int


class Tool(Struct, frozen=True):
    name: str
    version: str


class Device(Struct, frozen=True):
    """What the step was measured on (vendor "cpu": no accelerator); `count` is devices seen by the process."""

    vendor: str
    name: str | None
    count: int
    memory_bytes: int | None
    compute_capability: str | None


class Recorded(Struct, frozen=True):
    """What the profiler was asked to record; it decides which checks can run."""

    gpu: bool
    shapes: bool
    stacks: bool
    memory: bool


class TraceFile(Struct, frozen=True):
    """One file that was read. `bytes` is its uncompressed size, `lost_events` what could not be recovered.

    `sha256` is of the file as it lies on the disk; None where it could not be read to its end.
    """

    path: str
    rank: int | None
    bytes: int
    events: int
    lost_events: int
    repaired_events: int
    sha256: str | None = None


class Setting(Struct, frozen=True):
    """A setting of the run that decides its speed, as `traceopt run` recorded it: "TF32 of matrix products", "off"."""

    name: str
    value: str


class Run(Struct, frozen=True):
    """`shown_rank` is the rank whose step, breakdown and tables the document holds; `gpu_runtime` is "CUDA 12.4"."""

    paths: list[str]
    world_size: int | None
    ranks: list[int]
    shown_rank: int | None
    device: Device | None
    torch_version: str | None
    recorded: Recorded
    files: list[TraceFile]
    hostnames_hidden: bool = True
    settings: list[Setting] = field(default_factory=list)  # empty where they were not recorded
    gpu_runtime: str | None = None


class Note(Struct, frozen=True):
    code: str
    name: str
    text: str


class Quality(Struct, frozen=True):
    """How far the trace can be trusted; the notes are the TQ rules that fired."""

    verdict: Literal["good", "limited", "unusable"]
    notes: list[Note]


class Step(Struct, frozen=True):
    """`count` steps were measured, `skipped` were left out (cropped by the file's ends, or empty).

    `stretch`: the recorded steps as a multiple of those that the run took without a profiler, waiting for data aside.
    """

    source: Literal["profiler_step", "annotation", "window"]
    count: int
    skipped: int
    median_us: float | None
    p10_us: float | None
    p90_us: float | None
    per_step_us: list[float]
    stretch: float | None = None


class BreakdownPart(Struct, frozen=True):
    """An exclusive part of the mean step. `raw_us_per_step` counts the same activity with its hidden time."""

    name: str
    label: str
    busy: bool
    us_per_step: float
    share: float
    raw_us_per_step: float | None


class IdleCause(Struct, frozen=True):
    cause: str
    label: str
    us_per_step: float
    share: float


class Gpu(Struct, frozen=True):
    """All None when the trace holds no GPU work; `idle_share` is 1 - `busy_share`."""

    window_us: float | None
    busy_us: float | None
    busy_share: float | None
    compute_share: float | None
    idle_share: float | None
    idle_by_cause: list[IdleCause]


class Sync(Struct, frozen=True):
    """`stall_us_per_step`: sync time with the GPU idle, plus the refill after it."""

    calls_per_step: float | None
    us_per_step: float | None
    stall_us_per_step: float | None


class DataLoader(Struct, frozen=True):
    us_per_step: float | None
    stall_us_per_step: float | None


class Collective(Struct, frozen=True):
    name: str
    calls_per_step: float
    us_per_step: float
    exposed_us_per_step: float
    bytes_per_step: float | None
    gb_per_s: float | None
    location: Location | None


class Communication(Struct, frozen=True):
    us_per_step: float | None
    exposed_us_per_step: float | None
    overlap_share: float | None
    collectives: list[Collective]


class Copy(Struct, frozen=True):
    """`kind` as the profiler names it: "HtoD pageable", "HtoD pinned", "DtoH pageable", "DtoD", ..."""

    kind: str
    calls_per_step: float
    us_per_step: float
    exposed_us_per_step: float
    bytes_per_step: float | None
    gb_per_s: float | None


class TensorCores(Struct, frozen=True):
    """Shares of kernel time: of kernels that could use Tensor Cores, that do, and of which it is not known."""

    eligible_share: float | None
    used_share: float | None
    unknown_share: float | None


class Efficiency(Struct, frozen=True):
    """`flops_per_step` are those that ran; of these `mfu` leaves out what activation checkpointing computed again."""

    flops_per_step: float | None
    achieved_tflops: float | None
    peak_tflops: float | None
    peak_dtype: str | None
    mfu: float | None
    hfu: float | None


class Throughput(Struct, frozen=True):
    """Of one GPU, over the mean step, from what the user says a step processes. The reference is in tokens, where they
    are given.
    """

    tokens_per_s: float | None
    samples_per_s: float | None
    reference_per_s: float | None
    reference_share: float | None


class MemoryPoint(Struct, frozen=True):
    us: float
    allocated_bytes: int
    reserved_bytes: int | None


class MemoryPart(Struct, frozen=True):
    name: str
    bytes: int


class Memory(Struct, frozen=True):
    """The curve spans the shown step (times from its start) and is thinned to its minima and maxima."""

    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    capacity_bytes: int | None
    composition: list[MemoryPart]
    curve: list[MemoryPoint]


class Kernel(Struct, frozen=True):
    """GPU work by kernel name, longest first. `kind` is of the table in `analyzer/vocabulary/kernel_names.py`."""

    name: str
    kind: str
    calls_per_step: float
    us_per_step: float
    mean_us: float
    share: float
    tensor_core: bool | None
    op: str | None
    location: Location | None


class Op(Struct, frozen=True):
    """CPU operators by name: time of the GPU work they launched, and their own time on the CPU."""

    name: str
    calls_per_step: float
    gpu_us_per_step: float | None
    cpu_self_us_per_step: float
    share: float
    location: Location | None


class Gemm(Struct, frozen=True):
    """One matrix product shape, D[M,N] = A[M,K] B[K,N], `batch` times; 2*M*N*K*batch FLOP a call."""

    op: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    calls: float
    us_per_step: float
    tflops: float | None
    peak_share: float | None
    aligned: bool | None
    tensor_core: bool | None
    location: Location | None


class RankRow(Struct, frozen=True):
    """One file's headline numbers; `rank` None: the file does not say. `verdict` is its trace's quality.

    `waited_for_us`: what the other ranks wait for this one in the median step, None where ranks could not be compared.
    """

    rank: int | None
    path: str
    step_median_us: float | None
    gpu_busy_share: float | None
    dataloader_stall_us: float | None
    exposed_communication_us: float | None
    verdict: str
    waited_for_us: float | None = None


class Span(Struct, frozen=True):
    """A bar on a timeline lane. `category` says what it is, and so its colour: compute, comm, copy on a GPU; loader,
    input, wait, logging, checkpoint, gc, cpu on the host; forward, backward, optimizer where the host is the device.
    """

    start_us: float
    duration_us: float
    name: str
    category: str


class Lane(Struct, frozen=True):
    """`total` spans lie in the step; `spans` holds the longest of them, in order of time."""

    key: str
    name: str
    detail: str
    spans: list[Span]
    total: int


class Stall(Struct, frozen=True):
    """A stretch of the shown step without GPU work; `cause` is a name of the breakdown."""

    start_us: float
    duration_us: float
    cause: str
    label: str
    location: Location | None = None  # what the host ran then


class Timeline(Struct, frozen=True):
    """The median step; times count from its start."""

    step: str
    duration_us: float
    lanes: list[Lane]
    stalls: list[Stall]


class Combined(Struct, frozen=True):
    """The top fixes together. `codes` has an entry for each finding: a code that stands twice means its first two.

    `replay_error_share`: how far a replay of the unchanged steps is off; None where the fixes were not replayed.
    `limit_after`: the part of the breakdown that then limits the step. `breakdown_after` sums to `step_us_after`; it is
    empty where the fixes were not replayed, or the replay does not account for what they save.
    """

    codes: list[str]
    saving_us: float
    share: float
    step_us_after: float
    replay_error_share: float | None
    limit_after: str | None = None
    breakdown_after: list[BreakdownPart] = field(default_factory=list)


class Check(Struct, frozen=True):
    """What a rule answered. `reason` says what passed, what is missing, or what went wrong."""

    code: str
    name: str
    title: str
    status: CheckStatus
    reason: str


class Result(Struct, frozen=True, eq=False):
    """The document. `verdict` is its headline: a fact and its cause, in two sentences at most."""

    tool: Tool
    verdict: str
    run: Run
    quality: Quality
    step: Step
    breakdown: list[BreakdownPart]
    gpu: Gpu
    sync: Sync
    dataloader: DataLoader
    communication: Communication
    copies: list[Copy]
    tensor_cores: TensorCores
    efficiency: Efficiency
    memory: Memory
    kernels: list[Kernel]
    ops: list[Op]
    gemms: list[Gemm]
    ranks: list[RankRow]
    timeline: Timeline | None
    findings: list[Finding]
    combined: Combined | None
    checks: list[Check]
    warnings: list[str] = field(default_factory=list)
    throughput: Throughput | None = None
    created: str | None = None
    schema_version: int = SCHEMA_VERSION

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
