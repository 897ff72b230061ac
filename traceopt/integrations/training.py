"""The recording of one training by a framework's callback, and what happens at its end.

The analyzer is imported at the end, because this module runs in a training job.
"""

from __future__ import annotations

import atexit
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceopt.capture.metadata.environment import rank
from traceopt.profiling import profile

if TYPE_CHECKING:
    from traceopt.integrations.tracking import Tracker


class Training:
    """Records the first training that is long enough. It can be pickled before that, because some frameworks start
    their ranks themselves.

    `log_to`: at the end, rank 0 analyzes its traces and logs the result there, as `log_result` does. If that fails, it
    warns: the training has succeeded. The other arguments are the same as for `traceopt.profile`.

    Raises ValueError for the name of an unknown tracker, or arguments that do not go together.
    """

    def __init__(
        self, logdir: str | Path, preset: str | None = None, *, log_to: str | Tracker | None = None, **options: Any
    ) -> None:
        if isinstance(log_to, str):
            from traceopt.integrations.tracking import check_name

            check_name(log_to)
        self._profile = profile(logdir, preset, **options)
        self._log_to = log_to
        self._begun = False

    @property
    def traces(self) -> list[Path]:
        """The files written so far."""
        return self._profile.traces

    def begin(self) -> None:
        if not self._profile.traces:
            self._profile.__enter__()
            self._begun = True
            atexit.register(self.end)  # after an exception, a framework may not call the end of training

    def step(self) -> None:
        self._profile.step()

    def interrupt(self, why: str) -> None:
        self._profile.interrupt(why)

    def end(self) -> None:
        if not self._begun:
            return
        self._begun = False
        atexit.unregister(self.end)
        self._profile.__exit__(None, None, None)
        if self._log_to is not None and self.traces:
            self._log(self._log_to)

    def _log(self, log_to: str | Tracker) -> None:
        import torch

        from traceopt.api import analyze
        from traceopt.integrations.tracking import log_result

        if rank(torch) not in (None, 0):
            return
        try:
            log_result(analyze([str(path) for path in self.traces]), log_to)
        except Exception as error:  # whatever a tracker raises, the training has succeeded
            warnings.warn(f"traceopt: the result was not logged: {error}", RuntimeWarning, stacklevel=2)
