"""What it saves to replace a loop over tiny operators on a CPU."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.work.tiny_ops import CalledOps
from traceopt.result.finding import Location
from traceopt.result.words.message import ms, percent
from traceopt.rules.evidence import SiteCost
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced
from traceopt.rules.savings.work.lookups import in_one_table

LAYERS_REMOVABLE = 0.0, 0.3, 0.7  # of the time of small layers: low, expected, high; their work stays
LOOP_REMOVABLE = 0.0, 0.3, 1.0  # of the time of a loop whose rounds may need each other's results


class Loop(Struct, frozen=True, dict=True):
    """The lines of one loop, and the tiny operators that they call.

    `kind`: "updates" if a function mostly calls such operators on tensors that are not trained, "elements" if it only
    writes numbers of Python into tensors, "layers" if one call of a line runs them, "tables" if its rounds look up
    embeddings, "weights" if they visit the weights of the model, "in turn" if the host reads values between them,
    "items in turn" if they also index at ever other places and run no layers, which may be of a policy or a decoder.
    `area` is what the fix shortens, `most` what goes if one operator replaces the loop; `shares` of
    them go: at least, as expected, and at most.
    """

    lines: list[SiteCost]
    ops: CalledOps
    kind: Literal["loop", "updates", "elements", "layers", "tables", "weights", "in turn", "items in turn"]
    area: Intervals
    most: Intervals
    shares: tuple[float, float, float]

    @cached_property
    def places(self) -> list[Location]:
        return [line.location for line in self.lines if line.location is not None]

    @property
    def calls(self) -> int:
        return sum(line.calls for line in self.lines)

    @property
    def longest_line_calls(self) -> int:
        return max(line.calls for line in self.lines)

    def lookups(self, facts: Facts) -> I8:
        """The slices that look up rows of tables."""
        return self.ops.rows[facts.regions.named(op_names.LOOKUPS.__contains__, OP)[self.ops.rows]]


class Visits(Struct, frozen=True):
    """What autograd, zero_grad and the optimizer do for the parameters of a loop, per step."""

    parameters: float
    of: float  # parameters of the model
    ns: float

    @property
    def share(self) -> float:
        return self.parameters / max(1.0, self.of)


def price_of_loop(facts: Facts, loop: Loop, visits: Visits | None) -> Price:
    low, expected, most = loop.shares
    time_ns, most_ns = facts.steps.mean_ns(loop.area), most * facts.steps.mean_ns(loop.most)
    visits_ns = visits.ns if visits is not None else 0.0
    fewer_visits = [] if visits is None else [RemoveHost(facts.parameter_work.area, visits.share)]  # one is left
    whose = "this" if loop.kind in ("updates", "elements") else "these operators'"
    if loop.kind == "layers":
        at_most = f"At most, it drops by {percent(most)}."
    else:
        at_most = (
            f"At most, all lines of {loop.places[0].function or 'the file'} that call as many operators go away "
            f"({ms(most_ns)}), as when one operator replaces a loop."
        )
    left = ", and one parameter is left" if visits is not None else ""
    basis = f"Assumes {whose} time drops by {percent(low)}, or by {percent(expected)}{left}. {at_most}"
    work = in_one_table(facts, loop.lookups(facts), time_ns) if loop.kind == "tables" else None
    if work is not None and work.speedup is not None:
        low, expected, _ = work.shares
        basis = f"{work.words}{left}. {at_most}"
    price = priced(
        facts,
        (low * time_ns, expected * time_ns + visits_ns, most_ns + visits_ns),
        [RemoveHost(loop.area, expected), *fewer_visits],
        basis,
        low=[RemoveHost(loop.area, low)],
        high=[RemoveHost(loop.most, most), *fewer_visits],
    )
    return price if work is None else replace(price, experiments=work.experiments)
