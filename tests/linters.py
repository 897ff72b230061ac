"""Linters of the development environment, for files that no program here reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def lint(*command: str | Path) -> None:
    """Runs a linter, which must find nothing."""
    program = Path(sys.executable).with_name(str(command[0]))
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
