"""Matrices of a CPU-only run that are almost all zero: adjacency matrices, one-hot rows, bags of words.

[{"shape", "share"}]: a row for each shape. `share` of the elements of a sample is zero.

Only tensors that a backward pass needs are looked at, if they have no gradient and no operator with one made them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LEAST_ELEMENTS = 1 << 16  # of a matrix that is looked at: the product of a smaller one takes little time
SAMPLED_ROWS = 64
LEAST_SHARE = 0.95  # what dropout or a ReLU leaves is not as empty
MOST_SHAPES = 8


class MostlyZero:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._shares: dict[tuple[int, ...], float] = {}

    def look(self, tensors: Iterable[Any]) -> None:
        """A shape has the share of its fullest matrix."""
        with self._torch.no_grad():
            for tensor in tensors:
                shape = tuple(tensor.shape)
                if self._is_of_interest(tensor) and (shape in self._shares or len(self._shares) < MOST_SHAPES):
                    share = self._zeros(tensor)
                    self._shares[shape] = min(share, self._shares.get(shape, share))

    def document(self) -> list[dict[str, Any]]:
        return [
            {"shape": list(shape), "share": round(share, 6)}
            for shape, share in self._shares.items()
            if share >= LEAST_SHARE
        ]

    def _is_of_interest(self, tensor: Any) -> bool:
        torch = self._torch
        plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and tensor.device.type == "cpu"
        constant = plain and not tensor.requires_grad and tensor.dtype.is_floating_point
        return bool(constant and tensor.dim() >= 2 and tensor.numel() >= LEAST_ELEMENTS)

    def _zeros(self, tensor: Any) -> float:
        """Of some whole rows: a step through all elements could always hit the diagonal, or miss it."""
        rows = tensor.flatten(0, -2)
        rows = rows[:: -(-len(rows) // SAMPLED_ROWS)]
        return 1 - int(rows.count_nonzero()) / max(1, int(rows.numel()))
