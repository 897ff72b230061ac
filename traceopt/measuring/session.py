"""Makes comparisons in a process of their own, within a budget. One that fails, hangs or lacks memory is a line."""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import IO

import msgspec

from traceopt.errors import TraceoptError
from traceopt.measuring.cache import Cache
from traceopt.measuring.process import NoDevice
from traceopt.result.experiments import Answer, Compared, Comparison, Failure, MeasuringDevice, Rates

WORDS = (sys.executable, "-m", "traceopt.measuring.process")
START_S = 60.0  # to import torch on a slow disk; not part of the budget
LONGEST_S = 15.0  # of one comparison

Progress = Callable[[int, int, float], None]  # comparisons made, of how many, seconds spent


class MeasuringError(TraceoptError):
    """Nothing can be measured on this machine; the message says why."""


def measure(
    comparisons: Sequence[Comparison],
    device: str,
    name: str,
    *,
    threads: int | None = None,
    budget_s: float,
    cache: Cache | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Rates:
    """What was measured, in the order of the comparisons; those that the budget leaves out are missing.

    `device`: of torch, "cuda:0" or "cpu"; it must have this `name`. `threads`: of each operator on the CPU. Raises
    MeasuringError if torch cannot be imported, or has no such device.
    """
    wanted = list(dict.fromkeys(comparisons))
    with _Process(device, threads) as process:
        if process.device.name != name:
            raise MeasuringError(f"this machine has another device ({process.device.name}) than the trace ({name})")
        known = {one.comparison: one for one in (cache.read(process.device) if cache else ())}
        answers: dict[Comparison, Answer] = {one: known[one] for one in wanted if one in known}
        began = clock()
        for comparison in (one for one in wanted if one not in known):
            left_s = budget_s - (clock() - began)
            if left_s <= 0:
                break
            answers[comparison] = process.answer(comparison, min(left_s, LONGEST_S))
            if progress is not None:
                progress(len(answers), len(wanted), clock() - began)
        found = process.device
    compared = tuple(one for one in map(answers.get, wanted) if isinstance(one, Compared))
    failures = tuple(one for one in map(answers.get, wanted) if isinstance(one, Failure))
    if cache is not None:
        cache.write(found, {**known, **{one.comparison: one for one in compared}}.values())
    return Rates(found, compared, failures)


class _Process:
    """The process that measures; another one after each that had to be ended."""

    def __init__(self, device: str, threads: int | None) -> None:
        self._words = [*WORDS, device, *([str(threads)] if threads is not None else [])]
        self._child: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __enter__(self) -> _Process:
        self.device = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def answer(self, comparison: Comparison, limit_s: float) -> Answer:
        try:
            if self._child is None:
                self._start()
            line = self._ask(comparison, limit_s)
        except queue.Empty:
            self._end()
            return Failure(comparison, f"It took longer than {limit_s:.0f} s.")
        except (OSError, MeasuringError):
            line = b""
        if not line:
            self._end()
            return Failure(comparison, "The process that measures ended, perhaps for lack of memory.")
        answer: Answer = msgspec.json.decode(line, type=Answer)
        return answer

    def _start(self) -> MeasuringDevice:
        self._child = subprocess.Popen(  # noqa: S603 - this Python and our own module
            self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._lines = queue.SimpleQueue()
        Thread(target=_pass_on, args=(self._child.stdout, self._lines), daemon=True).start()
        try:
            first = msgspec.json.decode(self._lines.get(timeout=START_S), type=MeasuringDevice | NoDevice)
        except queue.Empty:
            first = NoDevice(f"torch was not ready within {START_S:.0f} s; try again when the machine is less busy")
        except msgspec.DecodeError:
            first = NoDevice("torch did not start")
        if isinstance(first, NoDevice):
            self._end()
            raise MeasuringError(f"nothing can be measured here: {first.why}")
        return first

    def _ask(self, comparison: Comparison, limit_s: float) -> bytes:
        """The answer's line; empty if the process has ended. Raises queue.Empty if it takes too long."""
        stdin = self._child.stdin if self._child is not None else None
        if stdin is None:
            return b""
        stdin.write(msgspec.json.encode(comparison) + b"\n")
        stdin.flush()
        return self._lines.get(timeout=limit_s)

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None


def _pass_on(stream: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Puts each line into the queue, and an empty one at the end."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(b"")
