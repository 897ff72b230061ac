"""The memory snapshot in the result document: who holds the memory of the device, what grows, what failed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location


class MemoryHolder(Struct, frozen=True):
    """The memory that one line of code holds at the peak."""

    name: Annotated[str, note("file, line and function, or why there is no line")]
    bytes: Annotated[int, note("memory held at the peak", "bytes")]
    blocks: Annotated[int, note("allocations held at the peak", "count")]
    location: Annotated[Location | None, note("the user's or a model's line; null: none is in the stack")]
    layer: Annotated[str | None, note("module of torch.nn that allocates; null: none is in the stack")]
    stack: Annotated[list[str], note("the stack with most bytes, innermost frame first; at most 30 frames")]


class SnapshotCurve(Struct, frozen=True):
    """Memory over the recorded history. All lists have one value for each time."""

    us: Annotated[list[float], note("time since the history began", "us")]
    allocated_bytes: Annotated[list[int], note("memory in tensors", "bytes")]
    reserved_bytes: Annotated[list[int], note("memory held by the caching allocator", "bytes")]
    by_holder: Annotated[
        list[list[int]], note("memory of each of the first holders; what is missing is all others'", "bytes")
    ]


class SnapshotGrowth(Struct, frozen=True):
    """Memory at the end of each step after the first."""

    steps: Annotated[int, note("steps that were compared with the one before", "count")]
    bytes_per_step: Annotated[float, note("median change from step to step", "bytes")]
    grows: Annotated[bool, note("whether most steps left more memory than the one before")]
    kept: Annotated[list[MemoryHolder], note("lines that keep memory in most steps; bytes are per step")]


class SnapshotFragmentation(Struct, frozen=True):
    """The allocator's memory when the snapshot was taken."""

    reserved_bytes: Annotated[int, note("memory held by the caching allocator", "bytes")]
    active_bytes: Annotated[int, note("blocks in use", "bytes")]
    cached_bytes: Annotated[int, note("segments without a block in use, which can be given back", "bytes")]
    unusable_bytes: Annotated[int, note("free memory between blocks in use", "bytes")]
    largest_free_bytes: Annotated[int, note("largest piece of it", "bytes")]


class FailedAllocation(Struct, frozen=True):
    """The last allocation that failed."""

    requested_bytes: Annotated[int, note("size of the request", "bytes")]
    device_free_bytes: Annotated[int, note("free memory of the device then", "bytes")]
    allocated_bytes: Annotated[int, note("memory in tensors then", "bytes")]
    reserved_bytes: Annotated[int, note("memory held by the caching allocator then", "bytes")]
    largest_fit_bytes: Annotated[int | None, note("largest request that would have fitted; null: not known", "bytes")]
    fragmented: Annotated[bool, note("whether it would have fitted, had the free memory been in one piece")]
    caught: Annotated[bool, note("whether the program went on")]
    count: Annotated[int, note("failed allocations in the history", "count")]
    location: Annotated[Location | None, note("the line that asked for it; null: none is in the stack")]
    stack: Annotated[list[str], note("its stack, innermost frame first; at most 30 frames")]


class MemorySnapshotSection(Struct, frozen=True):
    """A memory snapshot of PyTorch's CUDA allocator."""

    file: Annotated[str, note("label of the file")]
    device: Annotated[int, note("index of the device")]
    events: Annotated[int, note("entries of the history; 0: it was not recorded", "count")]
    peak_allocated_bytes: Annotated[int, note("peak of the memory in tensors", "bytes")]
    peak_reserved_bytes: Annotated[int, note("peak of the memory held by the caching allocator", "bytes")]
    peak_us: Annotated[float | None, note("time of the peak since the history began; null: not recorded", "us")]
    holders: Annotated[list[MemoryHolder], note("who holds the peak, most memory first; at most 50 lines")]
    curve: Annotated[SnapshotCurve | None, note("memory over the history; null: no history with times")]
    growth: Annotated[SnapshotGrowth | None, note("growth from step to step; null: too few steps were recorded")]
    fragmentation: Annotated[SnapshotFragmentation, note("the allocator's memory when the snapshot was taken")]
    retries: Annotated[int, note("allocations that first had to give the cache back to the driver", "count")]
    failure: Annotated[FailedAllocation | None, note("the last allocation that failed; null: none did")]
