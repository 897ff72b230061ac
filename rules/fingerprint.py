"""Fingerprints that identify a finding across recordings: its rule, file name and function, never a line or a time.

Lines move when other code is edited, and times differ between two runs of the same code. Only the file's name counts,
because the folder of a checkout differs from machine to machine.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from traceopt.result.finding import Finding, Location

Place = tuple[str, str]
_ID_DIGITS = 6
_ID = re.compile(r"([A-Z]+[0-9]+)-[0-9a-f]{6}")


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


def finding_ids(findings: Sequence[Finding]) -> list[str]:
    """A short name for each finding that stays the same across recordings: "DL001-3f9a1c"."""
    marks = zip(findings, fingerprints(findings), strict=True)
    return [f"{finding.code}-{mark[:_ID_DIGITS]}" for finding, mark in marks]


def code_of(text: str) -> str:
    """The code in the id of a finding; a code or name as it is."""
    found = _ID.fullmatch(text)
    return text if found is None else found[1]
