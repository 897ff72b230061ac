"""The start-up of a process as `traceopt run` sampled it: its parts, and the lines of the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from traceopt.analyzer.tables.json_values import rows, table, time_ns, whole, word
from traceopt.analyzer.vocabulary.phases.start_up_parts import SAMPLED
from traceopt.analyzer.vocabulary.python_frames import shown_file
from traceopt.result.finding import Location
from traceopt.result.sections.companions import StartUpPartName

MOST_LINE = 10_000_000
MOST_PARTS = 100
MOST_LINES = 20  # of one part


class StartUpLine(Struct, frozen=True):
    """A line of the user's code. `what`: the package that it imports, if it does."""

    location: Location
    what: str | None
    total_ns: int


class StartUpPart(Struct, frozen=True):
    """A part of the start-up, and its lines, longest first."""

    name: StartUpPartName
    total_ns: int
    lines: tuple[StartUpLine, ...] = ()


class StartUp(Struct, frozen=True):
    """The time from the creation of the process to the end of its first step.

    The parts add up to it, longest first. "python" precedes the script. "unsampled" is what belongs to no other part.
    """

    total_ns: int
    interval_ns: int
    parts: tuple[StartUpPart, ...]


def read_start_up(value: object) -> StartUp | None:
    """Reads the key `start_up`; None if it was not measured."""
    document = table(value)
    total_ns, interval_ns = time_ns(document.get("us")), time_ns(document.get("interval_us"))
    if not total_ns or not interval_ns:
        return None
    sampled: dict[StartUpPartName, StartUpPart] = {}
    for row in rows(document.get("parts"))[:MOST_PARTS]:
        part = _part(row)
        if part is not None:
            sampled.setdefault(part.name, part)
    found = [*sampled.values(), StartUpPart("python", time_ns(document.get("python_us")) or 0)]
    if sum(part.total_ns for part in found) > total_ns:  # parts of one whole cannot be more
        found = []
    found.append(StartUpPart("unsampled", total_ns - sum(part.total_ns for part in found)))
    known = [part for part in found if part.total_ns]
    return StartUp(total_ns, interval_ns, tuple(sorted(known, key=lambda part: -part.total_ns)))


def _part(row: Mapping[str, Any]) -> StartUpPart | None:
    name = next((name for name in SAMPLED if name == row.get("part")), None)
    total_ns = time_ns(row.get("us"))
    if name is None or total_ns is None:
        return None
    lines = [line for line in map(_line, rows(row.get("lines"))[:MOST_LINES]) if line is not None]
    return StartUpPart(name, total_ns, tuple(sorted(lines, key=lambda line: -line.total_ns)))


def _line(row: Mapping[str, Any]) -> StartUpLine | None:
    file, function = word(row.get("file")), word(row.get("function"))
    line, total_ns = whole(row.get("line"), MOST_LINE), time_ns(row.get("us"))
    if not file or not function or not line or total_ns is None:
        return None
    return StartUpLine(Location(shown_file(file), line, function), word(row.get("what")) or None, total_ns)
