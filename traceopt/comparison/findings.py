"""Matches the findings of two sides: new, fixed, kept, or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from traceopt.result.comparison import FindingChange, FindingStatus
from traceopt.result.document import Result
from traceopt.result.finding import Finding, impact_of_share, name_among, value_order
from traceopt.rules.fingerprint import Place, places

_ORDER: tuple[FindingStatus, ...] = ("new", "unknown", "fixed", "kept")
MUCH_SMALLER = 0.5  # times the share of the step of HEAD
_UNCHECKED = ("not_checked", "error")


class _Group(Struct):
    """One finding in the runs of both sides, with the places of all of them."""

    id: str
    code: str
    places: set[Place]
    base: dict[int, Finding] = {}  # by index of the run
    head: dict[int, Finding] = {}

    def add(self, finding: Finding, side: str, run: int) -> None:
        getattr(self, side)[run] = finding
        self.places.update(places(finding))

    @property
    def counts(self) -> bool:
        found = (*self.base.values(), *self.head.values())
        return any(finding.saving is not None or finding.impact != "info" for finding in found)

    def alike(self, finding: Finding) -> bool:
        """Whether they share a place: the first of several may change from run to run. Without stacks, all match."""
        others = places(finding)
        return self.code == finding.code and (not others or not self.places or not self.places.isdisjoint(others))


def finding_changes(
    base: Sequence[Result], head: Sequence[Result], *, comparable: bool = True
) -> tuple[list[FindingChange], list[FindingChange]]:
    """The findings: new ones first, then unknown, fixed and kept ones, each sorted by value. And the notes, which do
    not count: findings without a price whose impact is not known, new or fixed, of comparable sides.

    With several runs per side, a new or fixed finding must be in more than half of them, because findings near a
    threshold come and go. If the sides are not `comparable`, a finding of one side is unknown on the other.
    """
    found = []
    for group in _groups(base, head):
        status, reason = _status(group, base, head, comparable=comparable)
        if status is not None:
            found.append((group.counts, *_change(group, base, head, status, reason)))
    ordered = sorted(found, key=lambda one: (_ORDER.index(one[1].status), one[2]))
    everything = [change for _, change, _ in ordered]
    told = [_small_in_base(_with_the_other_place(change, everything), base, head) for change in everything]
    counts = [of_value for of_value, _, _ in ordered]
    notes = [change for change, of_value in zip(told, counts, strict=True) if not of_value]
    return (
        [change for change, of_value in zip(told, counts, strict=True) if of_value],
        [note for note in notes if comparable and note.status in ("new", "fixed")],
    )


def _status(
    group: _Group, base: Sequence[Result], head: Sequence[Result], *, comparable: bool
) -> tuple[FindingStatus | None, str | None]:
    """What became of the finding, and why the other side is not known; None if too few runs have it."""
    if group.base and group.head:
        return "kept", None
    if 2 * len(group.head) > len(head):
        reason = _unknown(group.code, base, "BASE") if comparable else None
        return ("unknown" if reason or not comparable else "new"), reason
    if 2 * len(group.base) > len(base):
        reason = _unknown(group.code, head, "HEAD") if comparable else None
        return ("unknown" if reason or not comparable else "fixed"), reason
    return None, None


def _with_the_other_place(change: FindingChange, changes: Sequence[FindingChange]) -> FindingChange:
    """A new finding whose rule also has one that is no longer seen, or the other way round, may have moved: says so."""
    opposite = {"new": ("fixed", "BASE"), "fixed": ("new", "HEAD")}.get(change.status)
    if opposite is None or not change.place:
        return change
    status, side = opposite
    others = [one.place for one in changes if (one.code, one.status) == (change.code, status) and one.place]
    return replace(change, reason=f"{side} has it at {PurePath(others[0]).name}.") if others else change


def _small_in_base(change: FindingChange, base: Sequence[Result], head: Sequence[Result]) -> FindingChange:
    """A new finding whose saving is a much smaller share of the longer step of BASE, which may have left it out."""
    saving_us, steps = change.head_saving_us, [_mean_step_us(side) for side in (base, head)]
    if change.status != "new" or change.reason or saving_us is None or None in steps:
        return change
    before, after = (saving_us / step_us for step_us in steps if step_us)
    if impact_of_share(before) != "low" or (impact_of_share(after) == "low" and before > MUCH_SMALLER * after):
        return change
    return replace(change, share_of_base=round(before, 6))


def _mean_step_us(results: Sequence[Result]) -> float | None:
    steps = [result.step.typical_us for result in results if result.step.typical_us]
    return fmean(steps) if steps else None


def _groups(base: Sequence[Result], head: Sequence[Result]) -> list[_Group]:
    groups: list[_Group] = []
    for side, results in (("base", base), ("head", head)):
        for run, result in enumerate(results):
            exact = {group.id: group for group in groups}
            for finding in result.findings:
                if finding.id in exact:
                    exact[finding.id].add(finding, side, run)
            for finding in result.findings:
                if finding.id not in exact:
                    _near(groups, finding, side, run).add(finding, side, run)
    return groups


def _near(groups: list[_Group], finding: Finding, side: str, run: int) -> _Group:
    """The group at the same place that has no finding of this run yet, else a new one."""
    for group in groups:
        if group.alike(finding) and run not in getattr(group, side):
            return group
    groups.append(_Group(finding.id, finding.code, set()))
    return groups[-1]


def _unknown(code: str, results: Sequence[Result], side: str) -> str | None:
    """Why it is not known whether a side has a finding: its rule could not run on any run. None if it could."""
    checks = (check for result in results for check in result.checks)
    ran = any(check.code == code and check.status not in _UNCHECKED for check in checks)
    return None if ran else f"{side} did not check it."


def _change(
    group: _Group, base: Sequence[Result], head: Sequence[Result], status: FindingStatus, reason: str | None = None
) -> tuple[FindingChange, tuple[int, float, int, str, str]]:
    """The change and its sort key."""
    before, before_plan_us = _first(group.base, base)
    after, after_plan_us = _first(group.head, head)
    found, results = (group.head, head) if group.head else (group.base, base)
    run, finding = next(iter(found.items()))
    located = [*finding.locations, *(row.location for row in finding.evidence)]
    place = next((str(location) for location in located if location is not None), None)
    change = FindingChange(
        status,
        group.id,
        finding.code,
        name_among(finding, results[run].findings),
        place,
        before.impact if before else None,
        after.impact if after else None,
        before.saving.est_us if before and before.saving else None,
        after.saving.est_us if after and after.saving else None,
        reason,
        before_plan_us,
        after_plan_us,
    )
    return change, value_order(finding)


def _first(findings: dict[int, Finding], results: Sequence[Result]) -> tuple[Finding | None, float | None]:
    """The finding of the first run that has it, and what it saves in the plan of that run; None if it is not there."""
    for run, finding in findings.items():
        rows = (row for row in results[run].plan if row.finding == finding.id)
        return finding, next((row.saving_us for row in rows), None)
    return None, None
