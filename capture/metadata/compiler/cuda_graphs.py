"""Counts the CUDA graphs that Inductor recorded (mode="reduce-overhead"), in its trees of graphs."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any


def describe_recordings() -> dict[str, int] | None:
    """`recorded` graphs; `again` are those recorded at a place of the tree that had one of the same code already.

    None if Inductor records no CUDA graphs.
    """
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    torch = sys.modules.get("torch")
    if trees is None or torch is None or not torch.cuda.is_initialized():
        return None
    recorded = again = 0
    found = False
    for device in range(torch.cuda.device_count()):
        manager = None
        with suppress(Exception):  # another thread's, or a private function of another form
            manager = trees.get_manager(device, create_if_none_exists=False)
        if manager is not None:
            found = True
            for siblings in _siblings(manager):
                recorded += len(siblings)
                again += max(0, len(siblings) - 1)
    return {"recorded": recorded, "again": again} if found else None


def _siblings(manager: Any) -> list[list[Any]]:
    """The graphs of each compiled function at each place of the tree."""
    found: list[list[Any]] = []
    waiting = list(manager.roots.values())
    while waiting:
        siblings = list(waiting.pop())
        found.append(siblings)
        for node in siblings:
            waiting += node.children.values()
    return found
