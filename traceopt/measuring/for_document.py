"""Measures what the savings of a document ask for: `traceopt measure`, and the end of `traceopt run`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from traceopt.capture.launch.cpu_peaks import cache_folder
from traceopt.measuring.cache import Cache
from traceopt.measuring.session import MeasuringError, Progress, measure
from traceopt.output import write_atomically
from traceopt.result.document import Result
from traceopt.result.experiments import Comparison, Rates

FILE = "traceopt.rates.json"
MOST_FINDINGS = 5  # the first of the document: others change the plan little


def comparisons_of(result: Result) -> list[Comparison]:
    """What the first findings with a saving ask for, most valuable first."""
    savings = [finding.saving for finding in result.findings if finding.saving is not None][:MOST_FINDINGS]
    return list(dict.fromkeys(comparison for saving in savings for comparison in saving.experiments))


def measured(result: Result, budget_s: float, progress: Progress | None = None, *, again: bool = False) -> Rates:
    """What this machine gives. `again`: also what the user's cache holds.

    Raises MeasuringError if this machine has another device than that of the trace, or none that works.
    """
    cpu, device = result.cpu, result.run.device
    name = cpu.name if cpu is not None else device.name if device is not None else None
    if name is None:
        raise MeasuringError("the trace does not name its device")
    return measure(
        comparisons_of(result),
        "cpu" if cpu is not None else "cuda:0",
        name,
        threads=None if cpu is None else cpu.threads,
        budget_s=budget_s,
        cache=None if again else Cache(cache_folder() / "rates"),
        progress=progress,
    )


def shown_by(show: Callable[[str], None]) -> Progress:
    """A progress line that says what is measured and how long it took so far."""
    return lambda made, of, seconds: show(f"measuring rates of the device: {made} of {of}, {seconds:.0f} s")


def place_beside(result: Result) -> Path:
    """The file for the rates in the folder of the trace; in the current folder if the trace is not on this disk."""
    folder = Path(result.run.paths[0]).parent
    return (folder if folder.is_dir() else Path()) / FILE


def write(path: Path, rates: Rates) -> None:
    """Adds the rates to those that the file has of the same device. Raises OutputError."""
    known: Rates | None = None
    with suppress(OSError, msgspec.DecodeError):
        known = msgspec.json.decode(path.read_bytes(), type=Rates)
    if known is not None and known.device == rates.device:
        compared = {compared.comparison: compared for compared in (*known.compared, *rates.compared)}
        rates = replace(rates, compared=tuple(compared.values()))
    write_atomically(path, msgspec.json.encode(rates) + b"\n")
