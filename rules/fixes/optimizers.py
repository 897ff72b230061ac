"""Optimizers of torch.optim that step in few kernels, and the arguments for that."""

from __future__ import annotations

from collections.abc import Iterable

from traceopt.result.edits import Edit, SetArguments

FUSED = ("Adam", "AdamW", "SGD")  # have a fused form on every device
FUSED_ON_CPU = (*FUSED, "Adagrad")
FOREACH = ("ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")


def fused(kinds: Iterable[str], fusible: tuple[str, ...] = FUSED) -> list[Edit]:
    """The argument of each of these optimizers; of AdamW if none of them is known."""
    ways = {kind: "fused" if kind in fusible else "foreach" for kind in kinds if kind in (*fusible, *FOREACH)}
    return [SetArguments(f"torch.optim.{kind}", {way: "True"}) for kind, way in (ways or {"AdamW": "fused"}).items()]
