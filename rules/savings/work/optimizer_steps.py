"""A step of the optimizer as an experiment: one parameter at a time, or all in one operator."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Literal

import numpy as np

from traceopt.analyzer.autograd.nodes import ACCUMULATE
from traceopt.analyzer.autograd.operator_inputs import shapes_of
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.result.experiments import Comparison, OptimizerStep
from traceopt.rules.savings.measured import MeasuredWork, Part, measured

MOST_SIZES = 64


def fused_step(facts: Facts, before: Literal["single", "foreach"], time_ns: float) -> MeasuredWork:
    """Steps of the run's optimizer, which take so long per step, in one operator. Of several nothing is asked."""
    recorded = [optimizer for optimizer in facts.captured.optimizers if optimizer.class_name and optimizer.tensors]
    comparison = None
    if len(recorded) == 1 and (sizes := _parameters(facts, recorded[0].tensors or 0)):
        kind = (recorded[0].class_name or "").rpartition(".")[2]
        comparison = Comparison(OptimizerStep(kind, sizes, before), OptimizerStep(kind, sizes, "fused"))
    return measured(facts, [Part(time_ns, comparison)])


def _parameters(facts: Facts, tensors: int) -> tuple[tuple[int, int], ...]:
    """Elements, and how many of the parameters have so many, by the gradients that are added up; at most 64 sizes."""
    slices = facts.slices
    rows = np.flatnonzero(facts.regions.named(ACCUMULATE.__eq__, OP))
    rows = rows[facts.steps.window.contains(slices.start[rows])]
    gradients = Counter(prod(shapes[0]) for shapes in shapes_of(facts.regions, rows) if shapes)
    total = sum(gradients.values())
    if not total:
        return ()
    counts = ((elements, round(times * tensors / total)) for elements, times in gradients.most_common(MOST_SIZES))
    return tuple((elements, count) for elements, count in counts if elements and count)
