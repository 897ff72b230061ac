"""CP007: a CPU-only run recomputes activations although there is memory to store them."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    Price,
    RemoveHost,
    Risk,
    Rule,
    SiteCost,
    by_calling_site,
    each_step,
    ms,
    percent,
    priced,
    rate,
    site_locations,
    size,
    the_step,
    threshold,
    us,
)
from traceopt.rules.fixes.advice.memory import recomputed_bytes

LOW, EXPECTED = 0.6, 0.95  # of the recomputation: writing and reading what is stored takes time too


class CpuCheckpointing(Rule):
    """Measures the forward work that the backward pass recomputes (activation checkpointing) in a run without a GPU,
    and how much memory it takes to store the results instead: what each recomputation allocates and holds past its own
    end. `traceopt run` records how much memory is available between the steps.

    Why it costs: a fully checkpointed model runs its forward pass twice. Checkpointing saves the memory of a GPU. The
    memory of the host is often many times larger than the activations of a model that trains on a CPU.

    How to fix: call the layers without `checkpoint`, or checkpoint only as many as memory requires.

        x = layer(x)  # instead of: x = checkpoint(layer, x, use_reentrant=False)

    When it is wrong: inputs longer than those of the recorded steps may need the memory. A script that will train a
    larger model on a GPU may need checkpointing there. If the memory was not recorded, the finding has no saving.

    Sources: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016); PyTorch documentation,
    "torch.utils.checkpoint".
    """

    code = "CP007"
    name = "cpu-checkpointing"
    title = "Store activations instead of recomputing them"
    family = "CPU runs"
    risk = Risk.MEMORY
    risk_note = "Takes more memory"
    confidence = "medium"
    requires = ("cpu_only", "whole", "ops")

    min_share: float = threshold(0.03, "smallest recomputation, as a share of the step, to report")
    usable: float = threshold(0.5, "share of the available memory to fill")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.regions.recompute.any() else "The backward pass recomputes nothing."

    def check(self, facts: Facts) -> Findings:
        time_ns = _time_ns(facts)
        needed, free = recomputed_bytes(facts), self._free_bytes(facts)
        part = min(1.0, free / needed) if needed and free is not None else 1.0
        if part * time_ns < self.min_share * facts.step_ns:
            return
        known = bool(needed) and free is not None
        sites = _sites(facts)
        yield self.finding(
            why=f"The backward pass recomputes activations for {ms(time_ns)} of {each_step(facts)}. "
            + (f"Storing them takes {size(needed)}." if needed else "The memory to store them was not recorded."),
            saving=_price(facts, part, time_ns) if known else None,
            evidence=[
                Evidence("Recomputation in the backward pass", us(time_ns)),
                *([] if free is None else [Evidence("Free memory that may be used", detail=size(free))]),
                *_calls(facts, sites),
            ],
            locations=site_locations(sites),
            fix=Fix(
                "Call the layers without checkpoint()."
                if part >= 1
                else f"Checkpoint only {percent(1 - part)} of the layers.",
                "x = layer(x)  # instead of checkpoint(layer, x)"
                if part >= 1
                else "x = checkpoint(layer, x) if index % 2 else layer(x)",
            ),
        )

    def _free_bytes(self, facts: Facts) -> float | None:
        """What this process can use besides what its steps use already; None if it is not known."""
        available, memory = facts.captured.environment.available_memory_bytes, facts.memory
        if available is None or memory is None:
            return None
        in_steps = (memory.peak_allocated or 0) - (memory.allocated_before or 0)
        return max(0.0, self.usable * available / (facts.captured.environment.local_world_size or 1) - in_steps)

    def passed(self, facts: Facts) -> str:
        return f"Recomputation takes {percent(_time_ns(facts) / facts.step_ns)} of {the_step(facts)}."


def _recomputation(facts: Facts) -> Intervals:
    return facts.regions.area(facts.regions.recompute)


def _time_ns(facts: Facts) -> float:
    return facts.steps.host_mean_ns(_recomputation(facts))


def _price(facts: Facts, part: float, time_ns: float) -> Price:
    def removed(share: float) -> list[RemoveHost]:
        return [RemoveHost(_recomputation(facts), share * part)]

    return priced(
        facts,
        (LOW * part * time_ns, EXPECTED * part * time_ns, part * time_ns),
        removed(EXPECTED),
        f"Assumes the fix removes {percent(LOW)}, {percent(EXPECTED)} or 100% of the recomputation"
        + (", as far as the activations fit in the memory." if part < 1 else "."),
        low=removed(LOW),
        high=removed(1.0),
    )


def _sites(facts: Facts) -> list[SiteCost]:
    """The lines that call `checkpoint`."""
    calls = np.flatnonzero(facts.regions.checkpoint)
    return by_calling_site(facts, calls, facts.slices.end[calls] - facts.slices.start[calls])


def _calls(facts: Facts, sites: list[SiteCost]) -> list[Evidence]:
    return [
        Evidence("checkpoint()", calls_per_step=rate(site.calls / facts.steps.count), location=site.location)
        for site in sites
    ]
