"""What the memory holds at its peak: parameters, gradients, optimizer state, activations, temporary results.

Blocks that come and go during the recording are classified by when they are allocated and freed. Memory that is there
throughout is parameters and optimizer state, split by the element counts of the model.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.memory.blocks import BEFORE, MemoryBlocks
from traceopt.analyzer.memory.curve import DeviceMemory
from traceopt.analyzer.memory.model_state import ModelState

PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, TEMPORARY, OTHER = (
    "Parameters",
    "Gradients",
    "Optimizer state",
    "Activations",
    "Temporary results",
    "Other, resident",
)
_SHARDED = 0.9  # at least this share of the parameters must fit into the resident memory, else they are sharded


class Composition(Struct, frozen=True):
    """Bytes at the peak by purpose, in the order above; unclassified bytes are in OTHER. They sum to the peak."""

    bytes: dict[str, int]
    activation_blocks: int

    @property
    def resident(self) -> int:
        """Bytes that stay from step to step, whatever the batch size."""
        return sum(self.of(part) for part in (PARAMETERS, OPTIMIZER_STATE, OTHER)) + self.of(GRADIENTS)

    @property
    def of_the_batch(self) -> int:
        """Bytes that grow with the batch size."""
        return self.of(ACTIVATIONS) + self.of(TEMPORARY)

    def of(self, part: str) -> int:
        return self.bytes.get(part, 0)

    @property
    def total(self) -> int:
        return sum(self.bytes.values())


def compose(
    memory: DeviceMemory, blocks: MemoryBlocks, passes: Intervals, updates: Intervals, state: ModelState | None
) -> Composition | None:
    """The peak by purpose. `passes` are the backward passes; `updates` are the times when the optimizer steps or drops
    gradients. None if totals were not recorded.
    """
    if not len(memory.allocated):
        return None
    index = int(memory.allocated.argmax())
    peak, at = int(memory.allocated[index]), int(memory.time[index])
    purpose = _purposes(blocks, passes, updates)
    live = blocks.live(at)
    parts = {name: int(blocks.bytes[live & (purpose == name)].sum()) for name in (GRADIENTS, ACTIVATIONS, TEMPORARY)}
    resident = max(0, peak - sum(parts.values()))
    parts |= _resident_parts(resident, state, gradients_stay=not (purpose == GRADIENTS).any())
    order = (PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, TEMPORARY, OTHER)
    count = int((live & (purpose == ACTIVATIONS)).sum())
    return Composition({name: parts[name] for name in order if parts.get(name)}, count)


def _purposes(blocks: MemoryBlocks, passes: Intervals, updates: Intervals) -> npt.NDArray[np.str_]:
    """Purpose of each block. A gradient is allocated in a backward pass and outlives it. An activation is allocated
    before a backward pass and lives until it or longer (including the batch and the loss). All other blocks that come
    and go are temporary.
    """
    start, end = np.maximum(blocks.start, 0), blocks.end
    old = blocks.start == BEFORE
    in_backward, in_update = passes.contains(start) & ~old, updates.contains(start) & ~old
    reaches = np.searchsorted(passes.start, start) < np.searchsorted(passes.start, end)
    out = np.full(len(blocks), TEMPORARY, "U20")
    out[~in_backward & ~in_update & ~old & reaches] = ACTIVATIONS
    out[in_backward & (end > _end_around(passes, start))] = GRADIENTS
    out[old & passes.contains(end)] = ACTIVATIONS
    out[old & updates.contains(end)] = GRADIENTS
    return out


def _end_around(area: Intervals, time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """End of the interval that contains each time; the time itself outside all intervals."""
    if not len(area):
        return time
    index = np.maximum(np.searchsorted(area.start, time, side="right") - 1, 0)
    return np.where(area.contains(time), area.end[index], time)


def _resident_parts(resident: int, state: ModelState | None, *, gradients_stay: bool) -> dict[str, int]:
    """Parameters first, then optimizer state, then gradients that stay allocated; the rest is OTHER."""
    if state is None or state.parameter_bytes * _SHARDED > resident:
        return {OTHER: resident}
    parts = {PARAMETERS: min(state.parameter_bytes, resident)}
    left = resident - parts[PARAMETERS]
    parts[OPTIMIZER_STATE] = min(state.state_bytes or 0, left)
    left -= parts[OPTIMIZER_STATE]
    if gradients_stay:
        parts[GRADIENTS] = min(state.gradient_bytes, left)
        left -= parts[GRADIENTS]
    parts[OTHER] = left
    return parts
