"""LB005: GPU code is still loaded in steady-state steps."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.table import MODULE_LOAD
from traceopt.rules import Facts, Fix, SetVariable
from traceopt.rules.bases.once_only_rule import SteadyRule


class LazyModuleLoad(SteadyRule):
    """Measures how long the GPU is idle while the driver loads or links GPU code, or a launch takes a millisecond or
    more for the first call of its kernel, in steps after the first.

    Why it costs: CUDA loads the code of a kernel at its first call. Libraries choose (or benchmark) their algorithm
    when they first see a shape. If steps keep bringing new shapes, this never ends.

    How to fix: run every shape once before the loop, keep shapes few, or load everything at the start.

        for length in (128, 256, 512):                 # the sizes that inputs are padded to
            model(torch.zeros(batch, length, dtype=torch.long, device="cuda"))

        CUDA_MODULE_LOADING=EAGER python script.py      # a longer start and more memory
        torch.backends.cudnn.benchmark = False         # if shapes keep changing

    When it is wrong: the first steps load code, and a recording that starts with them shows it. If only one step is
    affected, the finding has no saving. TQ004 reports a window that holds only start-up.

    Sources: CUDA programming guide, "Lazy Loading"; PyTorch documentation of torch.backends.cudnn.benchmark.
    """

    code = "LB005"
    name = "lazy-module-load"
    title = "Load GPU code during warm-up"
    cause = MODULE_LOAD
    does = "GPU code is loaded, or a kernel is called for the first time,"
    fix = Fix(
        "Warm up with every shape before the loop, and use few shapes.",
        edits=[SetVariable("CUDA_MODULE_LOADING", "EAGER")],
    )

    def advice(self, facts: Facts) -> Fix:
        """HIP has no setting like CUDA_MODULE_LOADING."""
        return self.fix if facts.device.vendor.has_eager_loading else Fix(self.fix.text)

    def applies(self, facts: Facts) -> str | None:
        if not len(facts.host.rows_of(MODULE_LOAD)):
            return "No GPU code is loaded in this trace."
        return super().applies(facts)
