"""The text output of `traceopt whatif`: the step before and after, what limits it, and its parts."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from traceopt.reports.words import safe_text, step_words
from traceopt.reports.words.fixes.fix_cards import CAPPED
from traceopt.result.words import quantities

if TYPE_CHECKING:
    from traceopt.result.what_if import WhatIf, WhatIfFix, WhatIfPart

_COLUMNS = 80  # longer words, such as paths, have lines of their own
_LABEL, _SAVINGS = 9, 24  # columns before the texts
_SMALLEST_SHARE = 0.001  # of the step; smaller parts are left out
_NOTABLE_SHARE = 0.01


def render_whatif(document: WhatIf) -> str:
    """A few lines of plain text."""
    lines = [
        *_wrapped(f"What if: {', '.join(safe_text.clean(change) for change in document.changes)}", _LABEL),
        *_wrapped(f"Trace:   {safe_text.clean(document.path)}, {_extent(document)}", _LABEL),
        "",
        *_wrapped(_step(document), _LABEL),
        *_limits(document),
        "",
        *_parts(document),
    ]
    if len(document.fixes) > 1 or any(fix.capped for fix in document.fixes):
        lines += ["", *_fixes(document)]
    trust = [line for sentence in _trust(document) for line in _wrapped(sentence, 0)]
    return safe_text.without_commands("\n".join([*lines, "", *trust]) + "\n")


def _wrapped(text: str, indent: int) -> list[str]:
    """`text` in lines, all but the first indented."""
    return textwrap.wrap(text, _COLUMNS, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)


def _extent(document: WhatIf) -> str:
    steps = quantities.counted(document.steps, "step")
    if document.ranks == 1:
        return steps
    return f"{document.ranks} ranks, {steps}, {quantities.counted(document.meetings, 'collective')} entered together"


def _step(document: WhatIf) -> str:
    after = quantities.as_precise_as(document.after_us, max(abs(document.saving_us), 1.0))
    change = "less" if document.saving_us >= 0 else "more"
    saved = f"{quantities.estimate(abs(document.saving_us))} {change}, {quantities.percent(abs(document.saving_share))}"
    return f"Step:    {quantities.ms_of_us(document.before_us)} → about {after} ({saved})"


def _limits(document: WhatIf) -> list[str]:
    before, after = step_words.limit(document.limit_before), step_words.limit(document.limit_after)
    if before is None or after is None:
        return []
    return [f"Limit:   still {after}" if before == after else f"Limit:   {before} now, {after} then"]


def _parts(document: WhatIf) -> list[str]:
    least = _SMALLEST_SHARE * document.before_us
    parts = [part for part in document.parts if max(part.before_us, part.after_us or 0.0) >= least]
    title = "Part of the typical step"
    width = max(len(title), *(len(part.label) for part in parts))
    head = f"{title:{width}}  {'before':>10}  {'after':>10}"
    return [
        head,
        *(f"{part.label:{width}}  {quantities.ms_of_us(part.before_us):>10}  {_after(part):>10}" for part in parts),
    ]


def _after(part: WhatIfPart) -> str:
    return "unknown" if part.after_us is None else quantities.ms_of_us(part.after_us)


def _fixes(document: WhatIf) -> list[str]:
    """What each fix saves, and its title."""
    rows = (
        f"{_saved(fix.saving_us):>10}  {_saved(fix.alone_us):>10}  {fix.code} {safe_text.prose(_title(fix))}"
        for fix in document.fixes
    )
    heading = f"{'saves':>10}  {'alone':>10}  fix (saves: after those above)"
    return [heading, *(line for row in rows for line in _wrapped(row, _SAVINGS))]


def _saved(us: float) -> str:
    return quantities.estimate(max(0.0, us))


def _title(fix: WhatIfFix) -> str:
    where = f" ({fix.place})" if fix.place is not None else ""
    return f"{fix.title}{where}{f', {CAPPED}' if fix.capped else ''}"


def _trust(document: WhatIf) -> list[str]:
    check = document.replay_check
    missed, waits = quantities.percent(check.missed_share), f"{document.inferred_waits:,} of {document.waits:,}"
    lines = [
        f"How far to trust this: replayed without changes, the step is {missed} off the measured one; "
        f"{waits} waits are inferred."
    ]
    if check.predicted_share is None or check.usual_share is None:
        lines.append("Too few steps are alike to predict one from the others.")
    else:
        predicted, usual = quantities.percent(check.predicted_share), quantities.percent(check.usual_share)
        lines.append(
            f"Each step, predicted from a replay of the others, is off by {predicted} "
            f"(by {usual} if predicted as their median)."
        )
    if check.blocked_share >= _NOTABLE_SHARE:
        blocked = quantities.percent(check.blocked_share)
        lines.append(
            f"Slow calls for which the trace shows no reason take {blocked} of the step. The replay keeps them."
        )
    if not document.trusted:
        lines.append(
            "The replay is too far off to trust these numbers: the trace lacks something that the step waited for."
        )
    return [*lines, *(f"Warning: {safe_text.prose(warning)}" for warning in document.warnings)]
