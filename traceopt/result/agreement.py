"""How well predicted gains agree with those that `traceopt try` measured."""

from __future__ import annotations

from msgspec import Struct


class Agreement(Struct, frozen=True):
    """Predicted against measured gains of one rule; shares are of the step without the change.

    An error is the predicted minus the measured gain. `covered`: the attempts whose measured interval touches the range
    of the prediction.
    """

    code: str
    attempts: int
    median_error_share: float
    median_absolute_error_share: float
    covered: int
