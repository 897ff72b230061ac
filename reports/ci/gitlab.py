"""Findings as GitLab's Code Quality report, which a merge request shows beside the lines it changes."""

from __future__ import annotations

import orjson

from traceopt.reports.ci.repository_places import repository_places
from traceopt.reports.words import quantities
from traceopt.reports.words.shown_document import shown as shown_form
from traceopt.result.document import Result
from traceopt.rules.fingerprint import fingerprints

_SEVERITIES = {"high": "critical", "medium": "major", "low": "minor", "info": "info"}


def render_gitlab(result: Result) -> str:
    """A JSON list. Findings without a place in the repository are not in it: GitLab requires a file and a line."""
    findings = shown_form(result).findings
    issues = []
    for finding, fingerprint in zip(findings, fingerprints(findings), strict=True):
        places = repository_places(finding)
        if not places:
            continue
        saving = finding.saving
        saved = f", saves about {quantities.saved_per_step(saving.est_us, saving.share)}" if saving is not None else ""
        issues.append(
            {
                # The code stands here as well: GitLab does not show check_name.
                "description": f"{finding.code}: {finding.title}{saved}. {finding.why}",
                "check_name": finding.code,
                "fingerprint": fingerprint,
                "severity": _SEVERITIES[finding.impact],
                "location": {"path": places[0].file, "lines": {"begin": places[0].line or 1}},
            }
        )
    return orjson.dumps(issues, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
