"""Workflow commands that make GitHub annotate the lines of a pull request: gates, then findings, the dearest first."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.ci.repository_places import repository_places
from traceopt.reports.words import comparison_words, quantities
from traceopt.reports.words.shown_document import shown as shown_form
from traceopt.result.comparison import GateOutcome
from traceopt.result.document import Result
from traceopt.result.finding import Finding

ANNOTATIONS = 10  # what GitHub shows of a step
_LEVELS = {"high": "warning", "medium": "warning", "low": "notice", "info": "notice"}


def render_github(result: Result, *, gates: Sequence[GateOutcome] = ()) -> str:
    """At most ten annotations. No string of the trace begins a line or ends a property."""
    findings = sorted(shown_form(result).findings, key=lambda f: -f.saving.est_us if f.saving else 0.0)
    told = [_gate(gate) for gate in gates if gate.status != "passed"] + [_annotation(finding) for finding in findings]
    return "".join(told[:ANNOTATIONS])


def _gate(outcome: GateOutcome) -> str:
    level = "error" if outcome.level == "fail" else "warning"
    return f"::{level} title=traceopt gate::{_message(quantities.prose(comparison_words.gate_line(outcome)))}\n"


def _annotation(finding: Finding) -> str:
    saving = finding.saving
    saved = f" saves about {quantities.saved_per_step(saving.est_us, saving.share)}" if saving is not None else ""
    properties = {"title": f"traceopt {finding.code}{saved}"}
    place = next(iter(repository_places(finding)), None)
    if place is not None:
        properties["file"] = place.file
        if place.line is not None:
            properties["line"] = str(place.line)
            properties["endLine"] = str(place.last_line or place.line)
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    message = "\n".join([finding.title, finding.why, finding.fix.text])
    return f"::{_LEVELS[finding.impact]} {told}::{_message(message)}\n"


def _message(value: str) -> str:
    """As the runner reads it back (actions/runner, ActionCommand.cs)."""
    escaped = value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return quantities.without_old_commands(escaped)


def _property(value: str) -> str:
    return _message(value).replace(":", "%3A").replace(",", "%2C")
