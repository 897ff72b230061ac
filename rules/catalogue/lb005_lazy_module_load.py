"""LB005: steady steps still load device code."""

from __future__ import annotations

from typing import ClassVar

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Fix
from traceopt.rules.bases.once_only_rule import SteadyRule


class LazyModuleLoad(SteadyRule):
    """Measures the time in which the GPU starves while the driver loads or links device code, or a launch takes a
    millisecond and more for its kernel's first call, in steps after the first.

    Why it costs: CUDA loads the code of a kernel when it is first called, and libraries choose (or benchmark) their
    algorithm when they first see a shape. In steps that bring new shapes again and again this never ends.

    How to fix: show every shape once before the loop, keep shapes few, or load everything at the start.

        for length in (128, 256, 512):                 # the sizes that inputs are padded to
            model(torch.zeros(batch, length, dtype=torch.long, device="cuda"))

        CUDA_MODULE_LOADING=EAGER python train.py      # a longer start and more memory
        torch.backends.cudnn.benchmark = False         # where shapes keep changing

    When it is wrong: the first steps load code, and a recording that begins with them shows it; what hits one step
    alone is told without a saving. TQ004 tells of a whole window that is a start.

    Sources: CUDA programming guide, "Lazy Loading"; PyTorch documentation of torch.backends.cudnn.benchmark.
    """

    code: ClassVar[str] = "LB005"
    name: ClassVar[str] = "lazy-module-load"
    title: ClassVar[str] = "Load device code before the steps"
    cause: ClassVar[str] = "module_load"
    does: ClassVar[str] = "Device code is loaded, or a kernel called for the first time,"
    fix: ClassVar[Fix] = Fix(
        "Warm up with every shape before the loop, and keep shapes few.",
        "CUDA_MODULE_LOADING=EAGER python train.py",
    )

    def applies(self, facts: Facts) -> str | None:
        if not len(facts.host.rows_of("module_load")):
            return "No device code is loaded in this trace."
        return super().applies(facts)
