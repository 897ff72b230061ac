"""The tensors that a forward pass keeps for its backward pass: activations, to which the script has no name."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any

MOST_NODES = 2_000
_CHECKPOINT = ("torch.utils.checkpoint", "_CheckpointFrame")  # the class that keeps what a backward pass recomputes


def saved_tensors(torch: Any, loss: Any) -> Iterator[Any]:
    """Nodes of custom Functions are left out, and so is a graph with checkpoints, whose tensors would be recomputed."""
    start = getattr(loss, "grad_fn", None)
    if start is None or _has_checkpoints():
        return
    waiting, known = deque([start]), {start}
    while waiting and len(known) < MOST_NODES:
        node = waiting.popleft()
        for name in _saved_names(type(node)):
            try:
                value = getattr(node, name)
            except RuntimeError:  # it was freed, or changed in place
                continue
            if isinstance(value, torch.Tensor):
                yield value
        following = [one for one, _ in node.next_functions if one is not None and one not in known]
        known.update(following)
        waiting.extend(following)


@lru_cache(maxsize=500)
def _saved_names(kind: Hashable) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))


def _has_checkpoints() -> bool:
    return any((kind.__module__, kind.__name__) == _CHECKPOINT for kind in set(map(type, gc.get_objects())))
