#!/usr/bin/env python3
"""A training script without torch: writes what the agent would write, with steps of a known length.

It runs in the source copy of `traceopt try` and asks for no time: its steps are numbers.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

STEP_US = 1000.0
LOSS_FACTOR = 1.0


def take_turns() -> None:
    """As capture/recording/timed_steps.py; with LOCK, it cannot run beside itself."""
    if "LOCK" not in os.environ:
        os.killpg(0, signal.SIGSTOP)
        return
    lock = Path(os.environ["LOCK"])
    lock.touch(exist_ok=False)
    os.killpg(0, signal.SIGSTOP)
    lock.unlink()


def leave_trace(control: Path, trace: Path) -> None:
    """As the agent would, in the log folder."""
    shutil.copy(trace, json.loads((control / "settings.json").read_text())["folder"])
    note = {"file": trace.name, "cycle": "timing", "steps": 3, "planned_steps": 3, "closed_early": None}
    status = {"step": 3, "ended": True, "traces": [note]}
    (control / f"host.{os.getpid()}.status.json").write_text(json.dumps(status))


def main() -> None:
    control = Path(os.environ["TRACEOPT_CONTROL"])
    timed = json.loads((control / "settings.json").read_text())["timed"]
    for marker in ("loaded", "torch"):
        (control / marker).touch()
    if "READS" in os.environ:
        Path(os.environ["READS"]).read_text()
    if timed is None:  # the recording of the baseline: a run without torch leaves no traces of its own
        if "TRACE" in os.environ:
            leave_trace(control, Path(os.environ["TRACE"]))
        return
    if "--hang" in sys.argv or os.environ.get("HANG"):
        print("started", flush=True)
        time.sleep(600)
    if "--crash" in sys.argv:
        print("DefaultCPUAllocator: can't allocate memory" if "--memory" in sys.argv else f"some error in {__file__}")
        sys.exit(3)
    number = len(list(control.parent.glob("control-*")))
    noise = 1 + 0.002 * (number * 7919 % 5 - 2) / 2  # runs differ, in the same way at each try
    step_us = STEP_US * float(os.environ.get("SLOWDOWN", "1")) * noise
    if timed["turn_s"] is not None:
        take_turns()
    Path("written-by-the-script").write_text("a checkpoint")
    document = {
        "rank": None,
        "step_us": [5 * step_us] * timed["settle"] + [step_us * (1 + 0.001 * (i % 3)) for i in range(timed["steps"])],
        "settled": timed["settle"],
        "drained_us": 0.0,
        "core_wait": None,
        "losses": [[step, LOSS_FACTOR * 3.0 / (1 + step)] for step in range(20)],
        "seeded_by_script": False,
        "switches_used": [],
        "peak_device_bytes": None,
        "peak_host_bytes": 1_000_000,
    }
    (control / f"host.{os.getpid()}.timed.json").write_text(json.dumps(document))


if __name__ == "__main__":
    main()
