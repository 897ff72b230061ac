"""Facts of device memory: over time, and what holds it at the peak."""

from __future__ import annotations

from functools import cached_property

from traceopt.analyzer.facts.communication import CommunicationFacts
from traceopt.analyzer.memory.blocks import MemoryBlocks, find_blocks
from traceopt.analyzer.memory.composition import Composition, compose
from traceopt.analyzer.memory.curve import (
    Allocator,
    DeviceMemory,
    find_allocator,
    find_cache_emptying,
    find_memory,
    peak_by_gpu,
)
from traceopt.analyzer.memory.model_state import ModelState, find_model_state
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.timeline.call_tree import PYTHON
from traceopt.analyzer.vocabulary.causes.table import ALLOCATION
from traceopt.analyzer.vocabulary.library_frames import is_empty_cache_frame


class MemoryFacts(CommunicationFacts, frozen=True, dict=True):
    """Over time, and what holds it at the peak."""

    @cached_property
    def memory(self) -> DeviceMemory | None:
        """Device memory over time; None if it was not recorded."""
        return find_memory(self.trace, self.recorded_steps, self.has_gpu)

    @cached_property
    def peak_by_gpu(self) -> dict[int, int]:
        """The peak of the memory in tensors on each GPU, by number, bytes; empty if it was not recorded."""
        return peak_by_gpu(self.trace.memory)

    @cached_property
    def allocator(self) -> Allocator:
        """Whether PyTorch's caching allocator is switched off, or its cache is emptied."""
        return find_allocator(self.trace, self.slices, self.host.rows_of(ALLOCATION), self.steps.host_window)

    @cached_property
    def cache_emptying(self) -> Mask:
        """Calls of `torch.cuda.empty_cache()` (slices), if most steps make one that frees much. Shape (slices,)."""
        empties = self.regions.named(is_empty_cache_frame, PYTHON)
        return find_cache_emptying(self.trace, self.slices, self.host.rows_of(ALLOCATION), empties, self.steps)

    @cached_property
    def blocks(self) -> MemoryBlocks | None:
        """Blocks of the device's caching allocator; None if memory was not recorded."""
        return None if self.memory is None else find_blocks(self.trace.memory, self.memory.rows)

    @cached_property
    def model_state(self) -> ModelState | None:
        """What the model and its optimizer keep on the device, by element count; None if it is unknown."""
        return find_model_state(self.trace, self.slices, self.regions.backward_passes, self.captured)

    @cached_property
    def composition(self) -> Composition | None:
        """What the device memory holds at its peak; None for CPU-only runs, whose totals start with the recording."""
        if self.memory is None or self.blocks is None or not self.has_gpu:
            return None
        regions = self.regions
        updates = regions.area(regions.optimizer | regions.zero_grad)
        return compose(self.memory, self.blocks, regions.backward_passes, updates, self.model_state)
