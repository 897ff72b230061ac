"""The document of `traceopt whatif`: the replayed step before and after some changes."""

from __future__ import annotations

from msgspec import Struct, field

from traceopt.result.serialization import to_indented_json


class WhatIfPart(Struct, frozen=True):
    """A part of the mean step, as in the breakdown."""

    name: str
    label: str
    before_us: float
    after_us: float


class WhatIfFix(Struct, frozen=True):
    """A finding whose fix is made, on all ranks that have it. `alone_us`: what it alone gives back in the replay."""

    code: str
    title: str
    alone_us: float


class WhatIf(Struct, frozen=True):
    """The replayed step without and with the changes; `limit`: the part that limits it.

    Parts are of the mean step, the step is the median one. `replay_error_share`: how far a replay without a change is
    off; None where there was nothing to replay. `inferred_waits` of `waits` were not recorded but inferred.

    Of several ranks the step is the median over them, the parts are those of the first; `meetings` is the number of
    collectives that they were replayed to enter together.
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
    limit_after: str
    parts: list[WhatIfPart]
    replay_error_share: float | None
    trusted: bool
    waits: int
    inferred_waits: int
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> bytes:
        return to_indented_json(self)
