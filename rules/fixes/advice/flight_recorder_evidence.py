"""What the rules about the flight recorder share: calls as text and as evidence."""

from __future__ import annotations

from traceopt.analyzer.companions.flight_recorder.recording import FlightRecording
from traceopt.analyzer.companions.flight_recorder.stuck_calls import StuckCall
from traceopt.result.finding import Evidence
from traceopt.rules.evidence import to_location

MAX_ROWS = 8  # of each kind of evidence


def call_name(call: StuckCall) -> str:
    """ "all_reduce number 1,200"."""
    return f"{call.operation} number {call.sequence:,}"


def waiting_in(recording: FlightRecording, call: StuckCall, detail: str) -> Evidence:
    """A row for a call that ranks wait in."""
    group = recording.groups[call.group].label
    return Evidence(f"Waiting in {call_name(call)} of {group}", detail=detail, location=to_location(call.site))
