"""The tensors that a forward pass keeps for its backward pass: activations, to which the script has no name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

MOST_NODES = 2_000


def saved_tensors(torch: Any, loss: Any) -> Iterator[Any]:
    """Nodes of custom Functions are left out. The script must not have hooked saved tensors: a look at them would call
    its hooks, which recompute a checkpointed part.
    """
    start = getattr(loss, "grad_fn", None)
    if start is None:
        return
    waiting, known, names = deque([start]), {start}, dict[type[Any], list[str]]()
    while waiting and len(known) < MOST_NODES:
        node = waiting.popleft()
        kind = type(node)
        if kind not in names:
            names[kind] = [name for name in dir(kind) if name.startswith("_saved_")]
        for name in names[kind]:
            try:
                value = getattr(node, name)
            except RuntimeError:  # it was freed, or changed in place
                continue
            if isinstance(value, torch.Tensor):
                yield value
        following = [one for one, _ in node.next_functions if one is not None and one not in known]
        known.update(following)
        waiting.extend(following)
