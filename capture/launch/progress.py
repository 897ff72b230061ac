"""Reports the progress of the recording on a terminal, in whole lines, because the script prints there too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..status import DONE, RECORDING, SAVING, WAITING, WARMING_UP, Status, read_statuses


class RunProgress:
    """Called at short intervals while the command runs; reports the lowest rank."""

    def __init__(self, control: Path, tell: Callable[[str], None]) -> None:
        self._control = control
        self._tell = tell
        self._last = ""

    def __call__(self) -> None:
        status = next((s for s in read_statuses(self._control) if s.step), None)
        text = _sentence(status) if status is not None else ""
        if text and text != self._last:
            self._last = text
            self._tell(text)


def _sentence(status: Status) -> str:
    cycle, steps = status.cycle, f"{status.first_step} to {status.last_step}"
    if status.phase == WARMING_UP:
        return f"warming up for steps {steps} ({cycle} cycle)" if cycle else ""
    if status.phase == RECORDING:
        return f"recording steps {steps} ({cycle} cycle)"
    if status.phase == SAVING:
        return f"saving the {cycle} cycle"
    if status.phase == WAITING and not status.traces:
        return "training started; waiting for it to settle"
    if status.phase == DONE and status.traces:
        return "recording done; the run continues without a profiler"
    return ""
