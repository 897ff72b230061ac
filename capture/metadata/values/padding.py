"""How much of the batches is padding: positions beyond the longest sample of each batch.

[{"size", "samples", "batches", "longest", "at"}]: a row for each size to which samples are padded. `batches` batches
of `samples` samples were looked at. `longest` is how many positions the longest sample of a batch uses, on average.
`at` is the function that joins items to a batch, as a frame is named, or null.

A tensor is padded if all samples end, or begin, with the same value, which is rare inside of them, and the samples
differ in length: token ids, masks and labels of two dimensions, and frames of three.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..batch_size import tensors_of
from ..constructions import name_in_trace
from ..user_line import is_user_code

LOOKS = 12  # batches
LEAST_SIZE = 8  # positions
MOST_ELEMENTS = 1 << 20  # of a tensor that is looked at
MOST_SIZES = 8
INSIDE = 0.05  # share of the positions of samples that may have the value of padding
SHORTEST = 0.8  # of the longest sample: a shorter one shows that the lengths differ


@dataclass
class _Size:
    samples: int
    longest: list[int] = field(default_factory=list)
    at: str | None = None


class Padding:
    """Looks at batches that are not part of a recorded step, and leaves them as they are."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._sizes: dict[int, _Size] = {}
        self._looks = 0

    @property
    def done(self) -> bool:
        return self._looks >= LOOKS

    def look(self, batch: Any, collate: Any = None) -> None:
        """`collate`: the function that joined the items to this batch, if known."""
        if self.done:
            return
        self._looks += 1
        with self._torch.no_grad():
            used: dict[int, tuple[int, int]] = {}  # by size: samples, longest
            for tensor in tensors_of(self._torch, batch):
                for size, found in self._lengths(tensor) if type(tensor) is self._torch.Tensor else ():
                    used[size] = max(used.get(size, found), found, key=lambda one: one[1])
        for size, (samples, longest) in used.items():
            if size in self._sizes or len(self._sizes) < MOST_SIZES:
                row = self._sizes.setdefault(size, _Size(samples, at=_place(collate)))
                row.longest.append(longest)

    def document(self) -> list[dict[str, Any]]:
        return [
            {
                "size": size,
                "samples": row.samples,
                "batches": len(row.longest),
                "longest": round(sum(row.longest) / len(row.longest), 1),
                "at": row.at,
            }
            for size, row in self._sizes.items()
            if min(row.longest) < size
        ]

    def _lengths(self, tensor: Any) -> Iterator[tuple[int, tuple[int, int]]]:
        """The size of each dimension that is padded or full, with the number of samples and the longest length."""
        whole = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
        if tensor.device.type != "cpu" or not 0 < tensor.numel() <= MOST_ELEMENTS:
            return
        if whole and tensor.dim() == 2 and tensor.shape[1] >= LEAST_SIZE:
            yield from self._of(tensor != tensor[0, -1], (tensor != tensor[0, 0]).flip(1))
        elif tensor.dtype.is_floating_point and tensor.dim() == 3:
            for dimension in (1, 2):
                if tensor.shape[dimension] >= LEAST_SIZE:
                    yield from self._of((tensor != 0).any(3 - dimension))

    def _of(self, *ways: Any) -> Iterator[tuple[int, tuple[int, int]]]:
        """`ways`: which positions are used, if samples end with padding, or if they begin with it and are turned round.
        A tensor with one value tells nothing.
        """
        samples, size = ways[0].shape
        places = self._torch.arange(1, size + 1, device="cpu")
        for used in ways:
            lengths = (used * places).amax(1)
            longest, total = int(lengths.max()), int(lengths.sum())
            inside = total - int(used.sum())
            if not longest:
                return
            if longest < size and int(lengths.min()) <= SHORTEST * longest and inside <= INSIDE * total:
                yield size, (samples, longest)
                return
        yield size, (samples, size)


def whole_numbers(tensors: Iterable[Any]) -> list[Any]:
    """Those of two dimensions: ids that a model looks up."""
    return [tensor for tensor in tensors if tensor.dim() == 2 and not tensor.dtype.is_floating_point]


def _place(collate: Any) -> str | None:
    code = getattr(collate, "__code__", None)
    if code is None or not is_user_code(code.co_filename):
        return None
    return f"{name_in_trace(code.co_filename)}({code.co_firstlineno}): {code.co_name}"
