"""Optimizers of torch.optim that step in few kernels, and the arguments for that."""

from __future__ import annotations

from collections.abc import Iterable

from traceopt.analyzer.facts import Facts
from traceopt.result.edits import Edit, SetArguments

FUSED = ("Adam", "AdamW", "SGD")  # have a fused form on every device
FUSED_ON_CPU = (*FUSED, "Adagrad")
FOREACH = ("ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
# The first version of torch with a fused form on a GPU, and on a CPU; before, the argument raises an error.
_SINCE = {"Adam": ((2, 0), (2, 4)), "AdamW": ((2, 0), (2, 4)), "SGD": ((2, 3), (2, 4)), "Adagrad": ((2, 13), (2, 4))}
_UNKNOWN = (2, 4)  # is assumed if the trace does not tell the version
_SPARSE = ("aten::embedding_sparse_backward", "aten::_embedding_bag_sparse_backward")  # gradients of embeddings


def fusible(facts: Facts) -> tuple[str, ...]:
    """The optimizers that the run's torch can fuse on its device. None of them accepts sparse gradients, which EF020
    advises where plain SGD trains a large embedding.
    """
    if any(name in facts.trace.names for name in _SPARSE):
        return ()
    version, gradients = facts.captured.torch_release or _UNKNOWN, facts.dense_gradients
    sparse = ("SGD",) if len(gradients) and gradients.are_added else ()
    return tuple(kind for kind, since in _SINCE.items() if version >= since[not facts.has_gpu] and kind not in sparse)


def fused(kinds: Iterable[str], fusible: tuple[str, ...] = FUSED) -> list[Edit]:
    """The argument of each of these optimizers; of AdamW if none of them is known."""
    ways = {kind: "fused" if kind in fusible else "foreach" for kind in kinds if kind in (*FUSED, *FOREACH)}
    ways = ways or {"AdamW": "fused" if "AdamW" in fusible else "foreach"}
    return [SetArguments(f"torch.optim.{kind}", {way: "True"}) for kind, way in ways.items()]
