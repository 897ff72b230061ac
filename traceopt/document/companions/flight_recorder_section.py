"""The section of the result document about dumps of the flight recorder."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.companions.flight_recorder.calls import Calls
from traceopt.analyzer.companions.flight_recorder.recording import FlightRecording
from traceopt.analyzer.companions.flight_recorder.stuck_calls import StuckCall
from traceopt.analyzer.facts import Facts
from traceopt.result.sections.companions import FlightRecorder, GroupRow, LateRankRow, StuckCallRow
from traceopt.result.words.quantities import counted
from traceopt.result.words.rank_lists import are, ranks_text
from traceopt.result.words.rounding import us

MAX_ROWS = 100
MAX_LATE = 20


def section(facts: Facts) -> FlightRecorder | None:
    """None without dumps."""
    recording = facts.companions.flight_recorder
    if recording is None:
        return None
    calls = recording.calls
    stuck = sorted(recording.stuck, key=lambda call: -len(call.waiting))
    return FlightRecorder(
        dumps=len(recording.dumps),
        calls=len(calls),
        version=recording.dumps[0].version,
        library=recording.dumps[0].library or None,
        stacks=bool(calls.sites),
        without_dump=recording.without_dump,
        groups=_groups(calls),
        stuck=[_stuck(recording, call) for call in stuck[:MAX_ROWS]],
        late=[
            LateRankRow(
                late.rank, late.measured, late.collectives, late.compared, us(late.waited_ns), us(late.longest_ns)
            )
            for late in recording.late[:MAX_LATE]
        ],
    )


def ending(facts: Facts) -> str | None:
    """The sentence for a job that hangs: who waits for whom, most waiting ranks first. None if none waits."""
    recording = facts.companions.flight_recorder
    hang = next(iter(recording.hangs), None) if recording is not None else None
    if recording is None or hang is None:
        return None
    if hang.culprits:
        culprits, main = [last.rank for last in hang.culprits], hang.calls[0]
        verb = are(hang.waiting)
        return (
            f"The job hangs: {counted(len(hang.waiting), 'rank')} {verb} waiting for {ranks_text(culprits)}, first in "
            f"{main.operation} of {recording.groups[main.group].label}."
        )
    circle = sorted({rank for call in hang.calls for rank in call.awaited})
    return f"The job hangs: {ranks_text(circle)} wait for each other."


def headline(facts: Facts) -> str | None:
    """The sentence for a run without a trace: what is stuck."""
    recording = facts.companions.flight_recorder
    if recording is None:
        return None
    if recording.hangs:
        return ending(facts)
    if recording.mismatches:
        group = recording.groups[recording.mismatches[0].group].label
        return f"The ranks of {group} make different calls at collective number {recording.mismatches[0].sequence:,}."
    if recording.stuck:
        call = max(recording.stuck, key=lambda one: len(one.waiting))
        return (
            f"All ranks have called {call.operation} number {call.sequence:,} of {recording.groups[call.group].label}, "
            "and it had not ended. It was running, or the network or a GPU is stuck."
        )
    return f"No rank was waiting for another, according to the dumps of {counted(len(recording.dumps), 'rank')}."


def _groups(calls: Calls) -> list[GroupRow]:
    largest = sorted(range(len(calls.groups)), key=lambda index: -len(calls.groups[index].ranks))
    return [_group(calls, index) for index in largest[:MAX_ROWS]]


def _group(calls: Calls, index: int) -> GroupRow:
    group = calls.groups[index]
    numbers = calls.sequence[(calls.group == index) & ~calls.is_p2p]
    first, last = (int(numbers.min()), int(numbers.max())) if np.size(numbers) else (None, None)
    return GroupRow(group.label, len(group.ranks), group.known, first, last)


def _stuck(recording: FlightRecording, call: StuckCall) -> StuckCallRow:
    return StuckCallRow(
        group=recording.groups[call.group].label,
        operation=call.operation,
        sequence=call.sequence,
        waiting=list(call.waiting),
        missing=list(call.missing),
        without_dump=list(call.without_dump),
        timed_out=call.timed_out,
        location=call.site,
    )
