"""`traceopt whatif` in text: the step before and after, what limits it then, and what it consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceopt.reports.words import quantities, sentences

if TYPE_CHECKING:
    from traceopt.result.what_if import WhatIf

_PARTS_SHOWN_SHARE = 0.001  # of the step; smaller parts are left out


def render_whatif(document: WhatIf) -> str:
    """Some lines of plain text."""
    lines = [
        f"What if: {', '.join(quantities.clean(change) for change in document.changes)}",
        f"Trace:   {quantities.clean(document.path)}, {_extent(document)}",
        "",
        _step(document),
        *_limits(document),
        "",
        *_parts(document),
    ]
    if len(document.fixes) > 1:
        lines += ["", *_alone(document)]
    return quantities.without_commands("\n".join([*lines, "", *_trust(document)]) + "\n")


def _extent(document: WhatIf) -> str:
    steps = quantities.counted(document.steps, "step")
    if document.ranks == 1:
        return steps
    return f"{document.ranks} ranks, {steps}, {quantities.counted(document.meetings, 'collective')} entered together"


def _step(document: WhatIf) -> str:
    after = quantities.as_precise_as(document.after_us, max(abs(document.saving_us), 1.0))
    change = "less" if document.saving_us >= 0 else "more"
    saved = f"{quantities.estimate(abs(document.saving_us))} {change}, {quantities.percent(abs(document.saving_share))}"
    return f"Step:    {quantities.ms(document.before_us)} → about {after} ms ({saved})"


def _limits(document: WhatIf) -> list[str]:
    before, after = sentences.limit(document.limit_before), sentences.limit(document.limit_after)
    if before is None or after is None:
        return []
    return [f"Limit:   still {after}" if before == after else f"Limit:   {before}, then {after}"]


def _parts(document: WhatIf) -> list[str]:
    least = _PARTS_SHOWN_SHARE * document.before_us
    shown = [part for part in document.parts if max(part.before_us, part.after_us) >= least]
    width = max((len(part.label) for part in shown), default=0)
    head = f"{'Part of the mean step':{width}}  {'before':>10}  {'after':>10}"
    return [
        head,
        *(
            f"{part.label:{width}}  {quantities.ms(part.before_us):>10}  {quantities.ms(part.after_us):>10}"
            for part in shown
        ),
    ]


def _alone(document: WhatIf) -> list[str]:
    return [
        "Alone they give back:",
        *(
            f"  {fix.code}  {quantities.estimate(max(0.0, fix.alone_us))}  {quantities.prose(fix.title)}"
            for fix in document.fixes
        ),
    ]


def _trust(document: WhatIf) -> list[str]:
    if document.replay_error_share is None:
        return ["The file has no launches of the GPU's work: only the host was replayed."]
    error = f"A replay without a change is {quantities.percent(document.replay_error_share)} off the recorded steps"
    waits = f"{document.inferred_waits:,} of {document.waits:,} waits are inferred"
    lines = [f"{error}; {waits}."]
    if not document.trusted:
        lines.append("That is too much to trust these numbers: part of what happened is not in the file.")
    return [*lines, *(f"Warning: {quantities.prose(warning)}" for warning in document.warnings)]
