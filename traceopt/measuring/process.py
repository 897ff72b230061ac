"""The process that makes comparisons: `python -m traceopt.measuring.process cuda:0`. It reads one a line, as JSON.

It first writes a line about the device, then an answer for each. Who asks ends it if an answer takes too long.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from traceopt.capture.metadata.cpu import describe_machine
from traceopt.errors import one_line
from traceopt.measuring.comparing import compare
from traceopt.result.experiments import Comparison, Failure, MeasuringDevice

FIRST_TO_END = "1000"  # of Linux's oom_score_adj: where memory is short, this process ends and no other


class NoDevice(Struct, frozen=True, tag="no_device"):
    """Why nothing can be measured, in place of the device."""

    why: str


def main(device: str, threads: int | None) -> None:
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_END)
    try:
        torch: Any = importlib.import_module("torch")
        if threads is not None:
            torch.set_num_threads(threads)
        _say(_describe(torch, device))
    except Exception as error:  # of a broken installation or driver
        _say(NoDevice(_words(error)))
        return
    for line in sys.stdin.buffer:
        comparison = msgspec.json.decode(line, type=Comparison)
        try:
            _say(compare(torch, device, comparison))
        except Exception as error:  # the device cannot do that
            _say(Failure(comparison, _words(error)))


def _describe(torch: Any, device: str) -> MeasuringDevice:
    version = str(torch.__version__)
    if device == "cpu":
        return MeasuringDevice(describe_machine()["model"] or "CPU", version, threads=torch.get_num_threads())
    runtime = torch.version.hip or torch.version.cuda
    return MeasuringDevice(torch.cuda.get_device_name(device), version, runtime, _driver(torch))


def _driver(torch: Any) -> str | None:
    try:
        return str(torch._C._cuda_getDriverVersion())
    except (AttributeError, RuntimeError):
        return None


def _words(error: Exception) -> str:
    return one_line(str(error) or type(error).__name__)


def _say(answer: Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
