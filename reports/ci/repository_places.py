"""The places of findings in a repository, as code hosts need them: a path from its root, and a line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from traceopt.result.finding import Finding, Location

# Absolute, in a home folder, in a notebook, in an installed package.
_ELSEWHERE = re.compile(r"[~/\\<]|[A-Za-z]:|\.\.(/|$)|.*/\.\.(/|$)|site-packages/")


def repository_places(finding: Finding) -> list[Location]:
    """The finding's places that may lie in the repository: first its own, then those of its evidence."""
    every = [*finding.locations, *(row.location for row in finding.evidence)]
    return [place for place in dict.fromkeys(every) if place is not None and not _ELSEWHERE.match(place.file)]


def without_a_place(findings: Iterable[Finding]) -> list[str]:
    """Codes of the findings that a format organized by file cannot hold."""
    return list(dict.fromkeys(finding.code for finding in findings if not repository_places(finding)))
