"""Notices when the script is about to start a profiler of its own, because two at once crash torch."""

from __future__ import annotations

import functools
import os
from typing import Any

from ..recording.recorder import Recorder

_MARK = "_traceopt_own"


def watch(torch: Any, recorder: Recorder) -> None:
    """All profilers of torch, old and new, use autograd's `profile`."""
    profiler = torch.autograd.profiler.profile
    prepare, start, leave = profiler._prepare_trace, profiler._start_trace, profiler.__exit__

    def begins(instance: Any) -> None:
        if not recorder.busy and not getattr(instance, _MARK, False):
            setattr(instance, _MARK, True)
            recorder.own_profiler_begins()

    @functools.wraps(prepare)
    def prepare_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        begins(self)
        return prepare(self, *args, **kwargs)

    @functools.wraps(start)
    def start_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        begins(self)
        return start(self, *args, **kwargs)

    @functools.wraps(leave)
    def exit_profiler(self: Any, *args: Any) -> Any:
        try:
            return leave(self, *args)
        finally:
            if getattr(self, _MARK, False):
                setattr(self, _MARK, False)
                recorder.own_profiler_ended()

    profiler._prepare_trace, profiler._start_trace, profiler.__exit__ = prepare_trace, start_trace, exit_profiler
    _hide_step_ranges(torch, recorder)
    _watch_exports(torch, recorder)


def _hide_step_ranges(torch: Any, recorder: Recorder) -> None:
    """While the script's profiler waits and ours records, its ProfilerStep ranges would appear in our trace next to
    ours.
    """
    profiler, nothing = torch.profiler.profile, torch.profiler.ProfilerAction.NONE
    original = profiler.step

    @functools.wraps(original)
    def step(self: Any) -> Any:
        hidden = (
            recorder.profiler is not None
            and not recorder.busy
            and getattr(self, "record_steps", False)
            and self.current_action == nothing == self.schedule(self.step_num + 1)
        )
        if not hidden:
            return original(self)
        self.record_steps = False
        try:
            return original(self)
        finally:
            self.record_steps = True

    profiler.step = step


def _watch_exports(torch: Any, recorder: Recorder) -> None:
    """Remembers where the script writes its own traces, because they can be analyzed as well."""
    profiler = torch.profiler.profiler._KinetoProfile
    export = profiler.export_chrome_trace

    @functools.wraps(export)
    def export_chrome_trace(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        theirs = self is not recorder.profiler and not os.path.basename(path).startswith(".")
        if theirs and len(recorder.status.own_traces) < 100:
            recorder.status.own_traces.append(str(path))
        return export(self, path, *args, **kwargs)

    profiler.export_chrome_trace = export_chrome_trace
