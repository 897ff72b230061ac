"""The tasks: a script with one planted fault, and the script without it.

The .txt files beside this one have a section for each. A line that begins with a minus is only in the script that is
to be repaired, a line that begins with a plus only in a repaired one, which nobody is shown. A question mark repeats a
line that shows the cost of a fault elsewhere, such as a call of the optimizer that was made wrongly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPT = "train.py"
BEFORE = '''\
"""Trains {about}."""

import sys

import torch
from torch import nn
from torch.nn import functional

STEPS = int(sys.argv[1])
torch.manual_seed(0)

'''
AFTER = """

for step in range(STEPS):
    loss = loss_of(step)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.6f}")
"""


@dataclass(frozen=True)
class Task:
    """`body`: what is between the head and the loop of the script, as a diff."""

    name: str
    about: str
    body: tuple[str, ...]

    @property
    def script(self) -> str:
        return self._without("+")

    @property
    def repaired(self) -> str:
        return self._without("-")

    @cached_property
    def planted(self) -> list[str]:
        """The lines of the script that a repair changes or that show the cost, as file:line."""
        first = BEFORE.count("\n") + 1
        shown = [line for line in self.body if line[0] in " -"]
        lines = [number for number, line in enumerate(shown, first) if line.startswith("-")]
        costly = {line[1:] for line in self.body if line.startswith("?")}
        lines += [number for number, line in enumerate(self.script.splitlines(), 1) if line in costly]
        return [f"{SCRIPT}:{line}" for line in lines]

    def _without(self, sign: str) -> str:
        body = "\n".join(line[1:] for line in self.body if line[0] not in (sign, "?"))
        return f"{BEFORE.format(about=self.about)}{body}\n{AFTER}"


def _tasks() -> dict[str, Task]:
    found = {}
    for path in sorted(HERE.glob("*.txt")):
        sections = re.split(r"^=== (\w+): (.+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        for name, about, body in zip(sections[::3], sections[1::3], sections[2::3], strict=True):
            found[name] = Task(name, about, tuple(line or " " for line in body.rstrip("\n").split("\n")))
    return found


TASKS = _tasks()
