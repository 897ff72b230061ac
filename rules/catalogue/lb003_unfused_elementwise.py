"""LB003: chains of memory-bound kernels move the same data through memory repeatedly."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.autograd.forward.large_logits import LEAST_ELEMENTS
from traceopt.analyzer.work.tiny_ops import input_elements
from traceopt.rules import (
    CUDA_GRAPH,
    OP,
    Changes,
    Compile,
    Confidence,
    Effort,
    Facts,
    Findings,
    Fix,
    MergeKernels,
    Rule,
    each_step,
    kernel_evidence,
    ms,
    per_step,
    percent,
    priced,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.compilation import compiled, engine_fusion

MOST = 0.5  # of the chains' time: what is done to one tensor is the fix if that takes more


class UnfusedElementwise(Rule):
    """Measures sequences of two or more pointwise, copy, norm, softmax and reduction kernels that run back to back on a
    stream and that no compiler fused. The optimizer's own kernels do not count, nor those of the loss over a large
    vocabulary (EF023), nor those that compiled code launches: there the compiler has already decided.

    Why it costs: such kernels are memory-bound. Each one reads what the previous one has just written. Fused, the data
    stays in registers, and only the first read and the last write remain.

    Where hardware counters were sampled (GPU metrics of Nsight Systems), the finding says how much of the memory's
    bandwidth these kernels use, and its confidence follows from that. If the activity of the SMs was sampled too, the
    estimate leaves out the share of the time in which SMs work and the memory has no part in it: fusion does not
    shorten arithmetic.

    How to fix: let the compiler fuse them.

        model = torch.compile(model)

    If a training spends most of that time on tensors as large as the input of the largest log-softmax, as in the joint
    network of a transducer, use a loss that fuses the softmax first.

    Fused library kernels (RMSNorm, rotary embedding, SwiGLU, cross entropy) do the same for the usual blocks.

    When it is wrong: not all neighbors can be fused. Shapes may differ, or a value may be needed later. The estimate
    therefore assumes half of the gain of perfect fusion.

    Sources: Williams et al., "Roofline" (2009); PyTorch 2 paper (Ansel et al., 2024), section on fusion.
    """

    code = "LB003"
    name = "unfused-elementwise"
    title = "Fuse pointwise kernels with torch.compile"
    family = "launch and dispatch"
    effort = Effort.ONE_LINE_TESTED
    confidence = "medium"
    requires = ("gpu",)

    min_share: float = threshold(0.12, "smallest time in unfused chains, as a share of the step, to report")
    low: float = threshold(0.25, "share of perfect fusion's gain, low")
    expected: float = threshold(0.5, "share of perfect fusion's gain, expected")
    busy_memory: float = threshold(0.5, "measured DRAM throughput from which kernels are surely memory-bound")
    idle_memory: float = threshold(0.1, "measured DRAM throughput below which kernels are hardly memory-bound")

    def check(self, facts: Facts) -> Findings:
        chains = facts.chains
        count = facts.steps.count
        time = chains.time_ns / count
        if time < self.min_share * facts.step_ns:
            return
        gain = chains.fused_gain_ns / count
        title, fix = _of_one_tensor(facts) or _remedy(facts)
        counters = facts.measured_counters
        memory = counters.dram_during(chains.mask) if counters is not None else None
        multiprocessors = counters.sm_active_during(chains.mask) if counters is not None else None
        arithmetic = max(0.0, multiprocessors - memory) if memory is not None and multiprocessors is not None else None
        fusible = 1.0 - (arithmetic or 0.0)
        yield self.finding(
            title=title,
            why=(
                f"{chains.kernels / count:,.0f} pointwise, copy and norm kernels {per_step(facts)} run in unfused "
                f"chains of {chains.kernels / chains.count:.1f} on average. They take {ms(time)} of {each_step(facts)}."
                f"{_measured(memory, multiprocessors)}"
            ),
            confidence=self._confidence(memory),
            saving=priced(
                facts,
                (self.low * fusible * gain, self.expected * fusible * gain, gain),
                self._fused(facts, self.expected, fusible),
                f"Assumes {percent(self.low)}, {percent(self.expected)} or 100% of perfect fusion, which leaves only "
                f"the longest kernel of each chain.{_without(arithmetic)}",
                low=self._fused(facts, self.low, fusible),
                high=self._fused(facts, 1.0),
            ),
            evidence=kernel_evidence(facts, chains.mask),
            fix=fix,
        )

    def _confidence(self, memory: float | None) -> Confidence | None:
        """By the measured DRAM throughput; None: the rule's own."""
        if memory is None or self.idle_memory <= memory < self.busy_memory:
            return None
        return "high" if memory >= self.busy_memory else "low"

    def _fused(self, facts: Facts, share: float, fusible: float = 1.0) -> Changes:
        """Each chain as one kernel, with this share of perfect fusion's gain in `fusible` of the kernels' time, and of
        the dispatch time it saves.
        """
        chains = facts.chains
        return [MergeKernels(chains.group, 1 - share * fusible * chains.fused_gain_ns / chains.time_ns, share)]

    def passed(self, facts: Facts) -> str:
        share = facts.chains.time_ns / facts.steps.window_ns
        return f"Chains of unfused pointwise kernels take {percent(share)} of {the_step(facts)}."


def _measured(memory: float | None, multiprocessors: float | None) -> str:
    if memory is None:
        return ""
    active = "" if multiprocessors is None else f", and SMs are active for {percent(multiprocessors)} of their time"
    return f" Measured: they use {percent(memory)} of the memory's bandwidth{active}."


def _without(arithmetic: float | None) -> str:
    if arithmetic is None:
        return ""
    return (
        f" Measured by hardware counters: SMs work without the memory for {percent(arithmetic)} of the time, which "
        "counts only in the highest estimate."
    )


def _of_one_tensor(facts: Facts) -> tuple[str, Fix] | None:
    """Title and fix of a training where most of that time goes into tensors as large as the input of the largest
    log-softmax, as in a loss over all pairs of frames and words. None where it does not.
    """
    rows = np.flatnonzero(facts.chains.mask & (facts.links.op_slice >= 0))
    time_ns, operators = facts.gpu.in_window[rows], facts.links.op_slice[rows].astype(np.int64)
    size = input_elements(facts.regions, operators)
    loss = facts.regions.named(lambda name: "log_softmax" in name, OP)[operators]
    largest = size[loss & facts.gpu.kind.among("softmax")[rows]].max(initial=0)
    most = int(time_ns[size >= largest / 2].sum()) >= MOST * facts.chains.time_ns
    if not facts.trains or largest < LEAST_ELEMENTS or not most:
        return None
    return "Use a loss that fuses the softmax of the largest tensor", Fix(
        f"Most of this time is softmax, casts and gradients of one tensor of {largest:,} numbers. Use a loss that "
        "fuses them and does not keep the tensor, such as the fused joint and loss of a transducer. The loss of a part "
        "of the batch at a time saves memory. torch.compile fuses only part of it."
    )


def _remedy(facts: Facts) -> tuple[str | None, Fix]:
    """Title (None: the rule's) and fix."""
    blocks = "norm, rotary embedding and loss" if facts.trains else "norm, activation and rotary embedding"
    if facts.serving_engine is not None:
        fusion = engine_fusion(facts) or f"Use the engine's fused kernels for {blocks}"
        return "Fuse pointwise kernels in the engine", Fix(f"{fusion}.")
    if compiled(facts):
        text = f"Most kernels are compiled already. Compile the rest too, or use fused kernels for {blocks}."
        return "Fuse the pointwise kernels outside compiled code", Fix(text)
    if not facts.device.compiles:
        return f"Use fused kernels for {blocks}", Fix(f"Use fused kernels for {blocks}, from a library or in CUDA.")
    text = (
        f"Compile the model (or its blocks), or use fused kernels for {blocks}. Every mode of torch.compile fuses; "
        f"reduce-overhead also makes {CUDA_GRAPH}s."
    )
    return None, Fix(text, edits=[Compile()])
