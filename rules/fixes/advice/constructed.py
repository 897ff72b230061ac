"""The lines that construct what a fix changes: the training's DataLoader, the optimizers."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.run_settings import Optimizer
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.result.finding import Location

MOST_OPTIMIZERS = 4


def loader_places(facts: Facts) -> list[Location]:
    """Where the training's loader is constructed; empty if that was not recorded."""
    loader = facts.captured.training_loader
    return [loader.built.site] if loader is not None and loader.built is not None else []


def optimizer_places(facts: Facts) -> list[Location]:
    """Where the optimizers that step and are not fused are constructed; empty if that was not recorded."""
    sites = [
        optimizer.built.site
        for optimizer in stepping_optimizers(facts)
        if optimizer.built is not None and not optimizer.fused
    ]
    return sorted(dict.fromkeys(sites), key=lambda place: (place.file, place.line or 0))[:MOST_OPTIMIZERS]


def stepping_optimizers(facts: Facts) -> list[Optimizer]:
    """The recorded optimizers of the classes that step in this trace."""
    kinds = optimizer_classes(facts)
    return [
        optimizer for optimizer in facts.captured.optimizers if (optimizer.class_name or "").rpartition(".")[2] in kinds
    ]


def optimizer_classes(facts: Facts) -> list[str]:
    """Classes of the optimizers as their annotations name them: "AdamW" in Optimizer.step#AdamW.step."""
    rows = np.flatnonzero(facts.regions.named(op_names.is_optimizer_step, ANNOTATION, OP))
    names = (facts.trace.names[code] for code in dict.fromkeys(facts.slices.name[rows].tolist()))
    return [name.partition("#")[2].partition(".")[0] for name in names]
