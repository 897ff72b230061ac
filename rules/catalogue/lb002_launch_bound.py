"""LB002: the host launches work more slowly than the device runs it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.causes.table import LONG_WORK, UNTRACED_PYTHON
from traceopt.rules import (
    CUDA_GRAPH,
    I8,
    RECORD_STACKS,
    Confidence,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Former,
    Intervals,
    Location,
    RemoveHost,
    Risk,
    by_site,
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
    site_locations,
    starved_ns,
    subtract,
    the_step,
    threshold,
)
from traceopt.rules.bases.operator_loop_rule import OperatorLoopRule
from traceopt.rules.fixes.advice.batch_size import larger_batch_risk
from traceopt.rules.fixes.advice.compilation import compiled, replayed
from traceopt.rules.fixes.advice.expert_loops import GROUPED, loops_over_experts
from traceopt.rules.fixes.advice.fewer_launches import FEWER_ROUNDS, GRAPHS, decoding_fix, fewer_launches_fix, graph_fix
from traceopt.rules.fixes.advice.graph_capture import blockers, rounds_in_turn
from traceopt.rules.savings.starvation import dispatch_amount, passes_amount
from traceopt.rules.savings.work.merged_gemms import place

MOST_LAUNCHES = 0.8  # of the main thread's launches: the innermost function with this share runs the step
MOST_OPERATORS = 5
MOST_PLACES = 3
CONFIDENCES = ("low", "medium", "high")


class LaunchWaits(Struct, frozen=True):
    """The GPU's waits for launches that a fix can shorten. `amount`: of each idle gap, ns. `area`: the host's work
    behind them. Compiling the model changes neither the optimizer nor `zero_grad`, and what is captured adds nothing to
    the launch of the graphs that replay already.
    """

    amount: I8
    area: Intervals
    per_step_ns: float
    but: str = ""  # a part of a sentence; empty if no waits are left out
    left_out: str = ""  # their name


class Remedy(Struct, frozen=True):
    """One way to launch less: what the trace shows for it, and how much of the launch time it removes."""

    fix: Fix
    why: str
    low: float
    removable: float
    evidence: list[Evidence]
    locations: list[Location]
    title: str | None = None
    effort: Effort | None = None
    risk: Risk | None = None
    risk_note: str | None = None
    graph: bool = True  # one launch replays many; at most, also those of the optimizer
    confidence: Confidence | None = None  # at most


class LaunchBound(OperatorLoopRule):
    """Measures how long the GPU is idle because its next kernel was not launched yet, while the host did its ordinary
    work: operators, launch calls, short Python between them. This leaves short gaps, because every launch ends one. In
    a gap of a millisecond or longer the host does something else: Python (LB006), operators that compute on the CPU
    (LB007), data loading, syncs, logging, first calls, compilation, or nothing that was recorded. On a CPU-only run:
    operators of a few microseconds that one line calls a hundred times a step or more, forward and backward, with the
    Python between them. Arithmetic on more than 16,384 elements does not count. Lines that a loop runs in turn are one
    finding; if each calls fewer such operators, the loop has to take a large part of the step.

    Why it costs: each operator costs the host about ten microseconds. A shorter kernel finishes before the next one
    arrives. The same holds on a CPU: an operator on a few numbers takes longer to call than to compute. A decoder that
    generates one token at a time repeats hundreds of launches for microseconds of work each.

    How to fix, cheapest first: a larger batch makes every kernel longer at the same number of launches; `torch.compile`
    fuses kernels; CUDA graphs replay a whole step with one launch.

        model = torch.compile(model, mode="reduce-overhead")          # fusion and CUDA graphs
        model = torch.cuda.make_graphed_callables(model, (sample,))   # forward and backward as graphs, by hand

    A graph is the fix if all steps launch the same kernels, with the same grids, in the same order, and nothing blocks
    the capture: syncs, driver allocations. Everything inside it must stay on the GPU. Read the loss outside it, and
    keep shapes and addresses fixed (static input tensors, a capturable optimizer). Decoding needs a fixed-size KV cache
    or an inference engine. With the launches gone, reading the weights is the limit. Then 8-bit or 4-bit weights help.

        model.generation_config.cache_implementation = "static"        # Hugging Face
        model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)

        vllm serve MODEL      # also: TGI, SGLang, TensorRT-LLM, llama.cpp

    Inference that records an autograd graph spends time on it with each operator. `model.eval()` does not switch it
    off.

        with torch.inference_mode():
            logits = model(inputs)

    A mixture of experts that finds the tokens of one expert after the other and multiplies them needs one grouped
    matmul for all: torch.nn.functional.grouped_mm, or experts_implementation="grouped_mm" in Transformers 5.

    Fused optimizers, fewer Python hooks and fewer tiny operators also help: one embedding with offsets instead of a
    list of embeddings, torch.stack and one matmul instead of a loop, nn.LSTM instead of a loop over time steps. On a
    CPU the range is wide for such a loop: at most, all operators that its lines call go away, of any size. If each
    iteration has parameters of its own, one operator needs one parameter. Then the work for each parameter goes, too:
    autograd's accumulation, zero_grad, the optimizer. `traceopt run` and `traceopt measure` measure lookups in many
    tables and in one; the Python and the slices of the loop go, too. If a function of a training step mostly calls such
    operators without a backward, as for averages of the weights or metrics, all of its time counts. If one call of the
    line, such as of nn.Sequential, runs them, they are small layers and no loop: between nothing and 70 % of their time
    goes.

    On a GPU, the estimate replays the step with 70 % less launch time, or 85 % less where a graph is the fix, and no
    more than this wait counts, or the same share of it in a recording of one step. A kernel that takes longer than its
    faster launch is not waited for at all, so the whole wait may go. In training, the waits in the optimizer, in
    `zero_grad` and in copies of inputs do not count, except at most in a graph: compiling the model does not change
    them. OP001, OP002, OP003 and DL003 price them. Nor do waits between copies that block the host (DL003).

    If torch.compile made most kernels, graphs launch most of them, or a serving engine runs, the finding says what is
    left to do. The launch of a graph that replays already, as of a decoding step, is not part of the saving. If a line
    reads values again and again within the step, as in a solver of differential equations or an environment of
    reinforcement learning, each round waits for the one before: compiling and graphs then help little, or make it
    slower, so the range begins at 0 on a GPU, and there is no saving in a CPU-only run. Rounds that also index at ever
    other places and run no layers, as of a loop over pairs of samples, may be independent: they have a saving. Any loop
    of a CPU-only run may be such a loop as well: its range begins at 0. The rule is silent if the only recorded step
    has most of its idle time in a few long gaps.

    When it is wrong: recording stacks and shapes slows the host by a third or more, so the share without the profiler
    is smaller. A step that waits for other ranks or for data may look launch-bound just after the wait. Kernels in a
    graph cannot use values that change from step to step (a learning rate as a Python number, random states).

    Sources: PyTorch, "Accelerating PyTorch with CUDA Graphs"; PyTorch documentation of torch.cuda.CUDAGraph,
    constraints; PyTorch blog, "Accelerating Generative AI with PyTorch II: GPT, Fast" (2023); Hugging Face
    documentation, "LLM inference optimization" and "Experts backends"; NVIDIA, "CUDA Graphs" programming guide chapter.
    """

    code = "LB002"
    name = "launch-bound"
    title = f"Reduce launch overhead: larger batch, torch.compile or {CUDA_GRAPH}s"
    family = "launch and dispatch"
    effort = Effort.ONE_LINE_TESTED
    risk = Risk.CONVERGENCE
    risk_note = "A larger batch may change convergence"
    requires = ("work", "whole", "launches")
    former = (
        Former("LB001", "launch-bound"),
        Former(
            "LB002",
            "cuda-graph-candidate",
            {"min_share": "min_graph_share", "removable": "removable_by_graph", "removable_blocked": None},
        ),
        Former("IN001", "autograd-in-inference", {"min_share": None, "node_us": None}),
        Former("IN002", "decode-launch-bound", {"min_share": "min_decode_share", "removable": "removable_by_graph"}),
    )

    min_share: float = threshold(0.04, "smallest GPU wait for launches, as a share of the step, to report")
    min_gaps: int = threshold(10, "fewest waits for launches in the recording: a few have causes of their own")
    removable_low: float = threshold(0.3, "share of the launch time that the fix removes, low")
    removable: float = threshold(0.7, "share of the launch time that the fix removes, expected")
    removable_by_graph: float = threshold(0.85, "share of the launch time that a graph removes, expected")
    min_graph_share: float = threshold(0.03, "smallest GPU wait for launches that a graph can replay, as a share")
    min_steps: int = threshold(3, "fewest recorded steps needed to compare them")
    min_same: float = threshold(0.66, "smallest share of steps with the same kernels and grids")
    max_replayed: float = threshold(0.50, "largest share of kernels that graphs already launch")
    min_decode_share: float = threshold(0.20, "smallest GPU wait for launches of a decoder, as a share of the step")
    max_rows: int = threshold(16, "most rows of a matmul that count as token-by-token decoding")
    min_few_rows: float = threshold(0.80, "smallest share of matmuls with so few rows")
    min_products: int = threshold(20, "fewest matmuls per step that count as a decoder")
    min_nodes: int = threshold(20, "fewest autograd nodes per step of inference that count as a recorded graph")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.has_gpu or facts.call_sites.recorded else RECORD_STACKS

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self.operator_loops(facts)

    def _on_gpu(self, facts: Facts) -> Findings:
        waits = _waits(facts)
        remedy = self._for_decoding(facts) or self._graph(facts, waits) or self._fewer_launches(facts, waits)
        if remedy is None:
            return
        starved, covered = dispatch_ns(facts), waits.per_step_ns
        # After the only recorded step nothing shows which launches a faster host would hide behind the GPU's work.
        expected_ns = covered if facts.recorded_steps.count > 1 else remedy.removable * covered
        most_ns, most_area = (starved, dispatch_area(facts)) if remedy.graph else (covered, waits.area)
        longest, places = _longest(facts, waits.amount)
        yield self.finding(
            title=remedy.title,
            effort=remedy.effort,
            risk=remedy.risk,
            risk_note=remedy.risk_note,
            why=(
                f"The GPU waits {ms(starved)} of {each_step(facts)} for kernels that the host has not launched "
                f"yet{waits.but}. {remedy.why}"
            ),
            saving=priced(
                facts,
                (remedy.low * covered, expected_ns, most_ns),
                [RemoveHost(waits.area, remedy.removable)],
                _basis(remedy, waits),
                low=[RemoveHost(waits.area, remedy.low)],
                high=[RemoveHost(most_area)],
                without_replay_ns=remedy.removable * covered,
            ),
            confidence=min((remedy.confidence or "high", launch_confidence(facts)), key=CONFIDENCES.index),
            evidence=[*remedy.evidence, *longest],
            locations=remedy.locations or places,
            fix=self._without_autograd(facts, remedy.fix),
        )

    def _without_autograd(self, facts: Facts, fix: Fix) -> Fix:
        """The fix, and what also makes launches of inference cheaper if it records a graph for a backward pass."""
        if not facts.infers or facts.autograd_nodes < self.min_nodes:
            return fix
        nodes = f" Also run it under torch.inference_mode(): a step records {facts.autograd_nodes:,.0f} autograd nodes"
        return replace(fix, text=fix.text + f"{nodes} that nothing uses.")

    def _for_decoding(self, facts: Facts) -> Remedy | None:
        """A graph of a step that generates a token for each sequence: its matmuls have few rows."""
        few, products = self._few_rows(facts), len(facts.gemm_calls) / facts.steps.count
        if facts.trains or compiled(facts) or replayed(facts) is not None:
            return None
        waits = dispatch_ns(facts) >= self.min_decode_share * facts.step_ns
        if few < self.min_few_rows or products < self.min_products or not waits:
            return None
        location, (title, fix) = place(facts, 0), decoding_fix(facts)
        return Remedy(
            fix,
            f"{percent(few)} of the {products:,.0f} matmuls {per_step(facts)} have {self.max_rows} rows or fewer, "
            "which is typical of decoding.",
            0.5 * self.removable_by_graph,
            self.removable_by_graph,
            [
                Evidence("Matmuls with few rows", calls_per_step=round(few * products, 3), location=location),
                Evidence("Kernels", calls_per_step=round(facts.repetition.kernels, 3)),
            ],
            [location] if location else [],
            title=title,
            effort=Effort.FEW_LINES,
            risk=Risk.NONE,
        )

    def _graph(self, facts: Facts, waits: LaunchWaits) -> Remedy | None:
        """A graph of steps that all launch the same kernels, if nothing blocks its capture."""
        same = facts.repetition
        comparable = facts.has_step_marks and facts.steps.count >= self.min_steps
        if not comparable or same.replayed_share > self.max_replayed or same.same_share < self.min_same:
            return None
        if waits.per_step_ns < self.min_graph_share * facts.step_ns or not same.kernels or blockers(facts)[0]:
            return None
        title, fix = graph_fix(facts)
        return Remedy(
            fix,
            f"{percent(same.same_share)} of the steps launch the same {same.kernels:,.0f} kernels in the same order.",
            0.5 * self.removable_by_graph,
            self.removable_by_graph,
            [Evidence("Kernels launched in every step", calls_per_step=same.kernels)],
            _holder(facts),
            title=title,
            risk=Risk.CORRECTNESS,
            risk_note="Shapes must not change",
        )

    def _fewer_launches(self, facts: Facts, waits: LaunchWaits) -> Remedy | None:
        """Fewer or longer kernels, or graphs of what can be captured."""
        little = waits.per_step_ns < self.min_share * facts.step_ns or np.count_nonzero(waits.amount) < self.min_gaps
        if little or _waits_long_in_its_only_step(facts):
            return None
        kernels = facts.gpu.is_kernel & facts.gpu.is_inside
        count = int(kernels.sum()) / facts.steps.count
        usual = median(facts.gpu.work.duration[kernels]) if kernels.any() else 0.0
        title, fix = fewer_launches_fix(facts)
        blocks, evidence = blockers(facts) if fix.edits == [GRAPHS] else ([], [])
        if in_turn := rounds_in_turn(facts):
            title, fix = FEWER_ROUNDS
        elif loops_over_experts(facts):
            title, fix = GROUPED
        elif blocks:
            one = f" One {CUDA_GRAPH} cannot hold all of it: the step {' and '.join(blocks)}."
            parts = f" torch.compile splits the model where it has to, and makes a {CUDA_GRAPH} of each part."
            fix = replace(fix, text=fix.text + one + parts)
        return Remedy(
            fix,
            f"{count:,.0f} kernels run {per_step(facts)}, with a median of {microseconds(usual)}.",
            0.0 if in_turn else self.removable_low,
            self.removable_low if in_turn else self.removable,
            evidence,
            [],
            title=title,
            risk=larger_batch_risk(facts),
            graph=False,
            confidence="low" if in_turn else "medium" if blocks else None,
        )

    def _few_rows(self, facts: Facts) -> float:
        """Share of the non-batched matmuls that have few rows."""
        sizes = facts.gemm_calls.sizes
        plain = sizes[sizes[:, 3] == 1]
        return float(np.mean(plain[:, 0] <= self.max_rows)) if len(plain) else 0.0

    def passed(self, facts: Facts) -> str:
        if not facts.has_gpu:
            return "No line calls many tiny operators."
        starved = dispatch_ns(facts)
        covered = _waits(facts).per_step_ns if _fix_covers_updates(facts) else passes_ns(facts)
        where = " in the forward and backward passes" if covered < starved else ""
        waits = f"The GPU waits for launches{where} for {percent(covered / facts.step_ns)} of {the_step(facts)}."
        if not _waits_long_in_its_only_step(facts):
            return waits
        return f"{waits} It waits longer in a few long gaps, and one step does not show whether it is a usual one."


def _waits(facts: Facts) -> LaunchWaits:
    count = facts.steps.count
    if _fix_covers_updates(facts):
        gaps, graphs = facts.gaps, facts.regions.area(facts.regions.graph_launch)
        waited = dispatch_amount(facts)
        amount = np.maximum(waited - graphs.within(gaps.start, gaps.starved_end), 0)
        own_ns = float((waited - amount).sum()) / count
        own = f", {ms(own_ns)} of it for the launch of the {CUDA_GRAPH}s themselves" if own_ns else ""
        area = subtract(dispatch_area(facts), graphs)
        return LaunchWaits(amount, area, float(amount.sum()) / count, own, "that launch" if own else "")
    amount = passes_amount(facts)
    covered = float(amount.sum()) / count
    if covered >= dispatch_ns(facts):
        return LaunchWaits(amount, passes_area(facts), covered)
    in_passes = f", {ms(covered)} of it in the forward and backward passes"
    return LaunchWaits(amount, passes_area(facts), covered, in_passes, "the optimizer, zero_grad and input copies")


def _basis(remedy: Remedy, waits: LaunchWaits) -> str:
    if not remedy.graph:
        outside = f" outside {waits.left_out}" if waits.left_out else ""
        return (
            f"Assumes launch time drops by {percent(remedy.low)}, {percent(remedy.removable)} or 100%, capped at the "
            f"GPU's wait for launches{outside}."
        )
    return (
        f"Assumes launch time drops by {percent(remedy.removable)}, capped at the GPU's wait for it; replaying a graph "
        f"takes one launch.{' At most, the optimizer is captured too.' if waits.left_out else ''}"
    )


def _longest(facts: Facts, waits: I8) -> tuple[list[Evidence], list[Location]]:
    """The operators whose first kernel the GPU waited for, longest wait first, with their source lines. `waits`: ns of
    each idle gap.
    """
    gaps = facts.gaps
    evidence, places = [], []
    for group in facts.gaps_by_operator(waits)[:MOST_OPERATORS]:
        longest = int(group.rows[waits[group.rows].argmax()])
        line = location_of(facts, int(facts.links.launch_slice[gaps.next_row[longest]]))
        evidence.append(
            Evidence(
                what=f"Waiting for {named(group.name) if group.name else 'launches outside any operator'}",
                us_per_step=round(group.total / facts.steps.count / 1e3, 3),
                calls_per_step=round(len(group.rows) / facts.steps.count, 3),
                location=line,
            )
        )
        places += [line] if line is not None and line not in places else []
    return evidence, places[:MOST_PLACES]


def _holder(facts: Facts) -> list[Location]:
    """The innermost user function that makes most of the main thread's launches."""
    frame = facts.launch_calls.function_with_share(MOST_LAUNCHES)
    if frame is None:
        return []
    return site_locations(by_site(facts, np.array([frame]), np.zeros(1, np.int64)))


def _waits_long_in_its_only_step(facts: Facts) -> bool:
    """Whether a few long gaps hold most of the host's time. One step cannot show whether they recur."""
    long_ns = starved_ns(facts, *LONG_WORK, UNTRACED_PYTHON)
    return facts.steps.count == 1 and dispatch_ns(facts) < long_ns


def _fix_covers_updates(facts: Facts) -> bool:
    """Whether the fix also covers the optimizer and `zero_grad`. Compiling the model does not."""
    return replayed(facts) is not None
