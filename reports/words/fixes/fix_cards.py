"""The findings as numbered cards, and their words: what a fix needs, where it is, which ranks have it."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from traceopt.reports.words.safe_text import joined
from traceopt.result.document import Result
from traceopt.result.finding import Confidence, Finding, Location, name_among
from traceopt.result.sections.work_rows import PlanRow
from traceopt.result.words import quantities
from traceopt.result.words.message import Message
from traceopt.result.words.rank_lists import ranks_text

MINOR_SHARE = 0.01  # of the step: fixes outside the plan that save less are listed in one line each
CAPPED = "limited by measured costs"  # of a saving: the replay gives more
IMPACT_WORDS = {"high": "High impact", "medium": "Medium impact", "low": "Low impact", "info": "Info"}
CONFIDENCE_WORDS: dict[Confidence, str] = {
    "high": "measured idle time with a known cause",
    "medium": "modeled, or the range begins at 0",
    "low": "the cause is inferred; check it before you rely on it",
}
HOW_SURE = "Confidence: how sure it is that a fix saves time."
# What orders the plan (rules/plan.py).
PLAN_ORDER = (
    "Each row saves this after those above it, so the savings add up. The largest come first, or the surer of two that "
    "are close. One that may be nothing counts half, and rare costs come last."
)


class Card(Struct, frozen=True):
    """A finding and its number in the list; None if its saving is not estimated.

    `row`: its row of the plan, None if it is not in the plan. `needs`: the numbers of the fixes without which it saves
    little. `instead_of`: the numbers of the fixes above that treat the same cause. `same_edit`: the number of the fix
    above whose edit also makes this fix.
    """

    finding: Finding
    number: int | None
    anchor: str
    row: PlanRow | None = None
    needs: list[int] = []
    instead_of: list[int] = []
    same_edit: int | None = None


def cards(result: Result) -> list[Card]:
    """Numbers the findings that have a saving. Every anchor is unique and safe in a URL fragment."""
    numbered: list[Card] = []
    seen: dict[str, int] = {}
    number = 0
    rows = {row.finding: (place, row) for place, row in enumerate(result.plan, 1)}
    number_of: dict[int, int] = {}  # by row of the plan, from 1
    for finding in result.findings:
        if finding.saving is not None:
            number += 1
        base = re.sub(r"[^A-Za-z0-9_.-]", "-", finding.code)
        seen[base] = seen.get(base, 0) + 1
        anchor = base if seen[base] == 1 else f"{base}-{seen[base]}"
        place_in_plan, row = rows.get(finding.id, (0, None))
        number_of[place_in_plan] = number
        needs = [number_of[other] for other in row.needs if other in number_of] if row is not None else []
        call = None if row is None or row.same_edit is None else number_of.get(row.same_edit)
        card = Card(finding, None if finding.saving is None else number, anchor, row, needs, same_edit=call)
        if row is None and finding.saving is not None:
            card = replace(card, instead_of=_same_cause(finding, numbered, result.run.shown_rank))
        numbered.append(card)
    return numbered


def _same_cause(finding: Finding, before: list[Card], shown_rank: int | None) -> list[int]:
    """The fixes that treat the same cause: planned ones, or those of the same ranks, if the plan is of another rank."""
    found = []
    for card in before:
        other = card.finding
        shared = finding.code in other.shares_cause_with or other.code in finding.shares_cause_with
        elsewhere = bool(other.ranks) and shown_rank not in other.ranks and set(finding.ranks) <= set(other.ranks)
        if shared and card.number is not None and (card.row is not None or elsewhere):
            found.append(card.number)
    return found


class Groups(Struct, frozen=True):
    """The cards as reports show them, one group after the other."""

    above: list[Card]  # of the comparison of ranks, each saves more than the first fix of the plan
    plan: list[Card]
    rest: list[Card]  # with a saving, not in the plan
    minor: list[Card]  # the same, but saving too little to say more of them
    noted: list[Card]  # without a saving, the urgent ones first

    @property
    def urgent(self) -> list[Card]:
        """Those that come before the plan: the run ends by them, or they take more of it than the steps."""
        return [card for card in self.noted if card.finding.impact == "high"]

    @property
    def later(self) -> list[Card]:
        return self.noted[len(self.urgent) :]


def groups(result: Result) -> Groups:
    every = cards(result)
    plan = [card for card in every if card.row is not None]
    first = min((card.number for card in plan if card.number is not None), default=0)
    others = [card for card in every if card.row is None]
    below = [card for card in others if card.number is not None and card.number >= first]
    return Groups(
        above=[card for card in others if card.number is not None and card.number < first],
        plan=plan,
        rest=[card for card in below if not _is_minor(card)],
        minor=[card for card in below if _is_minor(card)],
        noted=sorted((card for card in others if card.number is None), key=lambda card: card.finding.impact != "high"),
    )


def _is_minor(card: Card) -> bool:
    """Whether a fix saves next to nothing, alone and after the plan."""
    saving = card.finding.saving
    if saving is None or saving.share >= MINOR_SHARE:
        return False
    step_us = saving.est_us / saving.share if saving.share > 0 else 0.0
    return (card.finding.after_plan_us or 0.0) <= MINOR_SHARE * step_us


def name(finding: Finding, result: Result) -> str:
    """The finding's title; with its function, if there is another of this title."""
    return name_among(finding, result.findings)


def title(card: Card, result: Result) -> str:
    """The finding's name, with the ranks that have it unless all do."""
    only = only_on(card.finding, result)
    return f"{name(card.finding, result)} ({only})" if only else name(card.finding, result)


def needs(card: Card) -> str:
    """How the fix depends on the plan, and what limits its saving; empty if nothing does.

    "needs fixes 1 and 2": without them this one saves little. "same edit as fix 2": one edit makes both.
    "limited by measured costs": the replay saves more. "same cause as fix 2; with it instead, the plan saves 9 ms
    less", "saves 0.5 ms after the plan": why it is not in the plan.
    """
    if card.row is None:
        return _why_not_planned(card)
    words = []
    if card.needs:
        words.append(f"needs {_fixes(card.needs)}")
    if card.same_edit is not None:
        words.append(f"same edit as fix {card.same_edit}")
    if card.row.capped:
        words.append(CAPPED)
    return "; ".join(words)


def _why_not_planned(card: Card) -> str:
    if _is_minor(card):
        return ""
    if card.instead_of:
        return f"same cause as {_fixes(card.instead_of)}{_instead(card.finding.instead_lost_us)}"
    after_us = card.finding.after_plan_us
    if after_us is None:
        return ""
    return f"saves {quantities.estimated(after_us) if after_us > 0 else 'nothing'} after the plan"


def _instead(lost_us: float | None) -> str:
    if lost_us is None:
        return ""
    return f"; with it instead, the plan saves {f'{quantities.estimated(lost_us)} less' if lost_us > 0 else 'as much'}"


def _fixes(numbers: list[int]) -> str:
    """ "fix 2", "fixes 1 and 2"."""
    return ("fix " if len(numbers) == 1 else "fixes ") + joined([str(number) for number in numbers])


MINOR = "Each saves less than 1% of the step"
ACROSS_RANKS = "From comparing the ranks"


def plan_heading(result: Result) -> str:
    """ "The plan for rank 0": the words above the plan where other fixes stand above it."""
    shown = result.run.shown_rank
    return "The plan" if shown is None else f"The plan for rank {shown}"


def fixes_heading(result: Result) -> str:
    """How many fixes there are, and whether they are a plan."""
    found = groups(result)
    numbered = len(found.above) + len(found.plan) + len(found.rest) + len(found.minor)
    if len(found.plan) > 1 and not found.above:
        return f"The plan: {len(found.plan)} fixes in this order"
    if numbered:
        return "1 fix" if numbered == 1 else f"{numbered} fixes"
    if found.noted:
        return f"{quantities.counted(len(found.noted), 'finding')}, savings not estimated"
    return "Fixes: not assessed" if result.quality.verdict == "unusable" else "No fix found"


def unplanned(result: Result) -> str:
    """The words above fixes that are not in the plan."""
    return "Not in the plan: alternatives, and fixes that add little" if result.plan else "What each fix saves alone"


def place(finding: Finding) -> str | None:
    located = location(finding)
    return None if located is None else located.shown


def location(finding: Finding) -> Location | None:
    """The finding's first place in the user's code, or in its evidence. None for a setting of the process."""
    if finding.fix.is_setting:
        return None
    evidence = [row.location for row in finding.evidence]
    return next((item for item in [*finding.locations, *evidence] if item is not None), None)


def only_on(finding: Finding, result: Result) -> str | None:
    """The finding's ranks, if not all ranks have it and its title does not say which."""
    ranks = finding.ranks
    says_which = Message(finding.title).has("rank")
    if not ranks or len(ranks) >= len(result.run.ranks) or says_which:
        return None
    return ranks_text(ranks)


def seen_on(finding: Finding, result: Result) -> str:
    """ "all ranks", "rank 3"."""
    everywhere = len(finding.ranks) > 1 and len(finding.ranks) == len(result.run.ranks)
    return "all ranks" if everywhere else ranks_text(finding.ranks)


def first_card(result: Result) -> Card | None:
    """The fix to start with; None if there is none, or if another recording comes first."""
    if result.quality.record_again:
        return None
    urgent = groups(result).urgent
    return urgent[0] if urgent else next((card for card in cards(result) if card.number == 1), None)


def combined_fixes(result: Result) -> str | None:
    """ "the top 3 fixes", "the top fix", "fixes 1, 2 and 4" or "the fixes"; None without a combination."""
    if result.combined is None or not result.combined.codes:
        return None
    numbers = [card.number for card in cards(result) if card.row is not None and card.number is not None]
    if not numbers:
        return "the fixes"
    if numbers == list(range(1, len(numbers) + 1)):
        return "the top fix" if len(numbers) == 1 else f"the top {len(numbers)} fixes"
    return _fixes(numbers)
