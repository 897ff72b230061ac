"""How large a batch is: for the queue between a DataLoader worker and the training process, and for the model."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

MOST_LOOKED_AT = 64  # parts of a batch


def describe_batch(torch: Any, batch: Any) -> dict[str, int] | None:
    """Number and bytes of the batch's tensors, which travel in shared memory, and bytes of the rest, which are pickled.

    None if the batch cannot be pickled, so that no worker could send it either. Copies neither tensors nor arrays.
    """
    sink = _Sink()
    census = _Census(torch, sink)
    try:
        census.dump(batch)
    except Exception:  # whatever the script's own classes raise
        return None
    return {"tensors": census.tensors, "tensor_bytes": census.tensor_bytes, "pickled_bytes": sink.bytes}


def samples_and_elements(torch: Any, batch: Any) -> tuple[int, int]:
    """First dimension and number of elements of the largest tensor of a batch; zeros if it has none that is seen."""
    found = [(int(tensor.numel()), int(tensor.shape[0])) for tensor in tensors_of(torch, batch) if tensor.dim()]
    elements, samples = max(found, key=lambda one: one[0], default=(0, 0))
    return (samples, elements) if elements else (0, 0)


def tensors_of(torch: Any, batch: Any) -> Iterator[Any]:
    """Those in tuples, lists and mappings, among their first entries: it is called for every batch."""
    waiting = [batch]
    for _ in range(MOST_LOOKED_AT):
        if not waiting:
            return
        thing = waiting.pop(0)
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, Mapping):
            waiting += islice(thing.values(), MOST_LOOKED_AT)
        elif isinstance(thing, (tuple, list)):
            waiting += thing[:MOST_LOOKED_AT]


class _Sink:
    """A file that counts what is written to it."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> None:
        self.bytes += len(data)

    def array(self, buffer: pickle.PickleBuffer) -> None:
        self.bytes += buffer.raw().nbytes


class _Census(pickle.Pickler):
    """Walks over a batch as the queue does, and counts the tensors in it instead of writing them."""

    def __init__(self, torch: Any, sink: _Sink) -> None:
        super().__init__(sink, protocol=5, buffer_callback=sink.array)
        self._torch = torch
        self.tensors = self.tensor_bytes = 0

    def persistent_id(self, thing: Any) -> int | None:
        if not isinstance(thing, self._torch.Tensor):
            return None
        self.tensors += 1
        self.tensor_bytes += thing.numel() * thing.element_size()
        return self.tensors
