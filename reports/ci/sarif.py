"""Findings as SARIF 2.1.0, for code scanning and editors.

GitHub shows only results that have a file, and the first sentence of each message. Its limits are documented at
docs.github.com, "SARIF support for code scanning".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import orjson

from traceopt.reports.ci.repository_places import repository_places, without_a_place
from traceopt.reports.words import run_words, safe_text, step_words
from traceopt.reports.words.comparing import comparison_words
from traceopt.reports.words.display import for_display
from traceopt.result.comparison import GateOutcome
from traceopt.result.document import Result
from traceopt.result.finding import Finding, Location
from traceopt.rules.registry import load_rules, rule_page
from traceopt.rules.rule import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
NAME_LIMIT, DESCRIPTION_LIMIT = 255, 1024  # characters that GitHub accepts
PLACES = 20  # of one finding
_LEVELS = {"high": "warning", "medium": "warning", "low": "note", "info": "note"}  # advice is no error

Json = dict[str, Any]


def render_sarif(result: Result, *, label: str = "traceopt", gates: Sequence[GateOutcome] = ()) -> str:
    """One run. Code scanning keeps runs with different labels apart.

    Findings without a place in the repository go into a notification, because a result needs a file, and so do gates
    that have not passed.
    """
    document = for_display(result)
    findings = [finding for finding in document.findings if repository_places(finding)]
    rules: dict[str, Finding] = {}
    for finding in findings:
        rules.setdefault(finding.code, finding)
    indices = {rule: index for index, rule in enumerate(rules)}
    documented = {rule.code: rule for rule in load_rules().rules}
    run = {
        "tool": {
            "driver": {
                "name": result.tool.name,
                "semanticVersion": result.tool.version,
                "rules": [_rule(finding, documented.get(code)) for code, finding in rules.items()],
            }
        },
        "automationDetails": {"id": f"{quote(label, safe='')}/"},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(document, gates)}],
        "results": [_result(result, finding, indices[finding.code]) for finding in findings],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return orjson.dumps(log, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _rule(finding: Finding, rule: type[Rule] | None) -> Json:
    """What is true of a rule in every run: its title and its page. A rule of another installation has no page here."""
    title = finding.title if rule is None else rule.title
    more = f"`traceopt rule {finding.code}` explains what it measures and when it is wrong."
    about = [title] if rule is None else [title, *rule.page().strip().split("\n\n")[:1]]
    page = more if rule is None else rule_page(rule)
    return {
        "id": finding.code,
        "name": finding.name[:NAME_LIMIT],
        "shortDescription": {"text": _plain(title)[:DESCRIPTION_LIMIT]},
        "fullDescription": {"text": _plain(". ".join(" ".join(text.split()) for text in about))[:DESCRIPTION_LIMIT]},
        "help": {"text": _plain(page), "markdown": page},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"precision": finding.confidence, "tags": ["performance"]},
    }


def _result(document: Result, finding: Finding, rule_index: int) -> Json:
    saving = finding.saving
    saved = f": saves about {step_words.saved(document, saving)} alone" if saving is not None else ""
    first, *others = repository_places(finding)
    properties: Json = {"confidence": finding.confidence, "effort": finding.effort, "risk": finding.risk_words}
    if saving is not None:
        properties["savingMs"] = round(saving.est_us / 1_000, 3)
        properties["savingShare"] = round(saving.share, 4)
    result: Json = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.impact],
        "message": {"text": _plain(f"{finding.title}{saved}. {finding.why} {finding.fix.text}")},
        "locations": [_location(first)],
        "partialFingerprints": {"primaryLocationLineHash": f"{finding.id}:1"},
        "properties": properties,
    }
    if others:
        result["relatedLocations"] = [_location(place) for place in others[: PLACES - 1]]
    return result


def _location(place: Location) -> Json:
    line = place.line or 1  # GitHub requires one
    location: Json = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": line, "endLine": place.last_line or line},
        }
    }
    if place.function is not None:
        location["logicalLocations"] = [{"name": place.function, "kind": "function"}]
    return location


def _notifications(document: Result, gates: Sequence[GateOutcome]) -> list[Json]:
    """Gates that have not passed, what the results leave out, and caveats about them."""
    level = "error" if document.quality.verdict == "unusable" else "warning"
    caveat = document.quality.caveat
    messages = [
        ("error" if gate.level == "fail" else "warning", safe_text.prose(comparison_words.gate_line(gate)))
        for gate in gates
        if gate.status != "passed"
    ]
    messages += [] if caveat is None else [(level, caveat)]
    messages += [(level, f"{note.code}: {note.text}") for note in document.quality.notes]
    if left_out := without_a_place(document.findings):
        messages.append(("note", f"Left out, because they have no place in the repository: {', '.join(left_out)}."))
    messages.append(("note", run_words.checks_line(document)))
    return [{"level": level, "message": {"text": _plain(message)}} for level, message in messages]


def _plain(message: str) -> str:
    """A message without embedded links, which plain text in SARIF may write as [text](target)."""
    return message.replace("](", "] (")
