"""Reads the samples of clocks, limits and processes of each GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.tables.json_values import amount, rows, table, whole, word
from traceopt.errors import InputError
from traceopt.result.words.vendors import NVIDIA, VENDORS, Vendor

MOST_BYTES = 64 * 2**20
MOST_LINE = 2**20
MOST_GPUS = 64
MOST_MHZ = 100_000
BUSY_PERCENT = 50  # of the time since the last sample; NVML reports it as the GPU's use

# Bits of NVML's clocks event reasons (nvml.h, nvmlClocksEventReason*) that lower the clocks of a busy GPU.
USER_CLOCKS, POWER_LIMIT = 0x02, 0x04
DRIVER_THERMAL, HARDWARE_THERMAL = 0x20, 0x40
REASONS = {
    USER_CLOCKS: "clocks set by the user",
    POWER_LIMIT: "power limit",
    0x08: "hardware slowdown",
    DRIVER_THERMAL: "temperature (driver)",
    HARDWARE_THERMAL: "temperature (hardware)",
    0x80: "power brake",
}


class Sample(Struct, frozen=True):
    """One GPU at one time. None: not known. `own`: a process of this run is on the GPU; `others` are pid and bytes of
    processes that are not.
    """

    seconds: float
    sm_mhz: int | None
    reasons: int | None
    celsius: int | None
    power_w: float | None
    use_percent: int | None
    own: bool
    others: tuple[tuple[int, int | None], ...]

    @property
    def busy(self) -> bool:
        return (self.use_percent or 0) >= BUSY_PERCENT


class Gpu(Struct, frozen=True):
    """All samples of a GPU, in order of time."""

    host: str
    index: int
    name: str
    max_sm_mhz: int | None
    power_limit_w: float | None
    samples: tuple[Sample, ...]
    vendor: Vendor = NVIDIA

    @property
    def busy(self) -> list[Sample]:
        """Samples with work on the GPU."""
        return [sample for sample in self.samples if sample.busy]

    @property
    def mean_power_w(self) -> float | None:
        """Mean power from the first sample with work to the last, also while idle between them; None: not known."""
        at = [index for index, sample in enumerate(self.samples) if sample.busy]
        working = self.samples[at[0] : at[-1] + 1] if at else ()
        watts = [sample.power_w for sample in working if sample.power_w is not None]
        return sum(watts) / len(watts) if watts else None

    @property
    def of_run(self) -> bool:
        """A process of this run was seen on it."""
        return any(sample.own for sample in self.samples)

    def share_limited(self, bit: int) -> float:
        """Share of the busy samples in which a reason lowers the clocks; 0 if reasons are not known."""
        known = [sample.reasons for sample in self.busy if sample.reasons is not None]
        return sum(bool(reasons & bit) for reasons in known) / len(known) if known else 0.0

    def clock_share(self, bits: int) -> float | None:
        """Median clock of busy samples that one of the reasons limits, as a share of the highest clock. Counters in a
        trace know neither reasons nor that clock: then of all busy samples, as a share of the highest among them.
        """
        clocks = [(sample.sm_mhz, sample.reasons) for sample in self.busy if sample.sm_mhz is not None]
        if self.max_sm_mhz is None and all(reasons is None for _, reasons in clocks):
            highest, counted = max((mhz for mhz, _ in clocks), default=None), [mhz for mhz, _ in clocks]
        else:
            highest, counted = (
                self.max_sm_mhz,
                [mhz for mhz, reasons in clocks if reasons is not None and reasons & bits],
            )
        return median(counted) / highest if counted and highest else None

    @property
    def shared(self) -> list[Sample]:
        """Samples with a process of this run and another one. Where NVML shows other numbers of processes than this
        system does, as in many containers, none is known to be of this run, and the list is empty.
        """
        return [sample for sample in self.samples if sample.own and sample.others]


class GpuSamples(Struct, frozen=True):
    """The GPUs of all hosts of a run."""

    gpus: tuple[Gpu, ...]

    @property
    def of_run(self) -> list[Gpu]:
        """The GPUs that the run used; where that is not known, those that were busy."""
        return [gpu for gpu in self.gpus if gpu.of_run] or [gpu for gpu in self.gpus if gpu.busy]


def read_gpu_samples(files: Sequence[TraceSource], warnings: list[str]) -> GpuSamples:
    """Raises InputError if a file is not one of samples, or too large."""
    gpus: list[Gpu] = []
    for file in files:
        lost = 0
        head, samples = None, dict[int, list[Sample]]()
        for number, line in enumerate(_lines(file)):
            try:
                row = table(decode(line))
            except (DecodeError, UnicodeDecodeError, RecursionError):
                row = {}
            if number == 0:
                if whole(row.get("traceopt_gpu_samples")) != 1:
                    raise InputError(f"{file.label} has no samples of a GPU that this version can read")
                head = row
                continue
            seconds = amount(row.get("s"), 1e9)
            if seconds is None:
                lost += 1
                continue
            for gpu in rows(row.get("gpus"))[:MOST_GPUS]:
                index = whole(gpu.get("index"), MOST_GPUS)
                if index is not None:
                    samples.setdefault(index, []).append(_sample(seconds, gpu))
        if head is None:
            raise InputError(f"{file.label} is empty")
        if lost > 1:  # the last line of a run that was killed is cut off
            warnings.append(f"{file.label}: {lost:,} samples cannot be read")
        gpus += _gpus(head, samples)
    return GpuSamples(tuple(gpus))


def _gpus(head: Mapping[str, Any], samples: Mapping[int, list[Sample]]) -> Iterator[Gpu]:
    described = {whole(row.get("index")): row for row in rows(head.get("gpus"))}
    for index, taken in sorted(samples.items()):
        row = described.get(index, {})
        yield Gpu(
            word(head.get("host")) or "",
            index,
            word(row.get("name")) or "GPU",
            whole(row.get("max_sm_mhz"), MOST_MHZ) or None,
            amount(row.get("power_limit_w"), 1e6),
            tuple(taken),
            next((vendor for vendor in VENDORS if vendor.sampler == head.get("source")), NVIDIA),
        )


def _sample(seconds: float, row: Mapping[str, Any]) -> Sample:
    own, others = False, []
    processes = row.get("processes")
    for process in processes[:MOST_GPUS] if isinstance(processes, list) else []:
        if isinstance(process, list) and len(process) == 3 and (pid := whole(process[0])) is not None:
            if process[2] is True:
                own = True
            else:
                others.append((pid, whole(process[1])))
    return Sample(
        seconds=seconds,
        sm_mhz=whole(row.get("sm_mhz"), MOST_MHZ),
        reasons=whole(row.get("reasons")),
        celsius=whole(row.get("celsius"), 1000),
        power_w=amount(row.get("power_w"), 1e6),
        use_percent=whole(row.get("use_percent"), 100),
        own=own,
        others=tuple(others),
    )


def _lines(file: TraceSource) -> Iterator[bytes]:
    size = 0
    with file.open() as stream:
        while line := stream.readline(MOST_LINE):
            size += len(line)
            if size > MOST_BYTES:
                raise InputError(f"{file.label} is larger than {MOST_BYTES >> 20} MiB, too large for samples of a GPU")
            yield line
