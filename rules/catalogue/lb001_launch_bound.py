"""LB001: the host launches work more slowly than the device runs it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.host_activities import LONG_WORK, UNTRACED_PYTHON
from traceopt.analyzer.work.tiny_ops import CalledOps
from traceopt.rules import (
    I8,
    OP,
    RECORD_STACKS,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    Location,
    RemoveHost,
    Rule,
    SiteCost,
    area_of,
    by_site,
    dispatch_area,
    dispatch_ns,
    each_step,
    launch_confidence,
    location_of,
    median,
    merge,
    microseconds,
    ms,
    passes_area,
    passes_ns,
    per_step,
    percent,
    priced,
    starved_ns,
    subtract,
    the_step,
    threshold,
    union,
)
from traceopt.rules.advice.batch_size import larger_batch_risk
from traceopt.rules.advice.compilation import compiled, engine_graphs, replayed
from traceopt.rules.advice.graph_capture import blockers
from traceopt.rules.savings.starvation import dispatch_amount, passes_amount

GRAPHS = 'model = torch.compile(model, mode="reduce-overhead")'
TITLE = "Batch many small operations into one"
EMBEDDINGS = Fix(
    "Join the tables and look up all features at once, let torch.compile fuse the operators, or raise the batch size.",
    "table = nn.Embedding(sum(sizes), width)             # instead of one for each feature\n"
    "vectors = table(values + first_row).flatten(1)      # first_row: where each feature begins",
)
UPDATES = Fix(
    "If the loop runs over tensors, such as parameters, update all of them with one call of torch._foreach_mul_, "
    "torch._foreach_add_ or torch._foreach_lerp_. If it runs over the elements of a tensor, use one operator on the "
    "whole tensor.",
    "torch._foreach_lerp_(averages, parameters, 1 - decay)  # instead of a loop over the tensors",
)
SMALL_LAYERS = Fix(
    "One call runs many small layers. Use a larger batch, so that each operator computes more, or compile the model.",
    "model = torch.compile(model)",
)
FEW_CALLS = 2  # of a line per step: so many are no loop, whatever they call
MOST_OPERATORS = 0.8  # of a line
LAYERS_REMOVABLE = 0.0, 0.3, 0.7  # of the time of small layers: low, expected, high; their work stays
LOOP = Fix(
    "If rounds of the loop do not need each other's results, stack their tensors and run one operator on all of them. "
    "Otherwise compile the function that runs the loop: to compile only what each round calls may cost more than it "
    "saves. A larger batch also helps, because each operator then computes more.",
    "@torch.compile\ndef solve(function, state, times):  # the function with the loop\n    ...",
)


class LaunchBound(Rule):
    """Measures how long the GPU is idle because its next kernel was not launched yet, while the host did its ordinary
    work: operators, launch calls, short Python between them. This leaves short gaps, because every launch ends one. In
    a gap of a millisecond or longer the host does something else: Python (LB006), operators that compute on the CPU
    (LB007), data loading, syncs, logging, first calls, compilation, or nothing that was recorded. On a CPU-only run:
    operators of a few microseconds that one line calls a hundred times a step or more, forward and backward, with the
    Python between them. Arithmetic on more than 16,384 elements does not count. Lines that a loop runs in turn are one
    finding; if each calls fewer such operators, the loop has to take a large part of the step.

    Why it costs: each operator costs the host about ten microseconds. A shorter kernel finishes before the next one
    arrives. The same holds on a CPU: an operator on a few numbers takes longer to call than to compute.

    How to fix, cheapest first: a larger batch makes every kernel longer at the same number of launches; `torch.compile`
    fuses kernels; CUDA graphs replay a whole step with one launch.

        model = torch.compile(model, mode="reduce-overhead")   # fusion and CUDA graphs

    Fused optimizers, fewer Python hooks and fewer tiny operators also help: one embedding with offsets instead of a
    list of embeddings, torch.stack and one matmul instead of a loop, nn.LSTM instead of a loop over time steps. On a
    CPU the range is wide for such a loop: at most, all operators that its lines call go away, of any size. If each
    iteration has parameters of its own, one operator needs one parameter. Then the work for each parameter goes, too:
    autograd's accumulation, zero_grad, the optimizer. If a function of a training step mostly calls such operators
    without a backward, as for averages of the weights or metrics, all of its time counts. If one call of the line, such
    as of nn.Sequential, runs them, they are small layers and no loop: between nothing and 70 % of their time goes.

    On a GPU, the estimate replays the step with 70 % less launch time, and no more than this wait counts. A kernel that
    takes longer than its faster launch is not waited for at all, so the whole wait may go. LB002 does the same with
    85 %: a graph replaces nearly all launches, while the remedies here keep a part of them.

    In training, the waits in the optimizer and in `zero_grad` do not count: compiling the model does not change them.
    OP001, OP002 and OP003 price them.

    If torch.compile made most kernels, graphs launch most of them, or a serving engine runs, the finding says what is
    left to do.

    The rule is silent if the only recorded step has most of its idle time in a few long gaps.

    When it is wrong: recording stacks and shapes slows the host by a third or more, so the share without the profiler
    is smaller. A step that waits for other ranks or for data may look launch-bound just after the wait.

    Sources: PyTorch, "Accelerating PyTorch with CUDA Graphs"; NVIDIA, "CUDA Graphs" programming guide chapter.
    """

    code = "LB001"
    name = "launch-bound"
    title = "Reduce launch overhead: larger batch, torch.compile or CUDA graphs"
    family = "launch and dispatch"
    effort = "One line, then testing"
    risk = "A larger batch may change convergence"
    requires = ("work", "whole", "launches")

    min_share: float = threshold(0.04, "smallest GPU wait for launches, as a share of the step, to report")
    min_gaps: int = threshold(10, "fewest waits for launches in the recording: a few have causes of their own")
    removable_low: float = threshold(0.3, "share of the launch time that the fix removes, low")
    removable: float = threshold(0.7, "share of the launch time that the fix removes, expected")
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

    def applies(self, facts: Facts) -> str | None:
        return None if facts.has_gpu or facts.call_sites.recorded else RECORD_STACKS

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self._on_cpu(facts)

    def _on_gpu(self, facts: Facts) -> Findings:
        if _waits_long_in_its_only_step(facts):
            return
        starved = dispatch_ns(facts)
        whole = _fix_covers_updates(facts)
        waits = dispatch_amount(facts) if whole else passes_amount(facts)
        area = dispatch_area(facts) if whole else passes_area(facts)
        covered = float(waits.sum()) / facts.steps.count
        if covered < self.min_share * facts.step_ns or np.count_nonzero(waits) < self.min_gaps:
            return
        kernels = facts.gpu.is_kernel & facts.gpu.is_inside
        count = int(kernels.sum()) / facts.steps.count
        usual = median(facts.gpu.work.duration[kernels]) if kernels.any() else 0.0
        evidence, locations = self._evidence(facts, waits)
        title, fix = _remedy(facts)
        blocks = blockers(facts)[0] if fix.code == GRAPHS else []
        if blocks:
            fix = Fix(f"{fix.text} One CUDA graph cannot hold all of it: the step {' and '.join(blocks)}.", fix.code)
        in_passes = f", {ms(covered)} of it in the forward and backward passes" if covered < starved else ""
        yield self.finding(
            title=title,
            risk=larger_batch_risk(facts),
            why=(
                f"The GPU waits {ms(starved)} of {each_step(facts)} for kernels that the host has not "
                f"launched yet{in_passes}. {count:,.0f} kernels run {per_step(facts)}, with a median of "
                f"{microseconds(usual)}."
            ),
            saving=priced(
                facts,
                (self.removable_low * covered, covered, covered),
                [RemoveHost(area, self.removable)],
                f"Assumes launch time drops by {percent(self.removable_low)}, {percent(self.removable)} or 100%, "
                "capped at the GPU's wait for launches"
                f"{' outside the optimizer and zero_grad' if covered < starved else ''}.",
                low=[RemoveHost(area, self.removable_low)],
                high=[RemoveHost(area)],
                without_replay_ns=self.removable * covered,
            ),
            confidence="medium" if blocks and launch_confidence(facts) == "high" else launch_confidence(facts),
            evidence=evidence,
            locations=locations,
            fix=fix,
        )

    def _evidence(self, facts: Facts, waits: I8) -> tuple[list[Evidence], list[Location]]:
        """The operators whose first kernel the GPU waited for, longest wait first, with their source lines. `waits`: ns
        of each idle gap.
        """
        gaps = facts.gaps
        out, places = [], []
        for group in facts.gaps_by_operator(waits)[:5]:
            longest = int(group.rows[waits[group.rows].argmax()])
            place = location_of(facts, int(facts.links.launch_slice[facts.gpu.rows[gaps.next_row[longest]]]))
            out.append(
                Evidence(
                    what=f"Waiting for {group.name or 'launches outside any operator'}",
                    us_per_step=round(group.total / facts.steps.count / 1e3, 3),
                    calls_per_step=round(len(group.rows) / facts.steps.count, 3),
                    location=place,
                )
            )
            places += [place] if place is not None and place not in places else []
        return out, places[:3]

    def _on_cpu(self, facts: Facts) -> Findings:
        ops, count = facts.called_ops.only_tiny, facts.steps.count
        ops = ops.outside(facts.slices, facts.regions.deep_copy)  # PY003
        loops = self._loops(facts)
        for lines in self._of_functions(facts, self._lines_in_turn(facts, ops)):
            places = [line.location for line in lines if line.location is not None]
            mine = ops.only(np.concatenate([line.rows for line in lines]))
            updates = self._update_area(facts, mine)
            if updates is None:
                area, low, expected = union(mine.start, mine.end), self.removable_low, self.removable
            else:
                area, low, expected = updates, self.update_removable_low, self.update_removable
            layers = updates is None and self._is_one_call(facts, mine.rows)
            if layers:
                low, expected, _ = LAYERS_REMOVABLE
            time_ns = facts.steps.mean_ns(area)
            one_line = any(line.calls >= self.min_calls * count for line in lines)
            if time_ns < (self.min_share if one_line else self.min_loop_share) * facts.step_ns:
                continue
            calls = sum(line.calls for line in lines)
            both = ", forward and backward" if self._has_backward(facts, mine.rows) else ""
            taker, whose = (
                ("They take", "these operators'") if updates is None else (f"{places[0].function} takes", "this")
            )
            kinds = sorted(facts.slices_by_name(mine.rows, mine.end - mine.start), key=lambda kind: -len(kind.rows))
            loop = area if layers else merge(area, *(loops.get(_function(place), area) for place in places))
            most = LAYERS_REMOVABLE[2] if layers else 1.0
            loop_ns = most * facts.steps.mean_ns(loop)
            own = int(mine.parameters.sum()) / count
            visits, visited = facts.parameter_work, own / max(1.0, facts.parameter_work.count)
            merges = own >= self.min_calls and not layers
            visits_ns = visited * facts.steps.mean_ns(subtract(visits.area, loop)) if merges else 0.0
            fewer_visits = [RemoveHost(visits.area, visited)] if visits_ns else []  # one parameter is left
            named = ", ".join(f"{len(kind.rows) / count:,.0f} {_operator(kind.name)}" for kind in kinds[:3])
            yield self.finding(
                title=TITLE if one_line and not layers else "Reduce the overhead of many small operations",
                risk=larger_batch_risk(facts),
                why=(
                    f"{_lines_call(len(lines))} {calls / count:,.0f} operators {per_step(facts)}{both} "
                    f"({named}{' and others' if len(kinds) > 3 else ''}), with a median of "
                    f"{ms(median(mine.end - mine.start))}. {taker} {ms(time_ns)} of {each_step(facts)}."
                    + (
                        f" They have {own:,.0f} of the {visits.count:,.0f} parameters. Autograd, zero_grad and the "
                        f"optimizer visit each of them, which takes another {ms(visits_ns)}."
                        if visits_ns
                        else ""
                    )
                ),
                saving=priced(
                    facts,
                    (low * time_ns, expected * time_ns + visits_ns, loop_ns + visits_ns),
                    [RemoveHost(area, expected), *fewer_visits],
                    f"Assumes {whose} time drops by {percent(low)}, or by "
                    f"{percent(expected)}{', and one parameter is left' if visits_ns else ''}. "
                    + (
                        f"At most, it drops by {percent(most)}."
                        if layers
                        else f"At most, all lines of {places[0].function or 'the file'} that call as many operators go "
                        f"away ({ms(loop_ns)}), as when one operator replaces a loop."
                    ),
                    low=[RemoveHost(area, low)],
                    high=[RemoveHost(loop, most), *fewer_visits],
                ),
                confidence="low" if layers else "medium",
                evidence=[
                    Evidence(
                        _operator(kind.name),
                        round(kind.total / count / 1e3, 3),
                        round(len(kind.rows) / count, 3),
                        location=location_of(facts, int(kind.rows[0])),
                    )
                    for kind in kinds[:5]
                ],
                locations=places[:3],
                fix=SMALL_LAYERS
                if layers
                else EMBEDDINGS
                if any("embedding" in kind.name.lower() for kind in kinds[:3])
                else LOOP
                if updates is None
                else UPDATES,
            )

    def _is_one_call(self, facts: Facts, rows: npt.NDArray[np.integer]) -> bool:
        """Whether a call or two of the user's line per step, such as of nn.Sequential, run most of the operators."""
        slices, code = facts.slices, facts.call_sites.code_frames
        called = (slices.parent >= 0) & code[np.maximum(slices.parent, 0)] & ~code
        forward = facts.called_ops.only(rows[~facts.regions.named(op_names.is_backward, OP)[rows]])
        steps = facts.steps.count
        share = forward.share_in_calls(slices, called, FEW_CALLS * steps)
        return share > MOST_OPERATORS and share * len(forward.rows) > self.min_turns * steps

    def _has_backward(self, facts: Facts, rows: npt.NDArray[np.integer]) -> bool:
        return bool(facts.regions.named(op_names.is_backward, OP)[rows].any())

    def _of_functions(self, facts: Facts, groups: list[list[SiteCost]]) -> list[list[SiteCost]]:
        """The groups of lines; in training, those of one function whose operators have no backward are one."""
        joined = dict[tuple[str, str | None] | int, list[SiteCost]]()
        for number, lines in enumerate(groups):
            place = lines[0].location
            rows = np.concatenate([line.rows for line in lines])
            alone = place is None or not facts.trains or self._has_backward(facts, rows)
            joined.setdefault(number if alone or place is None else _function(place), []).extend(lines)
        return list(joined.values())

    def _update_area(self, facts: Facts, ops: CalledOps) -> Intervals | None:
        """When the function ran that calls these operators, if it mostly does that: it updates averages or computes
        metrics, tensor by tensor. None if their results are trained, or the function does much else.
        """
        if not facts.trains or self._has_backward(facts, ops.rows):
            return None
        slices = facts.slices
        calls = facts.called_ops.functions_of(ops, slices, facts.call_sites.code_frames, self.update_share)
        if not len(calls) or not facts.steps.host_window.contains(slices.start[calls]).all():
            return None
        return subtract(union(slices.start[calls], slices.end[calls]), area_of(facts, facts.deep_copies))

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

    def _loops(self, facts: Facts) -> dict[tuple[str, str | None], Intervals]:
        """When each function ran the lines that call many operators per step, of any size: its loops."""
        ops, areas = facts.called_ops, dict[tuple[str, str | None], list[Intervals]]()
        for site in by_site(facts, ops.rows, ops.end - ops.start):
            if site.location is not None and site.calls >= self.min_calls * facts.steps.count:
                mine = ops.only(site.rows)
                areas.setdefault(_function(site.location), []).append(union(mine.start, mine.end))
        return {function: merge(*of_lines) for function, of_lines in areas.items()}

    def passed(self, facts: Facts) -> str:
        if not facts.has_gpu:
            return "No line calls many tiny operators."
        starved = dispatch_ns(facts)
        covered = starved if _fix_covers_updates(facts) else passes_ns(facts)
        where = " in the forward and backward passes" if covered < starved else ""
        waits = f"The GPU waits for launches{where} for {percent(covered / facts.step_ns)} of {the_step(facts)}."
        if not _waits_long_in_its_only_step(facts):
            return waits
        return f"{waits} It waits longer in a few long gaps, and one step does not show whether it is a usual one."


def _lines_call(lines: int) -> str:
    return "One line calls" if lines == 1 else f"{lines} lines of a loop call"


def _function(location: Location) -> tuple[str, str | None]:
    return location.file, location.function


def _operator(name: str) -> str:
    """ "MulBackward0" for the node of the autograd engine that runs it."""
    return name.removeprefix("autograd::engine::evaluate_function: ")


def _waits_long_in_its_only_step(facts: Facts) -> bool:
    """Whether a few long gaps hold most of the host's time. One step cannot show whether they recur."""
    long_ns = starved_ns(facts, *LONG_WORK, UNTRACED_PYTHON)
    return facts.steps.count == 1 and dispatch_ns(facts) < long_ns


def _fix_covers_updates(facts: Facts) -> bool:
    """Whether the fix also covers the optimizer and `zero_grad`. Compiling the model does not."""
    return replayed(facts) is not None


def _remedy(facts: Facts) -> tuple[str | None, Fix]:
    """Title (None: the rule's) and fix. Code that is compiled, replayed or served already is not told to become so."""
    if (graphs := replayed(facts)) is not None:
        text = f"{graphs} Capture what still runs outside them (see the evidence), or raise the batch size."
        return "Reduce launch overhead outside the CUDA graphs", Fix(text)
    if (engine := engine_graphs(facts)) is not None:
        return "Reduce launch overhead: the engine's CUDA graphs", Fix(
            f"{engine}. Larger batches of requests also help."
        )
    if compiled(facts):
        text = (
            "The model is compiled already. Raise the batch size if memory allows, or let the compiler replay its "
            "kernels as CUDA graphs (mode='reduce-overhead')."
        )
        return "Reduce launch overhead: larger batch or CUDA graphs", Fix(text, GRAPHS)
    text = (
        "Raise the batch size if memory allows. Otherwise use torch.compile, which fuses kernels and (with "
        "mode='reduce-overhead') replays them as CUDA graphs."
    )
    return None, Fix(text, GRAPHS)
