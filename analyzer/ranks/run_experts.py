"""The experts of all ranks: which rank gets most tokens, in all layers together and in each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from traceopt.analyzer.communication.experts import ExpertLoad
from traceopt.analyzer.tables.schema import I8


class ExpertLayer(Struct, frozen=True):
    """A layer with experts, in the forward passes of the mean step."""

    name: str  # of its module
    tokens: I8  # that each rank gets. Shape (ranks,)

    @property
    def hot(self) -> int:
        """The index of the rank that gets most."""
        return int(self.tokens.argmax())

    @property
    def of_mean(self) -> float:
        """What it gets, by the mean of the ranks."""
        return _of_mean(self.tokens)


class RunExperts(Struct, frozen=True):
    """Arrays have shape (ranks,), of the mean step."""

    tokens: I8
    compute_ns: I8
    layers: list[ExpertLayer]  # in the order of their calls; empty: modules are not recorded

    @property
    def of_mean(self) -> float:
        """The most tokens of a rank, by the mean of the ranks."""
        return _of_mean(self.tokens)

    @property
    def hot_above_mean_ns(self) -> float:
        """How much longer than the mean rank that with most tokens computes; 0 if another one computes longest."""
        most = self.tokens.argmax() == self.compute_ns.argmax()
        return float(self.compute_ns.max() - self.compute_ns.mean()) if most else 0.0


def find_run_experts(loads: Sequence[ExpertLoad | None]) -> RunExperts | None:
    """None unless every rank has the same number of passes."""
    known = [load for load in loads if load is not None]
    if not known or len(known) < len(loads) or len({len(load.tokens) for load in known}) != 1:
        return None
    tokens = np.array([load.tokens for load in known])
    layers = known[0].layers if all(load.layers == known[0].layers for load in known) else []
    return RunExperts(
        tokens=tokens.sum(axis=1),
        compute_ns=np.array([load.compute_ns.sum() for load in known]),
        layers=[
            ExpertLayer(name, tokens[:, [layer == name for layer in layers]].sum(axis=1))
            for name in dict.fromkeys(filter(None, layers))
        ],
    )


def _of_mean(tokens: I8) -> float:
    return float(tokens.max() / max(1.0, tokens.mean()))
