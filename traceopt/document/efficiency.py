"""Sentences of the verdict on what the step reaches of the device, of a reference, and of what its work could be."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.intervals import intersect, subtract, union
from traceopt.analyzer.autograd.operator_inputs import shapes_of
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.requirements import lacks
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.causes.table import OPTIMIZER
from traceopt.analyzer.vocabulary.formulas.byte_formulas import is_pointwise
from traceopt.document.run.whole_run import lacks_cores
from traceopt.result.words.message import TENSOR_CORE, ms, percent
from traceopt.rules.evidence import by_site
from traceopt.rules.fixes.advice.batch_size import takes_batches
from traceopt.rules.savings.roofline import peak_caveat
from traceopt.rules.savings.work.cpu_operators import operators_ns

LOW_UTILIZATION = 0.35  # of the peak; large transformers reach 40 to 60 %
BELOW_REFERENCE = 0.95  # of the reference throughput: less is said
MODEL_WORK = 0.6  # of the step: with less, the work of the model is not the question
PART = 0.15  # of the step: a smaller part is not worth a sentence
NEAR_PEAK = 0.7  # of the CPU's measured peak: matmuls that reach more have nothing to gain
THIN = 0.3  # of the time of matmuls: if so much of it has few rows, reading the weights limits them
MOST = 0.5  # of the time of other operators, or of matmuls: a kind with less is not what is said of them
MOST_SMALL = 0.7  # of the time of other operators: if so much of it is in operators that are too small, that is said
IMAGES = 4  # dimensions: batch, channels, height, width
RECURRENT = ("rnn", "lstm", "gru")
MOST_NAMED = 3
NAMED_SHARE = 0.25  # of the step: an operator or a line that takes more is named
HEAVY_SHARE = 0.10  # of the step: matmuls and the like that take more are named
SMALL_PART = 0.1  # of the time of matmuls and the like: kinds with less are not named
LEAST_AGAIN = 4  # calls of an operator in a step: fewer may be different ones
SORTS_ALL = ". If only the first values are used, torch.topk is faster"


def utilization(facts: Facts, *, computes: bool) -> str:
    """What the step reaches of the GPU: as hardware counters measured it, or the model FLOP utilization of a training
    (Chowdhery et al., "PaLM", 2022, appendix B). Empty if it is unknown or not low. Where the step does not mostly
    compute (`computes`), or its main work has a rate, a low utilization of models only repeats that.
    """
    counters = facts.measured_counters
    if counters is not None and counters.tensor_active is not None:
        if counters.tensor_active >= LOW_UTILIZATION:
            return ""
        others = {"SMs": counters.sm_active, "DRAM": counters.dram, "NVLink": counters.nvlink, "PCIe": counters.pcie}
        shares = ", ".join(f"{name} {percent(share)}" for name, share in others.items() if share is not None)
        active = f" Hardware counters measured the {TENSOR_CORE}s active for {percent(counters.tensor_active)} of it"
        return f"{active} ({shares})." if shares else f"{active}."
    mfu, dtype = facts.flops.mfu, facts.flops.dtype
    if not (computes and facts.trains) or mfu is None or dtype is None or mfu >= LOW_UTILIZATION:
        return ""
    return f" MFU is {percent(mfu)} of the {dtype} peak{peak_caveat(facts, dtype)}."


def against_reference(facts: Facts) -> str:
    """How far the throughput is below the reference that the user gave; empty if it is not."""
    measured = facts.throughput
    share = None if measured is None else measured.reference_share
    if measured is None or share is None or measured.per_s is None or share >= BELOW_REFERENCE:
        return ""
    step_ns = facts.steps.window_ns / facts.steps.count
    return (
        f" One GPU processes {measured.per_s:,.0f} {measured.unit}/s, {percent(share)} of the reference: to reach it, "
        f"a step must take {ms(step_ns * share)} instead of {ms(step_ns)}."
    )


def cpu_lever(facts: Facts, crowded: bool = False) -> str:
    """The largest part of the model's work on the CPU that can become shorter, and how; empty if none is large.
    `crowded`: the thread waits for cores, so that only the number of small operators says something.
    """
    work, passes = facts.cpu_work, facts.cpu_phases
    model_ns = facts.steps.mean_ns(passes.model_work)
    if not work.heavy or not facts.has_step_marks or model_ns < MODEL_WORK * facts.step_ns:
        return ""
    if lacks(facts, "shapes") is not None or lacks(facts, "settings") is not None:
        return ""
    heavy_ns, peak_share = operators_ns(facts, work.heavy), work.heavy_peak_share
    light_ns = facts.steps.mean_ns(subtract(passes.model_work, passes.areas[OPTIMIZER])) - heavy_ns
    below_ns = 0.0 if crowded or peak_share is None or peak_share >= NEAR_PEAK else (1 - peak_share) * heavy_ns
    if max(light_ns, below_ns) < PART * facts.step_ns:
        return ""
    if below_ns > light_ns:
        if _convolves_images(facts, heavy_ns):
            faster = "channels_last may make them faster."
            return f" Convolutions below the measured peak take {ms(below_ns)} of it: {faster}"
        return f" Matmuls below the measured peak take {ms(below_ns)} of it: {_larger(facts)}"
    small = _small(facts, light_ns)
    if small or crowded:
        return small
    return f" Other operators and calls take {ms(light_ns)} of it{_fused(facts)}"


def _convolves_images(facts: Facts, heavy_ns: float) -> bool:
    """Whether two-dimensional convolutions take most of the time of matmuls, convolutions and attention."""
    convolutions = [operator for operator in facts.cpu_work.heavy if operator.is_convolution]
    if operators_ns(facts, convolutions) < MOST * heavy_ns:
        return False
    [shapes] = shapes_of(facts.regions, convolutions[0].rows[:1])
    return len(shapes) > 0 and len(shapes[0]) == IMAGES


def _small(facts: Facts, light_ns: float) -> str:
    """A sentence on operators that are too small for a call, if they are most of the time of other operators."""
    small, count = facts.called_ops.only_tiny, facts.steps.count
    took_ns = facts.steps.mean_ns(intersect(union(small.start, small.end), facts.cpu_phases.model_work))
    if took_ns < MOST_SMALL * light_ns or not len(small.rows):
        return ""
    most = by_site(facts, small.rows, small.end - small.start)[0]
    where = f", most of them at {most.location}" if most.location is not None else ""
    number = f"{len(small.rows) / count:,.0f}"
    return f" {number} small operators take {ms(took_ns)} of it{where}: the calls cost more than the work."


def _fused(facts: Facts) -> str:
    """Which operators mostly read and write memory, and what to do about them, after "take 12 ms of it"."""
    light = facts.slices_by_name(*facts.cpu_work.light)
    if not light:
        return "."
    names = ", ".join(operator.name.removeprefix("aten::") for operator in light[:MOST_NAMED])
    if any(kind in light[0].name.lower() for kind in RECURRENT):
        return f": mostly {names}. torch.compile does not fuse recurrent layers, so use shorter sequences."
    if any(model.compiled for model in facts.captured.models):
        return f": mostly {names}. Keep them inside the compiled code."
    fusible = [operator for operator in light if is_pointwise(operator.name)]
    if facts.differentiates_twice or sum(one.total for one in fusible) < MOST * sum(one.total for one in light):
        return f": mostly {names}."
    return f": mostly {names}. torch.compile fuses such operators."


def _larger(facts: Facts) -> str:
    """What to do about matmuls below the peak."""
    if not takes_batches(facts):
        return "another shape, dtype or number of threads may be faster."
    thin = facts.cpu_work.thin
    if thin is not None and operators_ns(facts, [thin]) > THIN * operators_ns(facts, facts.cpu_work.heavy):
        return "a larger batch helps, because most have so few rows that reading the weights limits them."
    return "a larger batch makes each of them larger."


def kind_of_work(facts: Facts) -> str:
    """The operators that take most of a step on the CPU: matmuls and the like, with how near they come to the CPU's
    peak if that was measured, or else an operator or a line that takes a large part of it.
    """
    heavy_share = operators_ns(facts, facts.cpu_work.heavy) / facts.step_ns
    least = max(NAMED_SHARE, heavy_share)
    if facts.linear_algebra_share >= least:
        calls = facts.linear_algebra_calls
        where = _most_at(facts, calls, facts.slices.duration_of(calls))
        return f": {percent(facts.linear_algebra_share)} is solvers and decompositions of matrices{where}"
    if light := _light_work(facts, least * facts.step_ns * facts.steps.count):
        return light
    if heavy_share < HEAVY_SHARE:
        return ""
    peak_share = None if lacks_cores(facts) else facts.cpu_work.heavy_peak_share
    peak = f" at {percent(peak_share)} of the measured peak" if peak_share is not None else ""
    return f": {percent(heavy_share)} is {_heavy_work(facts)}{peak}"


def _light_work(facts: Facts, least_ns: float) -> str:
    """An operator without FLOP that takes at least so long in all steps, or the line whose operators do."""
    rows, own_ns = facts.cpu_work.light
    whole_ns = facts.step_ns * facts.steps.count
    for one in facts.slices_by_name(rows, own_ns)[:1]:
        if one.total >= least_ns:
            where = _most_at(facts, one.rows, own_ns[np.searchsorted(rows, one.rows)])
            sorts = one.name == "aten::sort" and not len(facts.full_sorts)
            faster = SORTS_ALL if sorts else _again(facts, one.name, one.rows.astype(np.int64))
            return f": {percent(one.total / whole_ns)} is {one.name.removeprefix('aten::')}{where}{faster}"
    passes = ~facts.cpu_phases.areas[OPTIMIZER].contains(facts.slices.start[rows])
    for line in by_site(facts, rows[passes], own_ns[passes])[:1]:
        if line.location is not None and line.cost_ns >= least_ns:
            operators = facts.slices_by_name(line.rows, own_ns[np.searchsorted(rows, line.rows)])
            names = ", ".join(operator.name.removeprefix("aten::") for operator in operators[:MOST_NAMED])
            others = " and others" if operators[MOST_NAMED:] else ""
            return f": {percent(line.cost_ns / whole_ns)} is {names}{others} ({line.location})"
    return ""


def _again(facts: Facts, name: str, rows: I8) -> str:
    """What is said of an operator that a line calls in a loop for tensors of the same sizes, without a matmul or
    convolution between the calls of a step. A trace does not show if they are the same tensor.
    """
    times = len(rows) / facts.steps.count
    if times < LEAST_AGAIN or name.endswith("_") or name in op_names.MOVES or len(by_site(facts, rows)) > 1:
        return ""
    shapes, start = shapes_of(facts.regions, rows), facts.slices.start
    layers = np.sort(np.concatenate([start[rows[:0]], *(start[one.rows] for one in facts.cpu_work.heavy)]))
    same_step = np.diff(facts.steps.host_step_of(start[rows])) == 0
    between = np.diff(np.searchsorted(layers, start[rows]))
    if any(one != shapes[0] for one in shapes) or (between[same_step] > 0).any():
        return ""
    return f", {times:,.0f} times for the same sizes. Once is enough if its input is the same"


def _most_at(facts: Facts, rows: I8, cost_ns: I8) -> str:
    """The line with most of the cost, in brackets."""
    most = by_site(facts, rows, cost_ns)[0].location
    return f" ({most})" if most is not None else ""


def _heavy_work(facts: Facts) -> str:
    """ "convolutions (model.py:12)": the kinds of heavy work, and the line of most of it."""
    heavy = facts.cpu_work.heavy
    kinds = {
        "matmuls": [operator for operator in heavy if operator.is_matmul and not operator.is_attention],
        "convolutions": [operator for operator in heavy if operator.is_convolution],
        "attention": [operator for operator in heavy if operator.is_attention],
    }
    least_ns = SMALL_PART * operators_ns(facts, heavy)
    named = [name for name, mine in kinds.items() if operators_ns(facts, mine) >= least_ns]
    rows = np.concatenate([operator.rows for operator in heavy])
    took_ns = facts.slices.duration_of(rows)
    largest = by_site(facts, rows, took_ns)[0]
    most = largest.location is not None and largest.cost_ns >= MOST * int(took_ns.sum())
    where = f" ({largest.location})" if most else ""
    return f"{', '.join(named[:-1])} and {named[-1]}{where}" if named[1:] else f"{named[0]}{where}"
