"""Versions of a package that are installed in given environments, for `traceopt bisect --package`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from traceopt.errors import ConfigError, one_line
from traceopt.try_script.bisection import Candidate, Span
from traceopt.try_script.two_sides import State
from traceopt.trying.changes import Change

LIMIT_S = 60.0
_ASK = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


def versions_between(package: str, pythons: Sequence[str], good: str, bad: str) -> Span:
    """`pythons`: the folder of each environment, or its interpreter, oldest version first. Raises ConfigError."""
    found = [_candidate(package, python) for python in pythons]
    names = [version.name for version in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--python: {package} {name} is in two environments")
    for name in (good, bad):
        if name not in names:
            raise ConfigError(f"no --python has {package} {name}; found: {', '.join(names) or 'none'}")
    first, last = names.index(good), names.index(bad)
    if first >= last:
        raise ConfigError(f"--python: name the environment of {package} {good} before that of {bad}")
    return Span(found[first].state, found[first + 1 : last + 1], package)


def _candidate(package: str, python: str) -> Candidate:
    path = os.path.expanduser(python)
    program = shutil.which(os.path.join(path, "bin", "python") if os.path.isdir(path) else path)
    if program is None:
        raise ConfigError(f"--python {python}: no such program")
    program = os.path.abspath(program)  # a link leads out of its environment
    command = [program, "-I", "-c", _ASK, package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)  # noqa: S603 - the user's Python
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"--python {python}: cannot be run: {one_line(str(error))}") from error
    version = one_line(done.stdout.strip())
    if done.returncode or not version:
        raise ConfigError(f"--python {python}: {package} is not installed there")
    change = Change(version, "environment", f"{package} {version}", "environment", python=program)
    return Candidate(version, one_line(program), State(f"{package} {version}", [change]))
