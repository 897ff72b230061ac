"""Merges the answers of all ranks into one document: the lowest rank's, with every rank's row and findings.

The document does not depend on the order of the answers: wherever one of several ranks has to be chosen, it is the
lowest. Of processes without a rank, those that train come before those that only infer. Only the row, the findings and
the summary of each rank stay in memory, and the spans of a few, so that a thousand ranks fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.ranks.rank_summary import RankSummary
from traceopt.document.decision import Decision
from traceopt.document.rank_answer import DocumentPart, RankAnswer, ViewPart
from traceopt.errors import one_line
from traceopt.result.document import Check, CheckStatus, Result
from traceopt.result.finding import Finding, value_order
from traceopt.result.sections.companions import StartUpSection
from traceopt.result.sections.rank_rows import RankRow
from traceopt.result.sections.run import TraceFile
from traceopt.result.sections.work_rows import PlanRow
from traceopt.rules.fingerprint import with_ids

MOST_KEPT = 32  # ranks whose steps and spans stay in memory

_Order = tuple[bool, int, bool, int]  # unknown ranks last; processes that train first; then by index among the files


class _RankEntry(Struct, frozen=True):
    row: RankRow
    paths: list[str]
    files: list[TraceFile]


_RATING: dict[CheckStatus, int] = {"found": 0, "error": 1}  # decides which rank's answer the document shows


class _SameFinding(Struct):
    """A finding at one place: the finding of the lowest rank, and all ranks that have it."""

    order: tuple[_Order, int]  # order of the rank, and index among the rank's findings
    finding: Finding
    ranks: set[int]


class _Shown(Struct, frozen=True):
    """The answer of the lowest rank so far. Its findings are merged last, as the document shows them."""

    order: _Order
    answer: RankAnswer
    part: DocumentPart


class MergedRun:
    """Merges the answers of ranks one by one."""

    def __init__(self) -> None:
        self._shown: _Shown | None = None
        self._rows: dict[int, _RankEntry] = {}
        self._views: dict[int, ViewPart] = {}
        self._summaries: dict[int, RankSummary] = {}
        self._warnings: dict[int, list[str]] = {}
        self._groups: dict[tuple[str, str, int], _SameFinding] = {}
        self._checks: dict[str, tuple[tuple[bool, int, _Order], Check]] = {}
        self._start_ups: dict[int, StartUpSection] = {}
        self._texts: dict[str, str] = {}

    def add(self, index: int, data: bytes) -> str | None:
        """Adds the result of the file with this index. Returns why nothing could be read of it, if so."""
        answer = RankAnswer.of(data)
        self._warnings[index] = answer.warnings
        if answer.summary is None:
            return answer.problem
        part = answer.part()
        rank = part.run.shown_rank
        order = (rank is None, rank or 0, not answer.summary.trains, index)
        (row,) = part.ranks
        self._rows[index] = _RankEntry(row, part.run.paths, part.run.files)
        self._views[index] = answer.view()
        if len(self._views) > MOST_KEPT:
            del self._views[max(self._views, key=self._waits_most)]
        self._summaries[index] = self._shared(answer.summary)
        if part.start_up is not None:
            self._start_ups[index] = part.start_up
        others = [_Shown(order, answer, part), *([] if self._shown is None else [self._shown])]
        self._shown = min(others, key=lambda one: one.order)
        for other in others:
            if other is not self._shown:
                self._add_findings(other.order, other.part.findings, other.part.checks)
        return None

    @property
    def most_exposed_us(self) -> float:
        """The spans of another rank with more exposed communication would not be kept."""
        return max(map(self._waits_most, self._views))[0] if len(self._views) == MOST_KEPT else math.inf

    def warn(self, index: int, warning: str) -> None:
        """Adds a warning about a rank that is left out."""
        self._warnings.setdefault(index, []).append(warning)

    @property
    def warnings(self) -> list[str]:
        told = [warning for _, warnings in sorted(self._warnings.items()) for warning in warnings]
        return (
            told
            + [
                one_line(f"{self._summaries[index].path}: this process only infers, so its fixes are left out")
                for index in self._left_out
            ]
            + [
                one_line(
                    f"{entry.row.path}: this trace cannot be judged, so findings that no other rank has are left out"
                )
                for _, entry in sorted(self._rows.items())
                if entry.row.rank in self._unjudged
            ]
        )

    @property
    def _unjudged(self) -> set[int]:
        """Ranks whose trace cannot be judged, as a damaged one, while that of the shown rank can."""
        shown = None if self._shown is None else self._shown.part.ranks[0]
        if shown is None or shown.verdict == "unusable":
            return set()
        rows = [entry.row for entry in self._rows.values()]
        return {row.rank for row in rows if row.rank is not None and row.verdict == "unusable"}

    @property
    def _left_out(self) -> list[int]:
        """Processes without a rank that only infer, next to some that train: their steps are other steps."""
        if not any(summary.trains for summary in self._summaries.values()):
            return []
        every = sorted(self._summaries.items())
        return [index for index, summary in every if summary.rank is None and not summary.trains]

    @property
    def summaries(self) -> list[RankSummary]:
        """In the order of the files."""
        return [summary for _, summary in sorted(self._summaries.items())]

    @property
    def without_whole(self) -> int | None:
        """The index of the lowest rank if its document is not whole."""
        shown = self._shown
        return shown.order[3] if shown is not None and not shown.answer.is_whole else None

    @property
    def shown(self) -> Result | None:
        """The document of the lowest rank, as it decides alone; None if nothing could be read."""
        return None if self._shown is None else self._shown.answer.whole()

    def view(self, rank: int | None) -> ViewPart | None:
        """The steps and spans of a rank; None if they were not kept."""
        return next((view for index, view in self._views.items() if self._rows[index].row.rank == rank), None)

    def _waits_most(self, index: int) -> tuple[float, int]:
        """Orders ranks: the one for which the others wait has little exposed communication itself."""
        return self._rows[index].row.exposed_communication_us or 0.0, index

    @property
    def refuted(self) -> dict[frozenset[str], Decision]:
        """What that rank decides if other ranks refute the fixes of these rules."""
        return {} if self._shown is None else {one.codes: one.decision for one in self._shown.answer.refuted}

    def around(self, lowest: Result) -> Result:
        """The document of the lowest rank with the findings of all ranks, before the ranks are compared."""
        if self._shown is not None:
            self._add_findings(self._shown.order, lowest.findings, lowest.checks)
        rows = [row for _, row in sorted(self._rows.items())]
        run = replace(
            lowest.run,
            paths=[path for row in rows for path in row.paths],
            ranks=sorted({row.row.rank for row in rows if row.row.rank is not None}),
            files=[file for row in rows for file in row.files],
        )
        return replace(
            lowest,
            run=run,
            findings=plan_first(self._findings(), lowest.plan),
            checks=[self._checks[check.code][1] for check in lowest.checks],
            ranks=[row.row for row in rows],
            start_up=max((one for _, one in sorted(self._start_ups.items())), key=_own_start_up_us, default=None),
        )

    def _add_findings(self, order: _Order, findings: Sequence[Finding], checks: Sequence[Check]) -> None:
        seen: Counter[tuple[str, str]] = Counter()
        for place, finding in enumerate(findings):
            where = (finding.code, str(finding.locations[0]) if finding.locations else "")
            key = (*where, seen[where])
            seen[where] += 1
            group = self._groups.get(key)
            if group is None:
                self._groups[key] = _SameFinding((order, place), finding, set(finding.ranks))
                continue
            group.ranks |= set(finding.ranks)
            if (order, place) < group.order:
                group.order, group.finding = (order, place), finding
        for check in checks:
            rating = (_only_infers(order), _RATING.get(check.status, len(_RATING)), order)
            if check.code not in self._checks or rating < self._checks[check.code][0]:
                self._checks[check.code] = (rating, check)

    def _findings(self) -> list[Finding]:
        """Merges the groups of each rule: a finding without a place is the same as another rank's, so one is enough."""
        merged: dict[str, list[_SameFinding]] = {}
        left_out, unjudged = bool(self._left_out), self._unjudged
        for group in sorted(self._groups.values(), key=lambda group: group.order):
            if (left_out and _only_infers(group.order[0])) or (group.ranks and group.ranks <= unjudged):
                continue
            of_rule = merged.setdefault(group.finding.code, [])
            known = next((other for other in of_rule if _same(other, group)), None)
            if known is None:
                of_rule.append(replace(group, ranks=set(group.ranks)))
            else:
                known.ranks |= group.ranks
        groups = sorted((group for of_rule in merged.values() for group in of_rule), key=lambda group: group.order)
        return with_ids([replace(group.finding, ranks=sorted(group.ranks - unjudged)) for group in groups])

    def _shared(self, summary: RankSummary) -> RankSummary:
        """The summary with texts shared between ranks, so that they are in memory only once."""
        return replace(
            summary,
            step_names=[self._text(name) for name in summary.step_names],
            collectives=replace(summary.collectives, labels=[self._text(text) for text in summary.collectives.labels]),
        )

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)


def plan_first(findings: Iterable[Finding], plan: Sequence[PlanRow]) -> list[Finding]:
    """The findings of the plan in its order, then the others by their value."""
    place = {row.finding: number for number, row in enumerate(plan)}
    return sorted(findings, key=lambda finding: (place.get(finding.id, len(place)), value_order(finding)))


def _own_start_up_us(start_up: StartUpSection) -> float:
    """All ranks end their first step at about the same time: the slowest one waits least for the others."""
    return start_up.us - sum(part.us for part in start_up.parts if part.name == "process_group")


def _only_infers(order: _Order) -> bool:
    unknown_rank, _, infers, _ = order
    return unknown_rank and infers


def _same(a: _SameFinding, b: _SameFinding) -> bool:
    """Whether two groups of a rule are the same finding: from different ranks, and one of them names no place."""
    return a.order[0] != b.order[0] and (not a.finding.locations or not b.finding.locations)
