"""LB001: the host launches work more slowly than the device runs it."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.vocabulary.host_activities import LONG_WORK, UNTRACED_PYTHON
from traceopt.rules import (
    CUDA_GRAPH,
    I8,
    RECORD_STACKS,
    Evidence,
    Facts,
    Findings,
    Fix,
    Location,
    RemoveHost,
    dispatch_area,
    dispatch_ns,
    each_step,
    launch_confidence,
    location_of,
    median,
    microseconds,
    ms,
    named,
    passes_area,
    passes_ns,
    per_step,
    percent,
    priced,
    starved_ns,
    the_step,
    threshold,
)
from traceopt.rules.bases.operator_loop_rule import OperatorLoopRule
from traceopt.rules.fixes.advice.batch_size import larger_batch_risk
from traceopt.rules.fixes.advice.compilation import compiled, engine_graphs, replayed
from traceopt.rules.fixes.advice.graph_capture import blockers
from traceopt.rules.savings.starvation import dispatch_amount, passes_amount

GRAPHS = 'model = torch.compile(model, mode="reduce-overhead")'


class LaunchBound(OperatorLoopRule):
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
    title = f"Reduce launch overhead: larger batch, torch.compile or {CUDA_GRAPH}s"
    family = "launch and dispatch"
    effort = "One line, then testing"
    risk = "A larger batch may change convergence"
    requires = ("work", "whole", "launches")

    min_share: float = threshold(0.04, "smallest GPU wait for launches, as a share of the step, to report")
    min_gaps: int = threshold(10, "fewest waits for launches in the recording: a few have causes of their own")
    removable_low: float = threshold(0.3, "share of the launch time that the fix removes, low")
    removable: float = threshold(0.7, "share of the launch time that the fix removes, expected")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.has_gpu or facts.call_sites.recorded else RECORD_STACKS

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self.operator_loops(facts)

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
            fix = Fix(fix.text + f" One {CUDA_GRAPH} cannot hold all of it: the step {' and '.join(blocks)}.", fix.code)
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
                    what=f"Waiting for {named(group.name) if group.name else 'launches outside any operator'}",
                    us_per_step=round(group.total / facts.steps.count / 1e3, 3),
                    calls_per_step=round(len(group.rows) / facts.steps.count, 3),
                    location=place,
                )
            )
            places += [place] if place is not None and place not in places else []
        return out, places[:3]

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
        return f"Reduce launch overhead outside the {CUDA_GRAPH}s", Fix(text)
    if (engine := engine_graphs(facts)) is not None:
        return f"Reduce launch overhead: the engine's {CUDA_GRAPH}s", Fix(
            f"{engine}. Larger batches of requests also help."
        )
    if compiled(facts):
        text = (
            "The model is compiled already. Raise the batch size if memory allows, or let the compiler replay its "
            f"kernels as {CUDA_GRAPH}s (mode='reduce-overhead')."
        )
        return f"Reduce launch overhead: larger batch or {CUDA_GRAPH}s", Fix(text, GRAPHS)
    text = (
        "Raise the batch size if memory allows. Otherwise use torch.compile, which fuses kernels and (with "
        f"mode='reduce-overhead') replays them as {CUDA_GRAPH}s."
    )
    return None, Fix(text, GRAPHS)
