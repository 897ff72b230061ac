"""Finds the optimizer that is the last of a step, if a script has several: by how often and how recently each steps.

An inner optimizer, which is made anew for each task while an outer one lasts, ends no step.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import count
from typing import Any

from ..metadata.constructions import built

RARE = 16  # an optimizer that steps less often than the busiest by this factor ends no step
MOST_INNER = 1000  # updates of an inner optimizer before the first of the outer one
SIMILAR = 1.3  # counts within this factor, plus one, are equal
PATIENCE = 6  # updates of others, beyond the usual ones, after which an optimizer is out of use


@dataclass
class _Use:
    """`last` and `longest_gap` are numbers of updates, of all optimizers together."""

    count: int
    last: int
    longest_gap: int


@dataclass
class _Role:
    """What optimizers do that are made at one place, each after the one before has been used."""

    number: int
    began: int  # how many optimizers had begun to update before the present one
    holders: int = 1


class OptimizerRoles:
    """The number of each optimizer's role, and whether that role has had another optimizer before."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._begun = 0
        self._roles: dict[tuple[str, ...], list[_Role]] = {}  # by the call stack of the constructor
        self._unused: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # have not updated yet

    @property
    def others_wait(self) -> bool:
        """Whether an optimizer that still exists has not updated yet."""
        return len(self._unused) > 0

    def made(self, optimizer: Any) -> None:
        """The constructor of an optimizer has noted its call stack."""
        optimizer._traceopt_made = self._begun
        self._unused[id(optimizer)] = optimizer

    def of(self, optimizer: Any) -> tuple[int, bool]:
        """At an update."""
        try:
            role, holder = optimizer._traceopt_role
        except AttributeError:
            role = self._begins(optimizer, self._free(optimizer))
        else:
            if holder != role.holders:  # another optimizer took its role, but it is still used
                role = self._begins(optimizer, None)
        return role.number, role.holders > 1

    def _begins(self, optimizer: Any, role: _Role | None) -> _Role:
        self._unused.pop(id(optimizer), None)
        role = role or self._new(optimizer)
        optimizer._traceopt_role = role, role.holders
        self._begun += 1
        return role

    def _free(self, optimizer: Any) -> _Role | None:
        """The first role whose optimizer had begun to update before this one was made at the same place."""
        for role in self._roles.get(_place(optimizer), ()):
            if role.began < getattr(optimizer, "_traceopt_made", 0):
                role.holders += 1
                role.began = self._begun
                return role
        return None

    def _new(self, optimizer: Any) -> _Role:
        role = _Role(next(self._numbers), self._begun)
        self._roles.setdefault(_place(optimizer), []).append(role)
        return role


def _place(optimizer: Any) -> tuple[str, ...]:
    return tuple(frame for stack in built(optimizer) for frame in stack)


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
        self._renewed: set[int] = set()  # optimizers that are made anew again and again
        self._outer = False  # one that lasts has updated after one that was made anew

    def closes(self, optimizer: int, renewed: bool = False, others_wait: bool = False) -> bool:
        """Whether this update ends a step: each optimizer in regular use has updated since the last end, and this one
        is the least used of them, the latest if several are equal. `others_wait`: an optimizer has not updated yet. If
        this one is made anew for each task, that is the outer one.
        """
        if renewed:
            self._renewed.add(optimizer)
        elif self._renewed and not self._outer:
            self._outer = True
            for inner in self._renewed & self._uses.keys():
                del self._uses[inner]
            self._since_end.clear()
        if renewed and self._outer:
            return False
        self._updates += 1
        if renewed and others_wait and self._updates <= MOST_INNER:
            return False
        self._note(optimizer)
        if len(self._uses) == 1:
            self._first = self._first or optimizer
            self._alone += optimizer == self._first
            return True
        self._forget_unused()
        self._since_end.add(optimizer)
        most = least = self._uses[optimizer].count
        for use in self._uses.values():
            if use.count > most:
                most = use.count
        if (least + 1) * RARE < most:  # one more may be due
            return False
        for use in self._uses.values():
            if use.count < least and (use.count + 1) * RARE >= most:
                least = use.count
        last = optimizer
        for key, use in self._uses.items():
            if (use.count + 1) * RARE < most:
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
        inner = self._outer and optimizer in self._renewed
        if optimizer != self._first or not (inner or len(self._uses) > 1):
            return False
        if not 1 < self._alone <= (MOST_INNER if inner else RARE):
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
