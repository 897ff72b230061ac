"""Reads what experiments took on the device of the run: the file that `traceopt run` or `traceopt measure` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import DecodeError, Struct
from msgspec.json import decode

from traceopt.analyzer.reading.sources import TraceSource
from traceopt.errors import InputError, one_line
from traceopt.result.experiments import Compared, Comparison, MeasuringDevice, Rates

MOST_BYTES = 4 * 2**20


class MeasuredRates(Struct, frozen=True):
    """What comparisons gave, by the device that made them."""

    by_device: Mapping[MeasuringDevice, Mapping[Comparison, Compared]]

    def of(self, name: str | None, threads: int | None) -> Mapping[Comparison, Compared]:
        """Those of the device with this name. `threads`: of each operator, on a CPU."""
        found: dict[Comparison, Compared] = {}
        for device, compared in self.by_device.items():
            if device.name == name and device.threads == threads:
                found.update(compared)
        return found


def read_measured_rates(files: Sequence[TraceSource], warnings: list[str]) -> MeasuredRates:
    """Raises InputError if no file can be read."""
    by_device: dict[MeasuringDevice, dict[Comparison, Compared]] = {}
    for file in files:
        try:
            rates = _read(file)
        except InputError as error:
            if len(files) == 1:
                raise
            warnings.append(str(error))
            continue
        by_device.setdefault(rates.device, {}).update({one.comparison: one for one in rates.compared})
    return MeasuredRates(by_device)


def _read(file: TraceSource) -> Rates:
    with file.open() as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"{file.label} is larger than {MOST_BYTES >> 20} MiB, too large for measured rates")
    try:
        return decode(data, type=Rates)
    except (DecodeError, RecursionError) as error:
        raise InputError(f"{file.label} has no rates that this version can read: {one_line(str(error))}") from error
