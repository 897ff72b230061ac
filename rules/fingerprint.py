"""The id of a finding: its rule, file name and function, never a line or a time, so that it stays across recordings.

Lines move when other code is edited, and times differ between two runs of the same code. Only the file's name counts,
because the folder of a checkout differs from machine to machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import PurePosixPath

from msgspec.structs import replace

from traceopt.result.finding import Finding, Location

Place = tuple[str, str]
_ID_DIGITS = 6
_ID = re.compile(r"([A-Z]+[0-9]+)-[0-9a-f]{6}")


def places(finding: Finding) -> list[Place]:
    """File name and function of the finding's locations, or of its evidence if it has no locations."""
    named = [(PurePosixPath(at.file).name, at.function or "") for at in _located(finding)]
    return list(dict.fromkeys(named))


def with_ids(findings: Sequence[Finding]) -> list[Finding]:
    """The findings with ids, "DL001-3f9a1c", of which no two are the same. Of those that have the same id already, the
    first keeps it. Several new ones of a rule in one function are numbered by their lines.
    """
    ids: dict[str, int] = {}  # and the places of their findings in the list
    for place, finding in enumerate(findings):
        if finding.id:
            ids.setdefault(finding.id, place)
    known = set(ids.values())
    for place in sorted(range(len(findings)), key=lambda place: _line(findings[place])):
        if place not in known:
            numbered = (_id(findings[place], number) for number in count(1))
            ids[next(identity for identity in numbered if identity not in ids)] = place
    of_place = {place: identity for identity, place in ids.items()}
    return [replace(finding, id=of_place[place]) for place, finding in enumerate(findings)]


def code_of(text: str) -> str:
    """The code in the id of a finding; a code or name as it is."""
    found = _ID.fullmatch(text)
    return text if found is None else found[1]


def _located(finding: Finding) -> list[Location]:
    found: Iterable[Location | None] = finding.locations or (row.location for row in finding.evidence)
    return [at for at in found if at is not None]


def _line(finding: Finding) -> int:
    return next((at.line or 0 for at in _located(finding)), 0)


def _id(finding: Finding, number: int) -> str:
    text = "\0".join((finding.code, *next(iter(places(finding)), ()), str(number)))
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{finding.code}-{digest[:_ID_DIGITS]}"
