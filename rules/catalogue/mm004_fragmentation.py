"""MM004: the allocator has reserved far more memory than it hands out."""

from __future__ import annotations

from traceopt.rules import Evidence, Facts, Findings, Fix, Rule, percent, size, threshold


class Fragmentation(Rule):
    """Compares the peak of the memory that the caching allocator has reserved with the peak of what it handed out, on a
    device with much of its memory reserved.

    Why it costs: free pieces between live blocks cannot be merged. A large tensor then does not fit although enough
    memory is free in total. The allocator asks the driver for more, or fails.

    How to fix: let segments expand, and use few sizes.

        # in the environment, before CUDA is initialized
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

    Inputs with ever new lengths fragment most: pad them to a few sizes.

    When it is wrong: memory that an earlier phase needed (evaluation, a longer batch, warm-up) stays reserved as cache
    and looks the same. It does no harm until memory is short, so the finding has no saving.

    Sources: PyTorch documentation, "CUDA semantics: memory management".
    """

    code = "MM004"
    name = "fragmentation"
    title = "Reduce memory fragmentation with expandable segments"
    family = "memory"
    effort = "An environment variable"
    confidence = "low"
    requires = ("gpu", "memory")

    min_unused: float = threshold(0.25, "smallest unused share of reserved memory at the peak")
    min_reserved: float = threshold(0.70, "smallest reserved memory, as a share of device memory")

    def applies(self, facts: Facts) -> str | None:
        if facts.memory is None or facts.memory.peak_reserved is None:
            return "Reserved memory was not recorded."
        return None if facts.device.memory_bytes else "The trace does not state the device's memory capacity."

    def check(self, facts: Facts) -> Findings:
        reserved, allocated = _peaks(facts)
        if reserved - allocated < self.min_unused * reserved:
            return
        if reserved < self.min_reserved * (facts.device.memory_bytes or 1):
            return
        yield self.finding(
            why=(
                f"The allocator reserves {size(reserved)} of {size(facts.device.memory_bytes)} but hands out at most "
                f"{size(allocated)}: {percent(1 - allocated / reserved)} is stuck between live blocks or in its cache."
            ),
            saving=None,
            evidence=[
                Evidence("Peak reserved", detail=size(reserved)),
                Evidence("Peak allocated", detail=size(allocated)),
            ],
            fix=Fix(
                "Set expandable_segments, and pad inputs to a few sizes.",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python script.py",
            )
            if facts.device.vendor.has_expandable_segments
            else Fix("Pad inputs to a few sizes."),
            shares_cause_with=["MM002"],
        )

    def passed(self, facts: Facts) -> str:
        reserved, allocated = _peaks(facts)
        return f"The allocator hands out {size(allocated)} of {size(reserved)} reserved at the peak."


def _peaks(facts: Facts) -> tuple[int, int]:
    memory = facts.memory
    return ((memory.peak_reserved or 0), (memory.peak_allocated or 0)) if memory else (0, 0)
