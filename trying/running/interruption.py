"""Signals that end `traceopt try`: the running script is ended, and what was measured is kept."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class SignalError(Exception):
    """A signal arrived; raised at a place where it is safe to stop."""


class Interruption:
    """Remembers the first of these signals, so that the program can stop where it is safe. Later ones change nothing.

    The program asks often: `check` raises SignalError. Used as a context manager, on the main thread.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, object] = {}

    @property
    def arrived(self) -> bool:
        return self.number is not None

    def check(self) -> None:
        if self.arrived:
            raise SignalError

    def __enter__(self) -> Interruption:
        for name in _NAMES:
            if hasattr(signal, name):
                number = getattr(signal, name)
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                    self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _remember(self, number: int, _: FrameType | None) -> None:
        if self.number is None:
            self.number = number

    @property
    def exit_code(self) -> int:
        """As a shell reports a program that the signal ended; 0 without one."""
        return 0 if self.number is None else 128 + self.number
