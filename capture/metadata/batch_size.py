"""How large a batch is for the queue between a DataLoader worker and the training process."""

from __future__ import annotations

import pickle
from typing import Any


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
