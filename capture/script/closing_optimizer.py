"""Finds the optimizer that is the last of a step, if a script has several: by how often and how recently each steps."""

from __future__ import annotations

from dataclasses import dataclass

RARE = 16  # an optimizer that steps less often than the busiest by this factor ends no step
SIMILAR = 1.3  # counts within this factor, plus one, are equal
PATIENCE = 6  # updates of others, beyond the usual ones, after which an optimizer is out of use


@dataclass
class _Use:
    """`last` and `longest_gap` are numbers of updates, of all optimizers together."""

    count: int
    last: int
    longest_gap: int


class ClosingOptimizer:
    """An optimizer that is out of use is forgotten: from an earlier fold of a cross-validation, or an earlier
    task, if each has its own.
    """

    def __init__(self) -> None:
        self._uses: dict[int, _Use] = {}  # by optimizer, in order of first use
        self._first = 0
        self._alone = 0  # updates of the first one before any other, each of which seemed to be a step
        self._since_end: set[int] = set()
        self._updates = 0

    def closes(self, optimizer: int) -> bool:
        """Whether this update ends a step: each optimizer in regular use has updated since the last end, and this one
        is the least used of them, the latest if several are equal.
        """
        self._updates += 1
        self._note(optimizer)
        if len(self._uses) == 1:
            self._first = self._first or optimizer
            self._alone += 1
            return True
        self._forget_unused()
        self._since_end.add(optimizer)
        most = least = self._uses[optimizer].count
        for use in self._uses.values():
            if use.count > most:
                most = use.count
        if least * RARE < most:
            return False
        for use in self._uses.values():
            if use.count < least and use.count * RARE >= most:
                least = use.count
        last = optimizer
        for key, use in self._uses.items():
            if use.count * RARE < most:
                continue
            if key not in self._since_end:
                return False
            if use.count <= least * SIMILAR + 1:
                last = key
        if last != optimizer:
            return False
        self._since_end.clear()
        return True

    def shows_parts(self, optimizer: int) -> bool:
        """Whether this update shows, once, that the few steps so far were parts of a step: the first optimizer goes on
        after another one, as the critic of a GAN does.
        """
        if len(self._uses) == 1 or optimizer != self._first or not 1 < self._alone <= RARE:
            return False
        self._alone = 0
        return True

    def _note(self, optimizer: int) -> None:
        use = self._uses.get(optimizer)
        if use is None:
            self._uses[optimizer] = _Use(1, self._updates, longest_gap=0)
            return
        use.count += 1
        use.longest_gap = max(use.longest_gap, self._updates - use.last)
        use.last = self._updates

    def _forget_unused(self) -> None:
        for key, use in list(self._uses.items()):
            gap = use.longest_gap or RARE  # not known before its second update
            if self._updates - use.last > 2 * gap + PATIENCE:
                del self._uses[key]
