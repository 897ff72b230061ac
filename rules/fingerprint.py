"""Fingerprints that identify a finding across recordings: its rule, file name and function, never a line or a time.

Lines move when other code is edited, and times differ between two runs of the same code. Only the file's name counts,
because the folder of a checkout differs from machine to machine.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from traceopt.result.finding import Finding, Location

Place = tuple[str, str]


def places(finding: Finding) -> list[Place]:
    """File name and function of the finding's locations, or of its evidence if it has no locations."""
    located: Iterable[Location | None] = finding.locations or (row.location for row in finding.evidence)
    named = [(PurePosixPath(at.file).name, at.function or "") for at in located if at is not None]
    return list(dict.fromkeys(named))


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """One per finding, in order, 32 hex digits each. Several findings of a rule in one function are numbered."""
    seen: Counter[tuple[str, ...]] = Counter()
    marks = []
    for finding in findings:
        key = (finding.code, *next(iter(places(finding)), ()))
        seen[key] += 1
        text = "\0".join((*key, str(seen[key])))
        marks.append(hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32])
    return marks
