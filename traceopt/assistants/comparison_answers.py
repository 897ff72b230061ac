"""The answers about two sides: compared runs, and a step that was replayed with changes."""

from __future__ import annotations

from traceopt.assistants.answers import UNTRUSTED, CompareAnswer, ComparedPart, WhatIfAnswer
from traceopt.assistants.budget import milliseconds
from traceopt.reports.words import safe_text, step_words
from traceopt.reports.words.comparing import comparison_words
from traceopt.reports.words.fixes.fix_cards import CAPPED
from traceopt.result.comparison import Comparison, FindingChange
from traceopt.result.what_if import WhatIf, WhatIfFix
from traceopt.result.words.quantities import estimated

LEAST_SHARE = 0.005  # of the step; smaller parts are left out


def compared(comparison: Comparison) -> CompareAnswer:
    document = safe_text.cleaned(comparison)
    step = document.step
    parts = sorted(comparison_words.shown_parts(document), key=lambda part: -abs(part.change_us or 0.0))
    return CompareAnswer(
        untrusted_text=UNTRUSTED,
        verdict=" ".join(text for text in (document.verdict, comparison_words.unusual_steps(document)) if text),
        outcome=step.verdict,
        base_ms=milliseconds(step.base_us),
        head_ms=milliseconds(step.head_us),
        change_share=step.change_share,
        low_share=step.low_share,
        high_share=step.high_share,
        basis=comparison_words.basis(document),
        explanation=document.explanation,
        findings=[
            _finding(finding)
            for finding in (*document.findings, *document.unestimated)
            if finding.status in ("new", "fixed")
        ],
        breakdown=[_part(part.label, part.base_us, part.head_us) for part in parts],
        notes=[*document.differences, *document.notes],
    )


def what_if_answer(what_if: WhatIf) -> WhatIfAnswer:
    document = safe_text.cleaned(what_if)
    least_us = LEAST_SHARE * document.before_us
    parts = sorted(document.parts, key=lambda part: -abs((part.after_us or 0.0) - part.before_us))
    return WhatIfAnswer(
        untrusted_text=UNTRUSTED,
        before_ms=milliseconds(document.before_us) or 0.0,
        after_ms=milliseconds(document.after_us) or 0.0,
        saving_share=round(document.saving_share, 4),
        limit_before=step_words.limit(document.limit_before),
        limit_after=step_words.limit(document.limit_after),
        trusted=document.trusted,
        replay_error_share=document.replay_error_share,
        fixes=[_fix(fix) for fix in document.fixes],
        breakdown=[
            _part(part.label, part.before_us, part.after_us)
            for part in parts
            if part.after_us is not None and max(part.before_us, part.after_us) >= least_us
        ],
        notes=document.warnings,
    )


def _fix(fix: WhatIfFix) -> str:
    saves, alone = (estimated(max(0.0, us)) for us in (fix.saving_us, fix.alone_us))
    where = f", {fix.place}" if fix.place else ""
    return (
        f"{fix.code} {fix.title}{where}: {saves} after those above, {alone} alone{f', {CAPPED}' if fix.capped else ''}"
    )


def _part(label: str, base_us: float, head_us: float) -> ComparedPart:
    return ComparedPart(label, milliseconds(base_us) or 0.0, milliseconds(head_us) or 0.0)


def _finding(finding: FindingChange) -> str:
    """ "No longer seen: DL001 Load data in worker processes, train.py:40"."""
    place = f", {finding.place}" if finding.place else ""
    return f"{comparison_words.GROUP_WORDS[comparison_words.group_of(finding)]}: {finding.code} {finding.title}{place}"
