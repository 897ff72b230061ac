"""The document of `traceopt whatif`: the replayed step before and after some changes."""

from __future__ import annotations

from msgspec import Struct

from traceopt.result.encoding.serialization import to_indented_json


class WhatIfPart(Struct, frozen=True):
    """A part of the typical step, as in the breakdown. `after_us`: None if the replay does not explain the saving."""

    name: str
    label: str
    before_us: float
    after_us: float | None


class WhatIfFix(Struct, frozen=True):
    """A finding whose fix is applied, on all ranks that have it: what it saves alone, and after the fixes above it.
    `capped`: the replay saves more, but only so much was measured of the cost.
    """

    code: str
    title: str
    place: str | None
    alone_us: float
    saving_us: float
    capped: bool


class ReplayCheck(Struct, frozen=True):
    """How well the unchanged steps are replayed, as shares of the step.

    `missed_share`: the error of the replayed step. `predicted_share`: the error of steps that are predicted from the
    others, `usual_share` the error of "as long as the others"; None if too few steps are alike. `blocked_share`: the
    time in slow calls for which the trace shows no reason.
    """

    missed_share: float
    predicted_share: float | None
    usual_share: float | None
    blocked_share: float


class WhatIf(Struct, frozen=True):
    """The replayed step without and with the changes; `limit_before` and `limit_after` name the part that limits it.

    All times describe the typical step. For one trace, the fixes are in the order of the report, and step, parts and
    savings are those of `traceopt analyze`. `replay_error_share` is the largest error of a replay
    without a change, and `replay_check` says what it consists of. `inferred_waits` of the `waits` were inferred, not
    recorded.

    With several ranks, the check shows the rank with the largest error, the step is the median over them, and the parts
    come from the first; `meetings` is the number of collectives that were replayed jointly.
    """

    path: str
    ranks: int
    meetings: int
    steps: int
    changes: list[str]
    fixes: list[WhatIfFix]
    before_us: float
    after_us: float
    saving_us: float
    saving_share: float
    limit_before: str
    limit_after: str | None
    parts: list[WhatIfPart]
    replay_error_share: float
    replay_check: ReplayCheck
    trusted: bool
    waits: int
    inferred_waits: int
    warnings: list[str] = []

    def to_json(self) -> bytes:
        return to_indented_json(self)
