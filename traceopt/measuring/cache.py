"""Keeps what was measured in the user's cache folder, a file for each device, torch, runtime and driver."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from traceopt.errors import OutputError
from traceopt.output import write_atomically
from traceopt.result.experiments import Compared, MeasuringDevice, Rates


class Cache:
    """`folder`: made when something is written. A file that cannot be read or written is as none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, device: MeasuringDevice) -> tuple[Compared, ...]:
        try:
            rates = msgspec.json.decode(self._path(device).read_bytes(), type=Rates)
        except (OSError, msgspec.DecodeError):
            return ()
        return rates.compared if rates.device == device else ()

    def write(self, device: MeasuringDevice, compared: Iterable[Compared]) -> None:
        with suppress(OSError, OutputError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(device), msgspec.json.encode(Rates(device, tuple(compared))))

    def _path(self, device: MeasuringDevice) -> Path:
        return self._folder / f"{hashlib.sha256(msgspec.json.encode(device)).hexdigest()[:32]}.json"
