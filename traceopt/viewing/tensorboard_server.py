"""Shows a log folder in TensorBoard, with the plugin for PyTorch traces (torch-tb-profiler)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from traceopt.errors import InputError

INSTALL = "pip install tensorboard torch-tb-profiler, or install the extra traceopt-profiler[tensorboard]"
PATTERNS = ("*.pt.trace.json", "*.pt.trace.json.gz")  # the names that the plugin looks for


def start(logdir: Path, options: Sequence[str]) -> NoReturn:
    """Replaces this process with TensorBoard, so that it handles signals and sets the exit code itself.

    `options` go to TensorBoard. Raises InputError if it is not installed, or if the folder has no trace for it.
    """
    missing = [name for name in ("tensorboard", "torch_tb_profiler") if find_spec(name) is None]
    if missing:
        raise InputError(f"{' and '.join(missing).replace('_', '-')} is not installed: {INSTALL}")
    if not logdir.is_dir():
        raise InputError(f"no such folder: {logdir}")
    if not any(True for pattern in PATTERNS for _ in logdir.rglob(pattern)):
        raise InputError(f"no trace for TensorBoard in {logdir} (*.pt.trace.json or *.pt.trace.json.gz)")
    sys.stdout.flush()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), *options]
    os.execv(sys.executable, command)  # noqa: S606 - no shell needed
