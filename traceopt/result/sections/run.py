"""What was analyzed, and the whole recorded run: machine, files, parts of the run, its steps and what they cost."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location
from traceopt.result.sections.rank_rows import RunRanks
from traceopt.result.trial import Machine

RunPartName = Literal["steps", "evaluation", "checkpoints", "recompiling", "long_steps", "startup", "end"]


class Tool(Struct, frozen=True):
    """The program that made the document."""

    name: Annotated[str, note("name of the program")]
    version: Annotated[str, note("version of the program")]


class PeakRate(Struct, frozen=True):
    """A peak rate of the device: dense, without sparsity."""

    figure: Annotated[str, note('type of the numbers, "bf16"; "memory": its bandwidth; "link": that to other GPUs')]
    rate: Annotated[float, note("the rate in `unit`")]
    unit: Annotated[Literal["TFLOP/s", "TOP/s", "GB/s"], note("unit of the rate")]
    source: Annotated[str, note('document of the vendor that states it, or "your settings"')]
    verified: Annotated[bool | None, note("whether a public text confirms it; null where it is yours")]


class Device(Struct, frozen=True):
    """What the step was measured on."""

    vendor: Annotated[str, note('"nvidia", "amd", ...; "cpu": no accelerator')]
    name: Annotated[str | None, note("name of the device")]
    count: Annotated[int, note("devices that the process sees")]
    memory_bytes: Annotated[int | None, note("memory of one device", "bytes")]
    compute_capability: Annotated[str | None, note('CUDA compute capability, "8.0"')]
    peaks: Annotated[
        list[PeakRate], note("peak rates that are known; empty for a device of which no peak is known")
    ] = []
    used: Annotated[int, note("devices that worked for the process while it was recorded")] = 1


class Recorded(Struct, frozen=True):
    """What the profiler was asked to record. It decides which checks can run."""

    gpu: Annotated[bool, note("GPU work")]
    shapes: Annotated[bool, note("shapes of operators")]
    stacks: Annotated[bool, note("Python stacks")]
    memory: Annotated[bool, note("allocations")]
    nsight: Annotated[bool, note("the trace is an export of Nsight Systems")] = False


class TraceFile(Struct, frozen=True):
    """One file that was read."""

    path: Annotated[str, note("path of the file")]
    rank: Annotated[int | None, note("rank; null where the file does not say")]
    bytes: Annotated[int, note("size, uncompressed", "bytes")]
    events: Annotated[int, note("events that were read")]
    lost_events: Annotated[int, note("damaged events that could not be recovered")]
    repaired_events: Annotated[int, note("damaged events that could be recovered")]
    sha256: Annotated[str | None, note("hash of the file on disk; null where it could not be read to its end")] = None


class Setting(Struct, frozen=True):
    """A setting of the run that decides its speed, as recorded or as the trace shows it: "TF32 for matmuls", "off"."""

    name: Annotated[str, note("the setting")]
    value: Annotated[str, note("its value")]


class Run(Struct, frozen=True):
    """What was analyzed."""

    paths: Annotated[list[str], note("paths of the traces")]
    world_size: Annotated[int | None, note("ranks of the job; null: not known")]
    ranks: Annotated[list[int], note("ranks that were read")]
    shown_rank: Annotated[int | None, note("rank whose step, breakdown and tables the document holds")]
    device: Annotated[Device | None, note("what the step was measured on")]
    torch_version: Annotated[str | None, note("version of PyTorch")]
    recorded: Annotated[Recorded, note("what the profiler was asked to record")]
    files: Annotated[list[TraceFile], note("files that were read")]
    hostnames_hidden: Annotated[bool, note("whether host names are left out of the document")] = True
    settings: Annotated[list[Setting], note("settings of the run; empty where they were not recorded")] = []
    gpu_runtime: Annotated[str | None, note('"CUDA 12.4"')] = None
    script: Annotated[
        str | None, note("file name of the script that `traceopt run` recorded; null for other traces")
    ] = None
    machine: Annotated[
        Machine | None, note("on the same one, earlier trials correct predictions; null: not recorded")
    ] = None


class RunPart(Struct, frozen=True):
    """A part of the whole run; the parts add up to it."""

    name: Annotated[
        RunPartName,
        note(
            '"startup": up to the end of the first step; "end": after the last one; "recompiling": functions that '
            'torch.compile had compiled before; "long_steps": what steps far longer than the usual one take beyond '
            "it, such as rollouts between updates"
        ),
    ]
    label: Annotated[str, note("the part in words")]
    us: Annotated[float, note("its time", "us")]
    share: Annotated[float, note("part of the run", "share")]
    locations: Annotated[list[Location], note("lines where it begins, longest time first; empty where not known")]


class StepHistory(Struct, frozen=True):
    """The steps of the whole run, as medians of stretches of equal length, without evaluations and saves."""

    first_steps: Annotated[list[int], note("first step of each stretch")]
    us: Annotated[list[float], note("median step of each stretch", "us")]
    change_step: Annotated[int | None, note("from this step on, the steps take longer or shorter; null: no change")]


class RunMemory(Struct, frozen=True):
    """Memory at the end of steps of the whole run, recorded or not, as the highest reading of each stretch of steps."""

    of: Annotated[
        Literal["device", "process"],
        note('"device": what tensors hold on the GPU; "process": resident memory without mapped files'),
    ]
    steps: Annotated[list[int], note("first step of each stretch that was read")]
    bytes: Annotated[list[int], note("highest reading of the stretch", "bytes")]


class Cost(Struct, frozen=True):
    """What the steps cost in dollars."""

    price_per_hour: Annotated[float, note("price of an hour of the whole job, as the user gave it, dollars")]
    per_step: Annotated[float, note("cost of the typical step, dollars")]
    of_run: Annotated[float | None, note("cost of the whole run, dollars; null: its length is not known")]
    saved_per_step: Annotated[float | None, note("what the plan saves of a step, dollars; null: there is no plan")]


class WholeRun(Struct, frozen=True):
    """The recorded process from its start on, recorded steps or not, without traceopt's own work."""

    us: Annotated[float, note("its time", "us")]
    steps: Annotated[int, note("steps", "steps")]
    parts: Annotated[list[RunPart], note("where the time goes, longest first")]
    core_wait_share: Annotated[
        float | None,
        note("part of the run in which the training thread was ready but no core was free; null: not known", "share"),
    ] = None
    history: Annotated[
        StepHistory | None, note("step times over the run; null: too few steps without a profiler to judge them")
    ] = None
    memory: Annotated[
        list[RunMemory], note("memory over the run, of the GPU and of the process; empty: read at too few steps")
    ] = []
    ranks: Annotated[
        RunRanks | None, note("the steps of all ranks over the run; null: one rank, or one without recorded step times")
    ] = None
    complete: Annotated[bool, note("whether the script ended by itself, so that it has no more steps than these")] = (
        False
    )
