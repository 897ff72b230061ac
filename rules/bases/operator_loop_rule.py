"""Base of LB002 for runs on a CPU: lines that call many operators that are too small to be worth a call."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import NameTotal
from traceopt.analyzer.arrays.intervals import Intervals, merge, subtract, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.autograd.nodes import is_heavy
from traceopt.analyzer.autograd.operator_inputs import nodes_of
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP, PYTHON
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.library_frames import is_array_library_frame
from traceopt.analyzer.work.tiny_ops import CalledOps
from traceopt.result.finding import Evidence, Fix, Location
from traceopt.result.words.effort_and_risk import Risk
from traceopt.result.words.message import ms
from traceopt.rules.evidence import SiteCost, by_site, location_of
from traceopt.rules.fixes.advice.batch_size import larger_batch_risk
from traceopt.rules.fixes.advice.graph_capture import FEW_READS
from traceopt.rules.fixes.advice.operator_loops import (
    ELEMENTS,
    EMBEDDINGS,
    IN_TURN,
    IN_TURN_OVER_ITEMS,
    ITEMS,
    LOOP,
    NORMS,
    PENALTY,
    SMALL_LAYERS,
    UPDATES,
)
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.operator_loops import LAYERS_REMOVABLE, LOOP_REMOVABLE, Loop, Visits, price_of_loop
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.pricing import area_of
from traceopt.rules.savings.work.lookups import with_gradients
from traceopt.rules.step_words import each_step, per_step

ONE_LINE = "Batch many small operations into one"
IF_INDEPENDENT = "Batch the rounds of a loop, if they are independent"
ALL_WEIGHTS = "Treat all weights in one call instead of a loop"
AT_ONCE = "Build the tensor of {function}() at once, or only once"
SEVERAL_LINES = "Reduce the overhead of many small operations"

# Of a loop that writes numbers of Python into elements of a tensor: the element, the number as a tensor, and the write.
ELEMENT = frozenset({"aten::select", "aten::slice"})
NUMBER = frozenset({"aten::lift_fresh", "aten::fill_"})
ITEM = frozenset({"aten::select", "aten::lift_fresh", "aten::detach_"})  # of a tensor, or of a number of Python
WRITE = frozenset({"aten::copy_", "aten::view", "aten::detach_", "aten::to"})

FEW_CALLS = 2  # of a line per step: so many are no loop, whatever they call
MOST_OPERATORS = 0.8  # of a line
SAME = 0.01  # of the weights: calls of an operator in a loop over all of them may differ by so many
Function = tuple[str, str | None]  # file and name


FIXES = {
    "updates": UPDATES,
    "elements": ELEMENTS,
    "weights": UPDATES,
    "tables": EMBEDDINGS,
    "layers": SMALL_LAYERS,
    "loop": LOOP,
    "in turn": IN_TURN,
    "items in turn": IN_TURN_OVER_ITEMS,
}


# What can go wrong with a fix that advises no larger batch.
RISKS = {
    "updates": (Risk.NONE, None),
    "weights": (Risk.NONE, None),
    "elements": (Risk.CORRECTNESS, "Wrong if it is built only once and a step needs other values"),
}


class OperatorLoopRule(Rule):
    """Finds lines that call many tiny operators in a CPU-only run."""

    min_share: float  # these three are thresholds of the rule
    removable_low: float
    removable: float
    update_removable_low: float = threshold(
        0.5, "share of a function's time that one call for all tensors removes, low"
    )
    update_removable: float = threshold(
        0.9, "share of a function's time that one call for all tensors removes, expected"
    )
    min_calls: int = threshold(100, "fewest tiny operators that one line calls per step, on a CPU-only run")
    min_turns: int = threshold(20, "fewest changes between two lines per step that make them lines of one loop")
    min_loop_share: float = threshold(
        0.3, "smallest share of the step to report for a loop whose lines each call fewer tiny operators"
    )
    update_share: float = threshold(0.5, "smallest share of such operators in a function that only updates tensors")
    most_nodes: int = threshold(10, "most backward operators per forward operator of a line: more are of one call")

    def operator_loops(self, facts: Facts) -> Findings:
        ops = facts.called_ops.only_tiny.outside(facts.slices, facts.regions.deep_copy)  # PY003
        whole = self._areas_of_functions(facts)
        for lines in self._of_functions(facts, self._lines_in_turn(facts, ops)):
            loop = self._loop(facts, lines, ops, whole)
            least = self.min_share if self._is_long(facts, loop) else self.min_loop_share
            if facts.steps.mean_ns(loop.area) >= least * facts.step_ns:
                yield self._found(facts, loop)

    def _is_long(self, facts: Facts, loop: Loop) -> bool:
        """Whether one line alone calls many operators."""
        return loop.longest_line_calls >= self.min_calls * facts.steps.count

    def _loop(self, facts: Facts, lines: list[SiteCost], ops: CalledOps, whole: dict[Function, Intervals]) -> Loop:
        mine = with_gradients(facts, ops.only(np.concatenate([line.rows for line in lines])))
        area = union(mine.start, mine.end)
        functions = [_function(line.location) for line in lines if line.location is not None]
        updates = self._update_area(facts, mine)
        if updates is not None:
            most = merge(updates, *(whole.get(function, updates) for function in functions))
            of_numbers: Literal["elements", "updates"] = "elements" if _sets_elements(facts, mine) else "updates"
            return Loop(lines, mine, of_numbers, updates, most, (self.update_removable_low, self.update_removable, 1.0))
        if self._is_one_call(facts, mine.rows):
            return Loop(lines, mine, "layers", area, area, LAYERS_REMOVABLE)
        most = merge(area, *(whole.get(function, area) for function in functions))
        kinds = _main_kinds(facts, mine)
        tables = any("embedding" in kind.name.lower() for kind in kinds[:3])
        if tables or _visits_weights(facts, kinds):  # the rounds do not need each other
            kind: Literal["tables", "weights"] = "tables" if tables else "weights"
            return Loop(lines, mine, kind, area, most, (self.removable_low, self.removable, 1.0))
        visits_items = self._visits_items(facts, mine)
        if mine.between(facts.regions, facts.steps, op_names.HOST_READ) >= FEW_READS:
            layers = any(kind.name in op_names.FORWARD_ONLY for kind in kinds)
            turns: Literal["in turn", "items in turn"] = "items in turn" if visits_items and not layers else "in turn"
            return Loop(lines, mine, turns, area, most, LOOP_REMOVABLE)
        shares = (0.0, self.removable, 1.0) if visits_items else LOOP_REMOVABLE
        return Loop(lines, mine, "loop", area, most, shares)

    def _title(self, facts: Facts, loop: Loop) -> str:
        if loop.kind == "items in turn":
            return IF_INDEPENDENT
        if loop.kind == "elements":
            return AT_ONCE.format(function=loop.places[0].function)
        can_be_one = loop.shares not in (LAYERS_REMOVABLE, LOOP_REMOVABLE)
        return ONE_LINE if can_be_one and self._is_long(facts, loop) else SEVERAL_LINES

    def _found(self, facts: Facts, loop: Loop) -> Priced:
        ops, count, in_turn = loop.ops, facts.steps.count, loop.kind in ("in turn", "items in turn")
        visits = self._visits(facts, loop)
        reads = " The host reads values between the rounds of the loop, and they may decide what the next round does."
        between = reads if in_turn else ""
        kinds = _main_kinds(facts, ops)
        named = ", ".join(f"{len(kind.rows) / count:,.0f} {_operator(kind.name)}" for kind in kinds[:3])
        both = ", forward and backward" if _has_backward(facts, ops.rows) else ""
        of_weights = loop.kind == "weights" or (loop.kind == "updates" and _visits_weights(facts, kinds))
        taker = f"{loop.places[0].function} takes" if loop.kind in ("updates", "elements") else "They take"
        risk, risk_note = RISKS.get(loop.kind, (larger_batch_risk(facts), None))
        why = (
            f"{_lines_call(len(loop.lines))} {loop.calls / count:,.0f} operators {per_step(facts)}{both} "
            f"({named}{' and others' if len(kinds) > 3 else ''}), with a median of {ms(median(ops.end - ops.start))}. "
            f"{taker} {ms(facts.steps.mean_ns(loop.area))} of {each_step(facts)}.{between}"
        )
        if of_weights:
            why += f" It is a loop over the {facts.parameter_work.count:,.0f} weights of the model."
        if visits is not None:
            why += (
                f" They have {visits.parameters:,.0f} of the {visits.of:,.0f} parameters. Autograd, zero_grad and the "
                f"optimizer visit each of them, which takes another {ms(visits.ns)}."
            )
        return self.finding(
            title=ALL_WEIGHTS if of_weights else self._title(facts, loop),
            risk=risk,
            risk_note=risk_note,
            why=why,
            saving=None if loop.kind == "in turn" else price_of_loop(facts, loop, visits),
            confidence="medium" if loop.kind in ("updates", "elements", "tables", "weights") else "low",
            evidence=[
                Evidence(
                    _operator(kind.name),
                    round(kind.total / count / 1e3, 3),
                    round(len(kind.rows) / count, 3),
                    location=location_of(facts, int(kind.rows[0])),
                )
                for kind in kinds[:5]
            ],
            locations=loop.places[:3],
            fix=_fix_of_weights(facts, loop, kinds) if of_weights else _fix(loop, kinds),
        )

    def _visits_items(self, facts: Facts, ops: CalledOps) -> bool:
        """Whether the loop indexes at ever other places, as one over the samples of a batch does. A state of several
        parts is indexed at the same places in each round.
        """
        return ops.indexed_places(facts.regions) >= self.min_turns

    def _visits(self, facts: Facts, loop: Loop) -> Visits | None:
        """None if the fix leaves as many parameters."""
        parameters = int(loop.ops.parameters.sum()) / facts.steps.count
        if parameters < self.min_calls or loop.kind == "layers":
            return None
        work = facts.parameter_work
        visits = Visits(parameters, work.count, 0.0)
        ns = visits.share * facts.steps.mean_ns(subtract(work.area, loop.most))
        return replace(visits, ns=ns) if ns else None

    def _is_one_call(self, facts: Facts, rows: npt.NDArray[np.integer]) -> bool:
        """Whether a call or two of the user's line per step, such as of nn.Sequential, run most of the operators."""
        slices, code = facts.slices, facts.call_sites.code_frames
        called = (slices.parent >= 0) & code[np.maximum(slices.parent, 0)] & ~code
        forward = facts.called_ops.only(rows[~facts.regions.named(op_names.is_backward, OP)[rows]])
        steps = facts.steps.count
        share = forward.share_in_calls(slices, called, FEW_CALLS * steps)
        return share > MOST_OPERATORS and share * len(forward.rows) > self.min_turns * steps

    def _of_functions(self, facts: Facts, groups: list[list[SiteCost]]) -> list[list[SiteCost]]:
        """The groups of lines; in training, those of one function whose operators have no backward are one."""
        joined = dict[Function | int, list[SiteCost]]()
        for number, lines in enumerate(groups):
            place = lines[0].location
            rows = np.concatenate([line.rows for line in lines])
            alone = place is None or not facts.trains or _is_trained(facts, rows)
            joined.setdefault(number if alone or place is None else _function(place), []).extend(lines)
        return list(joined.values())

    def _update_area(self, facts: Facts, ops: CalledOps) -> Intervals | None:
        """When the function ran that calls these operators, if it mostly does that: it updates averages or computes
        metrics, tensor by tensor; without what NumPy and the like compute in it. None if their results are trained or
        decide what the next round does, or the function does much else.
        """
        conditions, choices, picks = (
            ops.between(facts.regions, facts.steps, *names)
            for names in ((op_names.CONDITION,), op_names.CHOICES, op_names.LOOKUPS)
        )
        decide = max(conditions, min(choices, picks)) >= FEW_READS  # what is chosen may be picked in the next round
        if not facts.trains or decide or _is_trained(facts, ops.rows):
            return None
        slices = facts.slices
        calls = facts.called_ops.functions_of(ops, slices, facts.call_sites.code_frames, self.update_share)
        if not len(calls) or not facts.steps.host_window.contains(slices.start[calls]).all():
            return None
        arrays = facts.regions.area(facts.regions.named(is_array_library_frame, PYTHON), facts.steps.thread)
        return subtract(slices.area_of(calls), merge(area_of(facts, facts.deep_copies), arrays))

    def _lines_in_turn(self, facts: Facts, ops: CalledOps) -> list[list[SiteCost]]:
        """The lines that call many operators per step, most expensive first. Lines that a loop runs in turn are one."""
        nodes = facts.regions.named(op_names.is_backward, OP)
        steps = facts.steps.count
        lines = [
            line
            for line in by_site(facts, ops.rows, ops.end - ops.start)
            if line.location
            and line.calls >= self.min_turns * steps
            and nodes[line.rows].sum() <= self.most_nodes * (~nodes[line.rows]).sum()
        ]
        line_of = np.full(len(facts.slices), -1)
        for number, line in enumerate(lines):
            line_of[line.rows] = number
        loop = list(range(len(lines)))
        for one, other in ops.turns(line_of, self.min_turns * steps):
            loop = [loop[one] if number == loop[other] else number for number in loop]
        groups = [
            [line for line, its in zip(lines, loop, strict=True) if its == number] for number in dict.fromkeys(loop)
        ]
        return [group for group in groups if sum(line.calls for line in group) >= self.min_calls * steps]

    def _areas_of_functions(self, facts: Facts) -> dict[Function, Intervals]:
        """When each function ran the lines that call many operators per step, of any size: its loops."""
        ops, areas = facts.called_ops, dict[Function, list[Intervals]]()
        for site in by_site(facts, ops.rows, ops.end - ops.start):
            if site.location is not None and site.calls >= self.min_calls * facts.steps.count:
                mine = ops.only(site.rows)
                areas.setdefault(_function(site.location), []).append(union(mine.start, mine.end))
        return {function: merge(*of_lines) for function, of_lines in areas.items()}


def _main_kinds(facts: Facts, ops: CalledOps) -> list[NameTotal]:
    """Operators by name, most calls first."""
    return sorted(facts.slices_by_name(ops.rows, ops.end - ops.start), key=lambda kind: -len(kind.rows))


def _sets_elements(facts: Facts, ops: CalledOps) -> bool:
    """Whether the operators only write numbers of Python into parts of tensors."""
    names = {kind.name for kind in _main_kinds(facts, ops)}
    return bool(names & ELEMENT and names & NUMBER) and names <= ELEMENT | NUMBER | WRITE


def _visits_weights(facts: Facts, kinds: list[NameTotal]) -> bool:
    """Whether the loop calls each of its main operators once or twice for each weight, and none of them is a layer."""
    weights = facts.parameter_work.count * facts.steps.count
    layers = any(is_heavy(kind.name) or kind.name in op_names.FORWARD_ONLY for kind in kinds)
    if layers or not weights:
        return False
    return all(min(abs(len(kind.rows) - n * weights) for n in (1, 2)) <= SAME * weights for kind in kinds[:2])


def _fix(loop: Loop, kinds: list[NameTotal]) -> Fix:
    by_item = loop.kind == "updates" and any(kind.name in ITEM for kind in kinds[:5])
    return ITEMS if by_item else FIXES[loop.kind]


def _fix_of_weights(facts: Facts, loop: Loop, kinds: list[NameTotal]) -> Fix:
    if _is_trained(facts, loop.ops.rows):
        return PENALTY
    return NORMS if any("norm" in kind.name for kind in kinds) else UPDATES


def _has_backward(facts: Facts, rows: npt.NDArray[np.integer]) -> bool:
    return bool(facts.regions.named(op_names.is_backward, OP)[rows].any())


def _is_trained(facts: Facts, rows: I8) -> bool:
    """Whether the backward pass runs nodes of these operators, which may be too large to be among them."""
    return _has_backward(facts, rows) or len(nodes_of(facts.regions, np.sort(rows))[0]) > 0


def _lines_call(lines: int) -> str:
    return "One line calls" if lines == 1 else f"{lines} lines of a loop call"


def _function(location: Location) -> Function:
    return location.file, location.function


def _operator(name: str) -> str:
    """ "MulBackward0" for the node of the autograd engine that runs it."""
    return name.removeprefix("autograd::engine::evaluate_function: ")
