"""Settings and totals that `traceopt run` wrote into the trace besides its events.

capture/metadata/document.py describes the key. A trace is untrusted input: values of an unexpected type become None.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Any

from msgspec import Struct

from traceopt.analyzer.run_log.cleared_gradients import ClearedGradients, read_cleared_gradients
from traceopt.analyzer.run_log.compilations import read_compilations
from traceopt.analyzer.run_log.constructions import (
    Construction,
    Ddp,
    FrameworkSettings,
    read_construction,
    read_ddp,
    read_framework_settings,
)
from traceopt.analyzer.run_log.cpu import CpuPeaks, read_cpu_peaks
from traceopt.analyzer.run_log.environment import Environment, read_environment
from traceopt.analyzer.run_log.loaders import Loader, OpenedFiles, read_loaders, read_opened_files
from traceopt.analyzer.run_log.padding import Padding, read_padding
from traceopt.analyzer.run_log.sampled_start_up import StartUp, read_start_up
from traceopt.analyzer.run_log.step_ledger import Ledger, read_ledger
from traceopt.analyzer.run_log.step_memory import StepMemory, read_step_memory
from traceopt.analyzer.run_log.tensor_values import MostlyZero, Subnormals, read_mostly_zero, read_subnormals
from traceopt.analyzer.tables.compilation import Compilation
from traceopt.analyzer.tables.json_values import counts, flag, rows, table, time_ns, whole, word

# Recorded steps as a multiple of unrecorded ones: from where on they are clearly longer, and from where on they differ
# in more than the profiler's cost.
LONGER, UNLIKE = 1.1, 2.0


class Gradients(Struct, frozen=True):
    """The parameters of a model that have a gradient, and those whose gradient no optimizer uses. `weights` are the
    elements of factors of matmuls, and of filters.
    """

    tensors: int
    unused_tensors: int
    weights: int
    unused_weights: int


class Model(Struct, frozen=True):
    """A top-level module. `channels_last` is None without filters larger than 1 x 1, `gradients` if not recorded.

    `updated_by_hand`: whether weights that have gradients, but belong to no optimizer, change all the same; None if it
    has none, or that was not seen.
    """

    class_name: str | None
    wrapped: str | None  # the class inside a wrapper such as DistributedDataParallel
    compiled: bool | None
    channels_last: bool | None
    parameters: int | None
    trainable: int | None  # of the parameters
    dtypes: Mapping[str, int]  # number of parameter elements by type
    devices: Mapping[str, int]  # number of parameter tensors by device: "cuda:0"
    gradients: Gradients | None = None
    updated_by_hand: bool | None = None


class Optimizer(Struct, frozen=True):
    """`foreach` and `fused` are None if the script left the choice to torch, or they are unknown."""

    class_name: str | None
    foreach: bool | None
    fused: bool | None
    tensors: int | None
    parameters: int | None
    built: Construction | None = None


class Collections(Struct, frozen=True):
    """Runs of Python's garbage collector since the end of step 0. `frozen` objects are ignored by the collector."""

    count: int
    total_ns: int
    full_count: int
    frozen: int


class Checkpoints(Struct, frozen=True):
    """Calls of torch.save since the end of step 0."""

    saves: int
    total_ns: int


class AllocatorState(Struct, frozen=True):
    """State of the GPU's caching allocator."""

    allocated_bytes: int | None
    peak_allocated_bytes: int | None
    reserved_bytes: int | None
    peak_reserved_bytes: int | None
    out_of_memory: int | None


class Failure(Struct, frozen=True):
    """How the command failed: by an exit code or a signal, after it had completed so many steps."""

    exit_code: int | None
    signal: str | None
    steps: int | None

    @property
    def sentence(self) -> str:
        how = f"was killed by {self.signal}" if self.signal else f"failed (exit code {self.exit_code})"
        if self.steps is None:
            return f"The script {how}."
        return f"The script {how} after {self.steps} step{'' if self.steps == 1 else 's'}."


class Captured(Struct, frozen=True):
    """Everything that `traceopt run` recorded; empty and not `recorded` for other traces.

    `cycle` is the part of the schedule that the trace holds. `updates` counts the backward passes and optimizer updates
    of the run. `compilation` is what torch.compile did; None if it was not used. `memory` is before and after the
    recorded steps. `cpu_peaks` is what the CPU reaches, measured after a run without a GPU. `failure` is None if the
    command ended well, or how it ended is unknown. `start_up` is what the process did until step 0 had ended.
    `step_memory` was read at the end of steps, recorded or not. `cleared_gradients` and
    `subnormals` are None if they were not recorded.
    """

    recorded: bool = False
    torch_version: str | None = None  # of any trace that tells it
    script: str | None = None  # its file name, without folders
    cycle: str | None = None
    updates: int | None = None
    environment: Environment = Environment()
    loaders: tuple[Loader, ...] = ()
    models: tuple[Model, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    frameworks: tuple[FrameworkSettings, ...] = ()
    compilation: Compilation | None = None
    collections: Collections | None = None
    checkpoints: Checkpoints | None = None
    memory: tuple[AllocatorState | None, AllocatorState | None] = (None, None)
    corrected: bool = False  # the trace's times are those without the profiler (unprofiled.py)
    ledger: Ledger | None = None
    cpu_peaks: CpuPeaks | None = None
    failure: Failure | None = None
    start_up: StartUp | None = None
    step_memory: StepMemory | None = None
    cleared_gradients: tuple[ClearedGradients, ...] | None = None
    subnormals: Subnormals | None = None
    padding: tuple[Padding, ...] = ()
    mostly_zero: tuple[MostlyZero, ...] = ()
    opened_files: tuple[OpenedFiles, ...] = ()
    ddp: tuple[Ddp, ...] = ()
    anomaly_mode_set: Construction | None = None  # by set_detect_anomaly

    @property
    def trained_on(self) -> str | None:
        """The type of the device that holds most parameters, as PyTorch calls it ("cuda", "cpu", "mps"); None if that
        was not recorded.
        """
        tensors = Counter[str]()
        for model in self.models:
            for device, count in model.devices.items():
                tensors[device.partition(":")[0]] += count
        return max(tensors, key=lambda kind: tensors[kind], default=None)

    @property
    def torch_release(self) -> tuple[int, int] | None:
        """(2, 4) of "2.4.1+cu121"; None if unknown."""
        found = re.match(r"(\d{1,4})\.(\d{1,4})", self.torch_version or "")
        return (int(found[1]), int(found[2])) if found else None

    @property
    def cut_short(self) -> bool:
        """Whether the run ended before the training did, so that shares of the run say nothing about the training."""
        return self.failure is not None or (self.ledger is not None and self.ledger.ended_early)

    @property
    def training_loader(self) -> Loader | None:
        """The loader that feeds the updates; None if updates were seen but no loader feeds them. Where that was not
        recorded, and in inference, the loader with the most batches.
        """
        first = next(iter(self.loaders), None)
        return None if first is not None and first.updates == 0 and self.updates else first

    @property
    def workers(self) -> int:
        """Worker processes of the training loader."""
        return (self.training_loader.num_workers or 0) if self.training_loader is not None else 0

    @property
    def threads(self) -> int:
        """Threads that need a core: those of one operator, and one for each worker."""
        return (self.environment.threads or 1) + self.workers

    @property
    def stretch(self) -> float | None:
        """Slowdown by recording, in the cycle that the times come from: recorded steps as a multiple of unprofiled
        steps.
        """
        return self.ledger.stretch.get(self.cycle or "") if self.ledger is not None else None

    @property
    def unrecorded_step_ns(self) -> float | None:
        """A step of the run without a profiler, if recording made the steps clearly longer but did not change what they
        do; None otherwise, if not known, or if the times are corrected for it.
        """
        stretched = not self.corrected and self.stretch is not None and LONGER <= self.stretch < UNLIKE
        return self.ledger.usual_step_ns if self.ledger is not None and stretched else None

    @property
    def profiler_ns(self) -> float:
        """How much longer a step of that cycle is than one without a profiler; 0 if unknown."""
        usual = self.ledger.usual_ns if self.ledger is not None else None
        recorded = self.ledger.recorded_ns.get(self.cycle or "") if self.ledger is not None else None
        if self.corrected:
            return 0.0
        return max(0.0, recorded - usual) if usual is not None and recorded is not None else 0.0


def captured(header: Mapping[str, Any]) -> Captured:
    """Reads the top-level key `traceopt`."""
    own = table(header.get("traceopt"))
    memory = table(own.get("memory"))
    start_up = read_start_up(own.get("start_up"))
    peaks = read_cpu_peaks(own.get("cpu_peaks"))
    ledger = read_ledger(
        own.get("ledger"),
        start_up.total_ns if start_up is not None else 0,
        1e3 * (peaks.page_fault_us or 0.0) if peaks is not None else 0.0,
    )
    wait_per_cpu = ledger.core_wait_per_cpu if ledger is not None else None
    return Captured(
        recorded=bool(table(own.get("environment"))),
        torch_version=_torch_version(header),
        script=_script(own.get("script")),
        cycle=word(table(own.get("cycle")).get("name")),
        updates=whole(own.get("updates")),
        environment=read_environment(own.get("environment")),
        loaders=read_loaders(own.get("loaders"), own.get("loader_workers"), wait_per_cpu),
        models=tuple(map(_model, rows(own.get("models")))),
        optimizers=tuple(map(_optimizer, rows(own.get("optimizers")))),
        frameworks=read_framework_settings(own.get("frameworks")),
        compilation=read_compilations(own.get("dynamo")),
        collections=_collections(table(own.get("gc"))),
        checkpoints=_checkpoints(table(own.get("checkpoint"))),
        memory=(_allocator(table(memory.get("before"))), _allocator(table(memory.get("after")))),
        ledger=ledger,
        cpu_peaks=peaks,
        failure=_failure(table(own.get("failure"))),
        start_up=start_up,
        step_memory=read_step_memory(own.get("step_memory")),
        cleared_gradients=read_cleared_gradients(own.get("cleared_gradients")),
        subnormals=read_subnormals(own.get("subnormals")),
        padding=read_padding(own.get("padding")),
        mostly_zero=read_mostly_zero(own.get("mostly_zero")),
        opened_files=read_opened_files(own.get("opened_files")),
        ddp=read_ddp(own.get("ddp")),
        anomaly_mode_set=read_construction(own.get("anomaly_mode_set")),
    )


def _torch_version(header: Mapping[str, Any]) -> str | None:
    for holder in (table(header.get("traceopt")), table(header.get("metadata")), header):
        version = holder.get("torch_version") or holder.get("pytorch_version")
        if isinstance(version, str):
            return version
    return None


_NO_SCRIPTS = ("-c", "-m", "ipykernel_launcher.py", "colab_kernel_launcher.py")


def _script(path: object) -> str | None:
    """The file name of a path of any system; None for code that is no file, as of `python -c` or a notebook."""
    name = word(PureWindowsPath(path).name) if isinstance(path, str) else None
    return None if not name or name in _NO_SCRIPTS else name


def _failure(row: Mapping[str, Any]) -> Failure | None:
    exit_code, signal = whole(row.get("exit_code")), word(row.get("signal"))
    if not exit_code and not signal:
        return None
    return Failure(exit_code, signal, whole(row.get("steps")))


def _model(row: Mapping[str, Any]) -> Model:
    return Model(
        class_name=word(row.get("class")),
        wrapped=word(row.get("wrapped")),
        compiled=flag(row.get("compiled")),
        channels_last=flag(row.get("channels_last")),
        parameters=whole(row.get("parameters")),
        trainable=whole(row.get("trainable")),
        dtypes=counts(row.get("dtypes")),
        devices=counts(row.get("devices")),
        gradients=_gradients(counts(row.get("gradients"))),
        updated_by_hand=flag(row.get("updated_by_hand")),
    )


def _gradients(row: Mapping[str, int]) -> Gradients | None:
    try:
        found = Gradients(**{name: row[name] for name in Gradients.__struct_fields__})
    except KeyError:
        return None
    fits = found.unused_tensors <= found.tensors and found.unused_weights <= found.weights
    return found if fits else None


def _optimizer(row: Mapping[str, Any]) -> Optimizer:
    return Optimizer(
        class_name=word(row.get("class")),
        foreach=flag(row.get("foreach")),
        fused=flag(row.get("fused")),
        tensors=whole(row.get("tensors")),
        parameters=whole(row.get("parameters")),
        built=read_construction(row.get("built")),
    )


def _collections(row: Mapping[str, Any]) -> Collections | None:
    count, total_ns = whole(row.get("collections")), time_ns(row.get("us"))
    if count is None or total_ns is None:
        return None
    full, frozen = (whole(row.get(name)) or 0 for name in ("full_collections", "frozen_objects"))
    return Collections(count, total_ns, full, frozen)


def _checkpoints(row: Mapping[str, Any]) -> Checkpoints | None:
    saves, total_ns = whole(row.get("saves")), time_ns(row.get("us"))
    return None if saves is None or total_ns is None else Checkpoints(saves, total_ns)


def _allocator(row: Mapping[str, Any]) -> AllocatorState | None:
    values = {name: whole(row.get(name)) for name in AllocatorState.__struct_fields__}
    return AllocatorState(**values) if any(value is not None for value in values.values()) else None
