"""EF023: the loss over a large vocabulary reads and writes logits of all tokens several times."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.autograd.forward.large_logits import LargeLogits
from traceopt.result.experiments import Comparison, VocabularyLoss
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    each_step,
    ms,
    percent,
    size,
    the_step,
    threshold,
)
from traceopt.rules.savings.measured import MeasuredWork, Part, measured
from traceopt.rules.savings.work.backward_nodes import node_evidence, nodes_per_step_ns, without_nodes

# Of the time of operators on logits. On CPUs, chunks that fit into the cache saved little and multiply twice; fused
# kernels of GPUs read the logits once and write the gradient in their place.
ON_CPU, ON_GPU = (0.0, 0.15, 0.6), (0.0, 0.4, 0.75)
CHUNK = 64  # tokens
CHUNKED = Fix(
    "Compute the loss of some tokens at a time, and checkpoint each chunk, so that the logits of only one exist. The "
    "matmul runs once more.",
    "hidden, targets = hidden.flatten(0, -2), targets.flatten()  # a row for each token\n"
    "part = lambda h, t: F.cross_entropy(head(h), t, reduction='sum')\n"
    f"chunks = zip(hidden.split({CHUNK}), targets.split({CHUNK}))\n"
    "loss = sum(checkpoint(part, h, t, use_reentrant=False) for h, t in chunks) / len(targets)",
)
FUSED = Fix(
    "Use a kernel that fuses the output layer with the loss, such as LigerFusedLinearCrossEntropyLoss of liger-kernel. "
    "It never holds the logits of all tokens. torch.compile of the loss fuses casts and softmax, but keeps the logits.",
    "hidden, targets = hidden.flatten(0, -2), targets.flatten()  # a row for each token\n"
    "loss = LigerFusedLinearCrossEntropyLoss()(head.weight, hidden, targets)  # not F.cross_entropy(head(hidden), ...)",
)


class LargeLogitsRule(Rule):
    """Measures a cross entropy over a large vocabulary: the loss, and casts, copies and scaling of the logits, forward
    and backward. The matmul of the output layer does not count.

    Why it costs: the logits have a number for each token and each word. 16,384 tokens and 128,256 words are 8.4 GB in
    FP32. Softmax, casts and the gradient are tensors of the same size, and each is written to memory and read back.
    They often are the peak of the memory, and so limit the batch.

    How to fix: on a GPU, use a kernel that fuses the output layer and the loss. It works on a few tokens at a time.

        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
        loss = LigerFusedLinearCrossEntropyLoss()(head.weight, hidden.flatten(0, -2), targets.flatten())

    Anywhere, split the tokens and checkpoint each chunk. That frees the memory, and the matmul runs once more.

        hidden, targets = hidden.flatten(0, -2), targets.flatten()   # a row for each token
        part = lambda h, t: F.cross_entropy(head(h), t, reduction="sum")
        chunks = zip(hidden.split(1024), targets.split(1024))
        loss = sum(checkpoint(part, h, t, use_reentrant=False) for h, t in chunks) / len(targets)

    F.linear_cross_entropy of PyTorch 2.13 does the same with options=torch.nn.LinearCrossEntropyOptions().

    On a CPU, `traceopt run` and `traceopt measure` measure the layer and the loss with and without chunks. Otherwise
    the saving assumes a share of the time of the loss.

    When it is wrong: if targets are ignored (ignore_index), divide by the number of the others. If the logits are
    needed for something else, such as a metric or distillation, they are computed anyway. On a CPU, chunks save memory
    and little time, and F.linear_cross_entropy with these options took three times as long.

    Sources: Hsu et al., "Liger Kernel" (2024); Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models"
    (2024).
    """

    code = "EF023"
    name = "large-logits"
    title = "Do not keep the logits of all tokens"
    family = "efficiency"
    risk = Risk.ROUNDING
    confidence = "low"
    requires = ("work", "whole", "ops", "shapes")

    min_share: float = threshold(0.1, "smallest time of operators on logits, as a share of the step, to report")
    min_peak_share: float = threshold(0.2, "or the smallest size of the logits, as a share of the peak of the memory")

    def applies(self, facts: Facts) -> str | None:
        if not facts.trains:
            return "This run does not train."
        return None if facts.large_logits is not None else "No cross entropy is over many words and tokens."

    def check(self, facts: Facts) -> Findings:
        found = facts.large_logits
        if found is None or not self._is_large(facts, found):
            return
        sizes = " x ".join(f"{size:,}" for size in found.shape)
        peak = _peak_share(facts, found)
        of_peak = f", {percent(peak)} of the peak of the memory" if peak else ""
        yield self.finding(
            why=(
                f"The loss is over logits of {sizes} numbers, {size(found.size_bytes)}{of_peak}. Softmax, casts and "
                f"gradients are as large. Without the matmul, this takes {ms(_time_ns(facts))} of {each_step(facts)}."
            ),
            saving=_price(facts, found),
            evidence=node_evidence(facts, found.losses),
            fix=FUSED if facts.has_gpu else CHUNKED,
        )

    def passed(self, facts: Facts) -> str:
        return f"Operators on the logits take {percent(_time_ns(facts) / facts.step_ns)} of {the_step(facts)}."

    def _is_large(self, facts: Facts, found: LargeLogits) -> bool:
        is_long = _time_ns(facts) >= self.min_share * facts.step_ns
        return is_long or _peak_share(facts, found) >= self.min_peak_share


def _time_ns(facts: Facts) -> float:
    return nodes_per_step_ns(facts, facts.large_logits.rows) if facts.large_logits is not None else 0.0


def _peak_share(facts: Facts, found: LargeLogits) -> float:
    """The size of one tensor of logits, as a share of the peak of the device's memory; 0 if that is unknown."""
    peak = facts.memory.peak_allocated if facts.memory is not None and facts.has_gpu else None
    return found.size_bytes / peak if peak else 0.0


def _price(facts: Facts, found: LargeLogits) -> Price:
    low, expected, high = ON_GPU if facts.has_gpu else ON_CPU
    rows, basis = found.rows, f"Assumes {percent(low)}, {percent(expected)} or {percent(high)} of these operators' time"
    work = None if facts.has_gpu else _in_chunks(facts, found)
    if work is not None and work.speedup is not None:
        rows = np.union1d(found.rows, found.products).astype(np.int64)
        low, expected, high = work.shares
        basis = f"{work.words}, with the matmul. So {percent(expected)} of the time"
    price = without_nodes(facts, rows, low, expected, f"{basis} goes away.", high=high)
    return price if work is None else replace(price, experiments=work.experiments)


def _in_chunks(facts: Facts, found: LargeLogits) -> MeasuredWork | None:
    """The output layer and the loss as an experiment, as they are and in chunks; None if the sizes are unknown."""
    tokens, words = found.shape[:2]
    if not found.width or len(found.shape) > 2 or found.size_bytes != 4 * tokens * words:  # not FP32
        return None
    now = VocabularyLoss(tokens, found.width, words, "fp32", tokens)
    both = Comparison(now, replace(now, chunk=min(CHUNK, tokens)))
    return measured(facts, [Part(_time_ns(facts) + nodes_per_step_ns(facts, found.products), both)])
