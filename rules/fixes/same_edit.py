"""Whether one edit makes two fixes."""

from __future__ import annotations

from collections.abc import Iterator

from traceopt.result.edits import Call, Compile, SetAttribute, SetVariable
from traceopt.result.finding import Finding


def same_edit(one: Finding, other: Finding) -> bool:
    """One call of torch.compile, with the mode that a fix names, makes all fixes that compile the same target."""
    edits = list(_changed(one))
    return bool(edits) and edits == list(_changed(other))


def _changed(finding: Finding) -> Iterator[object]:
    """What each edit changes: itself if it names its place, else with the place of the finding."""
    for edit in finding.fix.edits:
        if isinstance(edit, Compile):
            yield Compile(edit.target)
        elif isinstance(edit, (Call, SetAttribute, SetVariable)):
            yield edit
        else:
            yield edit, finding.locations[0] if finding.locations else object()
