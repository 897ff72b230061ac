"""Subnormal numbers in the tensors of a CPU-only run, and how much longer this CPU computes with them.

{"flushed", "tensors": [{"kind", "shape", "share", "slowdown"}]}

`flushed`: the training thread takes them for zero (torch.set_flush_denormal). A row stands for the tensors of one kind
and shape. `share` is of their sampled elements. `slowdown` is measured on a copy of a sample, in threads of its own:
how many times as long a multiplication takes as with flushing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

LEAST_ELEMENTS = 1_024  # of a tensor that is looked at
SAMPLE = 4_096  # elements of a tensor
MOST_TENSORS = 2_000
MOST_ROWS = 20
LEAST_SHARE = 0.01  # of a sample
CALLS = 20  # of each operation that is timed


@dataclass
class _Found:
    """Samples of the tensors of one kind and shape: the share of each, and a copy of the worst."""

    shares: list[float] = field(default_factory=list)
    worst: Any = None

    @property
    def share(self) -> float:
        return sum(self.shares) / len(self.shares)


class Subnormals:
    """Filled between two steps, and with activations before a backward pass that is not recorded."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._found: dict[tuple[str, tuple[int, ...]], _Found] = {}
        self._looked_at = 0

    def look(self, kind: str, tensors: Iterable[Any]) -> None:
        """`kind`: "parameter", "gradient", "optimizer state", "activation" or "tensor"."""
        with self._torch.no_grad():
            for tensor in tensors:
                if self._looked_at >= MOST_TENSORS:
                    return
                if self._is_of_interest(tensor):
                    self._looked_at += 1
                    self._sample(kind, tensor)

    def take(self, tensors: list[Any], optimizers: list[Any]) -> dict[str, Any] | None:
        """The document after a look at all tensors that Python knows; the samples are then dropped. None if the process
        uses a GPU, or a class with unusual behavior is in the way.
        """
        if self._torch.cuda.is_initialized():
            return None
        with suppress(Exception):
            parameters = [tensor for tensor in tensors if isinstance(tensor, self._torch.nn.Parameter)]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            values = [
                value for optimizer in optimizers for state in optimizer.state.values() for value in state.values()
            ]
            states = [value for value in values if isinstance(value, self._torch.Tensor)]
            known = {id(one) for one in (*parameters, *gradients, *states)}
            self.look("parameter", parameters)
            self.look("gradient", gradients)
            self.look("optimizer state", states)
            self.look("tensor", (tensor for tensor in tensors if id(tensor) not in known))
            document = self.document()
            self._found.clear()
            return document
        return None

    def document(self) -> dict[str, Any]:
        flushed = self._is_flushed()
        found = sorted(self._found.items(), key=lambda item: -item[1].share)
        found = [one for one in found if one[1].share >= LEAST_SHARE][: 0 if flushed else MOST_ROWS]
        slowdowns = _slowdowns(self._torch, [one.worst for _, one in found])
        rows = [
            {"kind": kind, "shape": list(shape), "share": round(one.share, 4), "slowdown": slowdown}
            for ((kind, shape), one), slowdown in zip(found, slowdowns, strict=True)
        ]
        return {"flushed": flushed, "tensors": rows}

    def _is_of_interest(self, tensor: Any) -> bool:
        """Not a subclass with behavior of its own, and not a shard whose memory was given back."""
        torch = self._torch
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
        if not plain or tensor.device.type != "cpu" or tensor.numel() < LEAST_ELEMENTS:
            return False
        wide = tensor.dtype in (torch.float32, torch.float64, torch.bfloat16)
        return wide and tensor.untyped_storage().nbytes() > 0

    def _sample(self, kind: str, tensor: Any) -> None:
        sample = tensor.detach()
        for dimension in range(sample.dim()):
            step = min(-(-sample.numel() // SAMPLE), sample.shape[dimension])
            sample = sample[(slice(None),) * dimension + (slice(None, None, step),)]
        size = sample.abs()
        count = int(((size > 0) & (size < self._torch.finfo(sample.dtype).tiny)).sum())
        share = count / sample.numel()
        found = self._found.setdefault((kind, tuple(tensor.shape)), _Found())
        if share > max(found.shares, default=0.0):
            found.worst = sample.clone().flatten()
        found.shares.append(share)

    def _is_flushed(self) -> bool:
        tiny = self._torch.finfo(self._torch.float32).tiny
        return float(self._torch.full((1,), tiny, dtype=self._torch.float32, device="cpu").mul(0.5)) == 0.0


def _slowdowns(torch: Any, samples: list[Any]) -> list[float]:
    """Neither thread changes how another one computes. A sample is too small for torch to use several threads."""
    times_s: dict[bool, list[float]] = {}

    def measure(flush: bool) -> None:
        torch.set_flush_denormal(flush)
        with torch.no_grad():  # it is a setting of the thread
            times_s[flush] = [_shortest_s(sample.mul, 0.5) for sample in samples]

    for flush in (False, True) if samples else ():
        thread = threading.Thread(target=measure, args=(flush,), daemon=True)
        thread.start()
        thread.join()
    pairs = zip(times_s.get(False, ()), times_s.get(True, ()), strict=True)
    return [round(max(1.0, slow / fast), 2) for slow, fast in pairs]


def _shortest_s(operation: Callable[[float], Any], number: float) -> float:
    shortest = float("inf")
    for _ in range(CALLS):
        began = time.perf_counter()
        operation(number)
        shortest = min(shortest, time.perf_counter() - began)
    return shortest
