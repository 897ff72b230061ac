"""Workflow commands that annotate a pull request on GitHub: gates, the plan, then the other findings."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.ci.repository_places import repository_places
from traceopt.reports.words import safe_text, step_words
from traceopt.reports.words.comparing import comparison_words
from traceopt.reports.words.display import for_display
from traceopt.result.comparison import GateOutcome
from traceopt.result.document import Result
from traceopt.result.finding import Finding

ANNOTATIONS = 10  # GitHub shows no more per step of a job
_LEVELS = {"high": "warning", "medium": "warning", "low": "notice", "info": "notice"}


def render_github(result: Result, *, gates: Sequence[GateOutcome] = ()) -> str:
    """At most ten annotations. No string of the trace can start a command or end a property."""
    failed = [_gate(gate) for gate in gates if gate.status != "passed"]
    document = for_display(result)
    caveat = document.quality.caveat
    before = [] if caveat is None else [f"::warning title=traceopt trace::{_message(caveat)}\n"]
    findings = [_annotation(finding, document) for finding in _plan_first(document)]
    return "".join([*failed, *before, *findings][:ANNOTATIONS])


def _plan_first(result: Result) -> list[Finding]:
    """The findings of the plan in its order, then the others, most expensive first."""
    place = {row.finding: number for number, row in enumerate(result.plan)}

    def order(finding: Finding) -> tuple[int, float]:
        saved_us = finding.saving.est_us if finding.saving is not None else 0.0
        return place.get(finding.id, len(place)), -saved_us

    return sorted(result.findings, key=order)


def _gate(outcome: GateOutcome) -> str:
    level = "error" if outcome.level == "fail" else "warning"
    return f"::{level} title=traceopt gate::{_message(safe_text.prose(comparison_words.gate_line(outcome)))}\n"


def _annotation(finding: Finding, result: Result) -> str:
    saving = finding.saving
    saved = f" saves about {step_words.saved(result, saving)} alone" if saving is not None else ""
    properties = {"title": f"traceopt {finding.code}{saved}"}
    place = next(iter(repository_places(finding)), None)
    if place is not None:
        properties["file"] = place.file
        if place.line is not None:
            properties["line"] = str(place.line)
            properties["endLine"] = str(place.last_line or place.line)
    arguments = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    message = "\n".join([finding.title, finding.why, finding.fix.text])
    return f"::{_LEVELS[finding.impact]} {arguments}::{_message(message)}\n"


def _message(value: str) -> str:
    """Escaped as the runner expects it (actions/runner, ActionCommand.cs)."""
    escaped = value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return safe_text.without_old_commands(escaped)


def _property(value: str) -> str:
    return _message(value).replace(":", "%3A").replace(",", "%2C")
