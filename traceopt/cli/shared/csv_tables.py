"""The tables of a result as CSV files: plain numbers, and columns whose names have the unit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from traceopt.errors import OutputError
from traceopt.output import write_atomically
from traceopt.result.frames import TABLES, Frames

if TYPE_CHECKING:
    from pandas import DataFrame

    from traceopt.result.document import Result

_RUN_BY_SPREADSHEETS = r"^([=+@\t-])"  # what a cell begins with that is a formula there


def write_tables(folder: Path, result: Result) -> None:
    """One file for each frame that has rows. Raises OutputError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror}") from error
    frames = Frames(result)
    for name in TABLES:
        frame: DataFrame = getattr(frames, name)
        if len(frame):
            text = _guarded(frame).to_csv(index=False)
            write_atomically(folder / f"{name}.csv", text.encode("utf-8", "backslashreplace"))


def _guarded(frame: DataFrame) -> DataFrame:
    names = frame.select_dtypes("string")
    return frame.assign(**names.apply(lambda column: column.str.replace(_RUN_BY_SPREADSHEETS, r"'\1", regex=True)))
