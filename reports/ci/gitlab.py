"""Findings as a GitLab Code Quality report, which merge requests show next to the changed lines."""

from __future__ import annotations

import orjson

from traceopt.reports.ci.repository_places import repository_places
from traceopt.reports.words import step_words
from traceopt.reports.words.display import for_display
from traceopt.result.document import Result

_SEVERITIES = {"high": "major", "medium": "minor", "low": "info", "info": "info"}  # advice is never critical


def render_gitlab(result: Result) -> str:
    """A JSON list, without findings that have no place in the repository: GitLab requires a file and a line."""
    findings = for_display(result).findings
    issues = []
    for finding in findings:
        places = repository_places(finding)
        if not places:
            continue
        saving = finding.saving
        saved = f", saves about {step_words.saved(result, saving)} alone" if saving is not None else ""
        issues.append(
            {
                # Has the code too, because GitLab does not show check_name.
                "description": f"{finding.code}: {finding.title}{saved}. {finding.why}",
                "check_name": finding.code,
                "fingerprint": finding.id,
                "severity": _SEVERITIES[finding.impact],
                "location": {"path": places[0].file, "lines": {"begin": places[0].line or 1}},
            }
        )
    return orjson.dumps(issues, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
