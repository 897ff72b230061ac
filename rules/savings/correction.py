"""What earlier trials on the same machine, by `traceopt try` or `traceopt tune`, say of predictions of a rule."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from traceopt.result.trial import Attempt
from traceopt.result.words.quantities import counted

LATEST = 10  # trials that count: scripts, drivers and rules change
CLEAR = 0.5  # of the prediction: a trial whose gain is less exact says nothing about it
MOST_RATIO = 2.0  # a trial says at most that a fix gains this many times what was predicted; and at least nothing
PRIOR = 2  # trials that confirm the prediction, added to those that were made: a single one may be chance


class Correction(Struct, frozen=True):
    """`factor` multiplies predictions. Of the trials, the measured gains were `least` to `most` times the predictions,
    and `usual` times in the median.
    """

    factor: float = 1.0
    least: float = 1.0
    most: float = 1.0
    usual: float = 1.0
    trials: int = 0

    def of(self, low: float, expected: float, high: float) -> tuple[float, float, float]:
        """A corrected saving with its range, which also covers what the trials gained."""
        return (
            min(self.factor * low, self.least * expected),
            self.factor * expected,
            max(self.factor * high, self.most * expected),
        )

    @property
    def words(self) -> str:
        """For the basis of a saving."""
        tried = counted(self.trials, "trial")
        return (
            f" {tried} of this rule on this machine gained {self.usual:.2f} times what was predicted, so the saving is "
            f"multiplied by {self.factor:.2f}."
        )


def correction_of(attempts: Sequence[Attempt], code: str) -> Correction:
    """The correction for a rule. `attempts`: those on the same machine, the latest last."""
    ratios = [_ratio(attempt) for attempt in attempts if attempt.code == code and _is_clear(attempt)][-LATEST:]
    if not ratios:
        return Correction()
    usual = median(ratios)
    factor = (len(ratios) * usual + PRIOR) / (len(ratios) + PRIOR)
    return Correction(factor, min(ratios), max(ratios), usual, len(ratios))


def _ratio(attempt: Attempt) -> float:
    """The measured gain as a multiple of the prediction without any correction."""
    return min(max(0.0, attempt.gain_us * attempt.correction / attempt.predicted_us), MOST_RATIO)


def _is_clear(attempt: Attempt) -> bool:
    uncertain_us = (attempt.gain_high_us - attempt.gain_low_us) / 2
    return attempt.correction > 0 and 0 <= uncertain_us <= CLEAR * attempt.predicted_us
