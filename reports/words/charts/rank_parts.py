"""The step of each rank in the parts that every rank records."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.cause import Look
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, COMPUTE, DATA_LOADING, UNTRACED
from traceopt.result.sections.rank_rows import RankRow

# Look and name of the parts from the bottom up, for ranks with and without a GPU.
_GPU_PARTS = (
    (COMPUTE.look, "GPU busy: compute and copies"),
    (COMMUNICATION.look, COMMUNICATION.label),
    (DATA_LOADING.look, DATA_LOADING.label),
    (UNTRACED.look, "Idle for other reasons"),
)
_CPU_PARTS = (
    (COMPUTE.look, "Model work and everything else"),
    (COMMUNICATION.look, COMMUNICATION.host_label),
    (DATA_LOADING.look, DATA_LOADING.label),
)


class RankPart(Struct, frozen=True):
    """A part of the step: its look and name, and its time on each rank (None: not recorded)."""

    look: Look
    label: str
    us: list[float | None]


def rank_names(rows: Sequence[RankRow]) -> list[str]:
    """The rank numbers; "engine" for an inference engine, "file 3" for another file without a rank."""
    return [
        str(row.rank) if row.rank is not None else row.engine or f"file {index}" for index, row in enumerate(rows, 1)
    ]


def rank_parts(rows: list[RankRow]) -> list[RankPart]:
    """The steps of the rows in exclusive parts: GPU parts if every rank with a step recorded its GPU."""
    on_gpu = all(row.gpu_busy_share is not None for row in rows if row.step_us is not None)
    amounts = [_gpu_amounts(row) if on_gpu else _cpu_amounts(row) for row in rows]
    looks = _GPU_PARTS if on_gpu else _CPU_PARTS
    parts = [RankPart(look, label, [amount[index] for amount in amounts]) for index, (look, label) in enumerate(looks)]
    return [part for part in parts if any(part.us)]


def _gpu_amounts(row: RankRow) -> list[float | None]:
    step, busy_share = row.step_us, row.gpu_busy_share
    if step is None or busy_share is None:
        return [None] * len(_GPU_PARTS)
    busy = step * busy_share
    exposed = min(row.exposed_communication_us or 0.0, busy)
    loading = min(row.dataloader_stall_us or 0.0, step - busy)
    return [busy - exposed, exposed, loading, step - busy - loading]


def _cpu_amounts(row: RankRow) -> list[float | None]:
    step = row.step_us
    if step is None:
        return [None] * len(_CPU_PARTS)
    exposed = min(row.exposed_communication_us or 0.0, step)
    loading = min(row.dataloader_stall_us or 0.0, step - exposed)
    return [step - exposed - loading, exposed, loading]
