"""What Inductor says about the kernels that it generated: the operators of each, and their lines.

The operators are in a comment above each kernel of the generated code. Lines are only logged if INDUCTOR_PROVENANCE=1.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TypeVar

from msgspec import DecodeError
from msgspec.json import decode

from traceopt.analyzer.tables.compilation import KernelSource
from traceopt.analyzer.vocabulary.torch_compile import MOST_TEXT, one_line, stack_frames, user_site
from traceopt.result.finding import Location

T = TypeVar("T")

MOST_KERNELS = 20_000
STACKS = "inductor_provenance_tracking_kernel_stack_traces"

_KERNEL = re.compile(r"Original ATen: \[(?P<operators>[^\]\n]*)\]|^(?P<kernel>\w+) = async_compile\.triton\(", re.M)


class KernelSources:
    """Gathers the kernels of all compilations of a process."""

    def __init__(self) -> None:
        self._operators: defaultdict[str, set[str]] = defaultdict(set)
        self._sites: defaultdict[str, set[Location]] = defaultdict(set)

    def add_code(self, text: str) -> None:
        """The comment above a kernel belongs to it. The code that calls kernels follows all of them."""
        operators = None
        for found in _KERNEL.finditer(text):
            if found["kernel"] is None:
                operators = found["operators"]
            elif operators and len(self._operators) < MOST_KERNELS:
                self._operators[found["kernel"]].add(one_line(operators))
                operators = None

    def add_stacks(self, text: str) -> None:
        """Names have the number of the call behind a colon: "triton_poi_fused_relu_0:2"."""
        try:
            stacks = decode(text)
        except DecodeError:
            return
        for name, of_kernel in stacks.items() if isinstance(stacks, dict) else []:
            first = next((one for one in of_kernel if isinstance(one, str)), "") if isinstance(of_kernel, list) else ""
            site = user_site(stack_frames(first[:MOST_TEXT]))
            if site is not None and len(self._sites) < MOST_KERNELS:
                self._sites[name.partition(":")[0]].add(site)

    def found(self) -> dict[str, KernelSource]:
        """Names that stand for different operators or lines have none."""
        names = {*self._operators, *(name for name in self._sites if not name.startswith("extern_kernels."))}
        found = {name: KernelSource(_only(self._operators.get(name)), _only(self._sites.get(name))) for name in names}
        return {name: source for name, source in found.items() if source != KernelSource(None, None)}


def _only(values: set[T] | None) -> T | None:
    return next(iter(values)) if values is not None and len(values) == 1 else None
