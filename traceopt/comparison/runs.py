"""Reads the runs of a side: traces, folders, result documents or reports."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.reading.source_search import natural_order
from traceopt.errors import InputError, one_line
from traceopt.result.document import Result
from traceopt.result.encoding.packing import LARGEST_BYTES, embedded_result

RunInput = str | os.PathLike[str] | Result
Analyze = Callable[[str], Result]

_START_BYTES = 512
_PAGE = (b"<!doctype html", b"<html")


class RunOfSide(Struct, frozen=True):
    """`label` is the last part of the given path."""

    label: str
    result: Result

    @property
    def paths(self) -> list[str]:
        """The traces of the run."""
        return self.result.run.paths


def read_runs(given: Sequence[RunInput], analyze: Analyze) -> list[RunOfSide]:
    """One run per path and per match of a glob. Traces are analyzed by `analyze`.

    Raises InputError if a run cannot be read, if there is none, or if the runs show different ranks.
    """
    runs: list[RunOfSide] = []
    for item in given:
        if isinstance(item, Result):
            runs.append(RunOfSide(_label(item.run.paths[0]) if item.run.paths else "result", item))
        else:
            runs += [RunOfSide(_label(path), read_run(path, analyze)) for path in _matches(os.fspath(item))]
    if not runs:
        raise InputError("no run to compare: pass a trace, a folder, a result document or a report")
    ranks = {run.result.run.shown_rank for run in runs}
    if len(ranks) > 1:
        raise InputError("the runs of one side show different ranks; pass the folder of each run")
    return runs


def read_run(path: str, analyze: Analyze) -> Result:
    """The result in a file written by `--json`, `--write-baseline` or `--html`, else the analysis of traces.

    Raises InputError.
    """
    document = _document(path)
    if document is None:
        return analyze(path)
    try:
        return Result.from_json(document)
    except ValueError as error:
        raise InputError(f"cannot read {path}: {one_line(str(error))}") from error


def _document(path: str) -> bytes | None:
    """The result document that the file is or holds; None for any other file, which may be a trace."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            start = file.read(_START_BYTES).lstrip()
            if start[:15].lower().startswith(_PAGE):
                return _embedded(path, start + file.read(LARGEST_BYTES))
            return start + file.read(LARGEST_BYTES) if _is_result(start) else None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _is_result(start: bytes) -> bool:
    """Whether JSON starts like the output of `Result.to_json`."""
    return b"".join(start.split()).startswith(b'{"tool":{"name":"traceopt"')


def _embedded(path: str, page: bytes) -> bytes:
    try:
        return embedded_result(page.decode("utf-8"))
    except ValueError as error:
        raise InputError(f"cannot read {path}: {one_line(str(error))}") from error


def _matches(path: str) -> list[str]:
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path), key=natural_order)
    if not found:
        raise InputError(f"nothing matches {path}")
    return found


def _label(path: str) -> str:
    return PurePath(os.path.abspath(path)).name if path in (".", "..") else PurePath(path).name or path


def slim(result: Result) -> Result:
    """The document without its timeline and memory curve, which later comparisons do not need."""
    return replace(result, timeline=None, memory=replace(result.memory, curve=[]))
