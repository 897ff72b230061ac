"""Where findings stand in a repository, as its host wants to know it: by a path from the root, and a line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from traceopt.result.finding import Finding, Location

_ELSEWHERE = re.compile(r"[~/\\<]|[A-Za-z]:|\.\.(/|$)|.*/\.\.(/|$)")  # absolute, of a home folder, of a notebook


def repository_places(finding: Finding) -> list[Location]:
    """The finding's places that may lie in the repository, first those it names and then those of its evidence."""
    every = [*finding.locations, *(row.location for row in finding.evidence)]
    return [place for place in dict.fromkeys(every) if place is not None and not _ELSEWHERE.match(place.file)]


def without_a_place(findings: Iterable[Finding]) -> list[str]:
    """Codes of the findings that a format which goes by files has no room for."""
    return list(dict.fromkeys(finding.code for finding in findings if not repository_places(finding)))
