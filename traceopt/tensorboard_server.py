"""Shows a log folder in TensorBoard, with the plugin for PyTorch traces (torch-tb-profiler)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from traceopt.errors import InputError

INSTALL = "pip install tensorboard torch-tb-profiler, or the extra traceopt[tensorboard]"
SHOWN = ("*.pt.trace.json", "*.pt.trace.json.gz")  # the names that the plugin looks for


def start(logdir: Path, options: Sequence[str]) -> NoReturn:
    """Becomes TensorBoard, so that signals and the exit code are its own; `options` are TensorBoard's.

    Raises InputError where it is not installed, or the folder holds nothing that it would show.
    """
    missing = [name for name in ("tensorboard", "torch_tb_profiler") if find_spec(name) is None]
    if missing:
        raise InputError(f"{' and '.join(missing).replace('_', '-')} is not installed: {INSTALL}")
    if not logdir.is_dir():
        raise InputError(f"no such folder: {logdir}")
    if not any(True for pattern in SHOWN for _ in logdir.rglob(pattern)):
        raise InputError(f"no trace below {logdir} that TensorBoard would show (*.pt.trace.json or *.pt.trace.json.gz)")
    sys.stdout.flush()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), *options]
    os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted
