"""Changes that `traceopt try` measured, as rows of an answer."""

from __future__ import annotations

from traceopt.assistants.answers import MeasuredChange
from traceopt.assistants.budget import milliseconds
from traceopt.reports.words import safe_text
from traceopt.reports.words.comparing import trial_words
from traceopt.result.trial import Attempt, TriedChange


def of_trial(trial: TriedChange) -> MeasuredChange:
    row = safe_text.cleaned(trial)
    return MeasuredChange(
        change=trial_words.name(row),
        verdict=row.verdict,
        predicted_ms=milliseconds(row.predicted_us),
        before_ms=milliseconds(row.before_us),
        after_ms=milliseconds(row.after_us),
        gain_share=_share(row.gain_share),
        low_share=_share(row.low_share),
        high_share=_share(row.high_share),
        losses=trial_words.losses(row) if row.losses is not None else None,
        reason=row.reason,
        output=row.output,
    )


def of_attempt(attempt: Attempt) -> MeasuredChange:
    row = safe_text.cleaned(attempt)
    shares = [us / row.before_us if row.before_us else None for us in (row.gain_us, row.gain_low_us, row.gain_high_us)]
    gain, low, high = map(_share, shares)
    return MeasuredChange(
        change=row.code,
        verdict=row.verdict,
        script=row.script,
        time=row.time,
        predicted_ms=milliseconds(row.predicted_us),
        before_ms=milliseconds(row.before_us),
        after_ms=milliseconds(row.before_us - row.gain_us),
        gain_share=gain,
        low_share=low,
        high_share=high,
    )


def _share(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
