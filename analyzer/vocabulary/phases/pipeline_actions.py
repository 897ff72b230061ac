"""The names of what a pipeline stage does with a micro-batch, as torch.distributed.pipelining annotates it."""

from __future__ import annotations

import re
from typing import Literal, cast

from msgspec import Struct

ActionKind = Literal["F", "B", "I", "W"]

# "Forward 3", "Backward 3" (GPipe, 1F1B); "PP:2F3" (stage 2, the other schedules)
_ACTION = re.compile(r"(?:PP:(?P<stage>\d{1,5})(?P<kind>[FBIW])|(?P<word>Forward|Backward) )(?P<micro_batch>\d{1,6})")


class PipelineAction(Struct, frozen=True):
    """`kind`: F forward, B backward, I and W its two parts: gradients of the input and of the weights."""

    kind: ActionKind
    stage: int  # 0: not named, as the rank has only one
    micro_batch: int


def pipeline_action(name: str) -> PipelineAction | None:
    """What an annotation says; None if it is no action of a pipeline stage."""
    match = _ACTION.fullmatch(name)
    if match is None:
        return None
    kind = match["kind"] or match["word"][0]
    return PipelineAction(cast("ActionKind", kind), int(match["stage"] or 0), int(match["micro_batch"]))
