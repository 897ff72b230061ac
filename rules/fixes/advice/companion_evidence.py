"""What the rules about files beside a trace share: lines of a memory snapshot, calls of a flight recorder."""

from __future__ import annotations

from traceopt.analyzer.companions.flight_recorder.recording import FlightRecording
from traceopt.analyzer.companions.flight_recorder.stuck_calls import StuckCall
from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import Holder, MemorySnapshot
from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Evidence, Location
from traceopt.result.words.message import named, size
from traceopt.result.words.quantities import counted
from traceopt.rules.rule import required

MAX_ROWS = 8  # of each kind of evidence of a flight recorder


def snapshot_of(facts: Facts) -> MemorySnapshot:
    """The snapshot, for rules that require it."""
    return required(facts.companions.memory_snapshot)


def place_of(snapshot: MemorySnapshot, owner: int) -> Location | None:
    """The line of an owner of memory; None if its stack names none."""
    return snapshot.owner(owner).site


def held_by(snapshot: MemorySnapshot, holders: list[Holder], most: int = 5) -> list[Evidence]:
    """A row for each of the first holders."""
    return [
        Evidence(
            named(snapshot.owner(holder.owner).name),
            detail=f"holds {size(holder.bytes)} in {counted(holder.blocks, 'block')}",
            location=place_of(snapshot, holder.owner),
        )
        for holder in holders[:most]
    ]


def lines_at_the_peak(facts: Facts) -> list[Evidence]:
    """The lines that hold the peak, for rules about the peak of a trace; none without a snapshot."""
    snapshot = facts.companions.memory_snapshot
    return [] if snapshot is None else held_by(snapshot, snapshot.holders)


def call_name(call: StuckCall) -> str:
    """ "all_reduce number 1,200"."""
    return f"{call.operation} number {call.sequence:,}"


def waiting_in(recording: FlightRecording, call: StuckCall, detail: str) -> Evidence:
    """A row for a call that ranks wait in."""
    group = recording.groups[call.group].label
    return Evidence(f"Waiting in {call_name(call)} of {group}", detail=detail, location=call.site)
