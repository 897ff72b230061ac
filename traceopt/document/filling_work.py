"""The sentence on the work that fills a step and that no fix shortens: its share, its rate, its operator and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.attribution.main_work import MainWork
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary.causes.work_kinds import DEPTHWISE_CONVOLUTIONS, MATMULS
from traceopt.analyzer.vocabulary.op_names import is_backward
from traceopt.document.tables.kernel_rates import KernelRates, Rate
from traceopt.result.finding import Location
from traceopt.result.words.message import named, per_second, percent, placed
from traceopt.result.words.vendors import Term
from traceopt.rules.evidence import operator_of_work, place_of_work
from traceopt.rules.savings.potential import shortened_work
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.roofline import peak_caveat

FILLS = 1 / 3  # of the step: work that takes more is named
MOST = 0.5  # of the work: an operator or line with less of it is not the one to name
MOSTLY = 0.8  # of the exposed copies: they go one way
MUCH = 0.2  # of the exposed copies: a way that is named
WAYS = {"HtoD": "to the GPU", "DtoH": "from the GPU", "DtoD": "within the GPU", "PtoP": "between GPUs"}
WELL_BELOW_PEAK = 0.5  # of the peak: work that reaches less may have a faster kernel


def ways_of_copies(facts: Facts) -> str:
    """Which way the exposed copies go: ", mostly from the GPU". Empty if that is unknown."""
    exposed_ns = Counter[str]()
    for copy in facts.copies:
        exposed_ns[copy.kind.partition(" ")[0]] += copy.exposed_ns
    total_ns = exposed_ns.total()
    ways = [way for way, ns in exposed_ns.most_common() if ns > MUCH * total_ns]
    if not ways or any(way not in WAYS for way in ways):
        return ""
    if exposed_ns[ways[0]] >= MOSTLY * total_ns:
        return f", mostly {WAYS[ways[0]]}"
    return f", {' and '.join(WAYS[way] for way in ways)}" if len(ways) > 1 else ""


def filling_work(facts: Facts, priced: Sequence[Priced], whole_ns: float, whole: str) -> str:
    """What fills the step, or the GPU's time: `whole_ns` over the window, called `whole`. Empty if no kind of work
    takes a third of it, or a fix shortens most of that. Kernels that could be fused are one kind if they take more.
    """
    work = facts.main_work
    if work is None or work.busy_ns < FILLS * whole_ns or _has_fix(facts, work, priced):
        return ""
    if facts.chains.time_ns > work.busy_ns:
        share = percent(min(1.0, facts.chains.time_ns / whole_ns))
        at = _line(facts, np.flatnonzero(facts.chains.mask))
        return f" Pointwise, copy and norm kernels take {share} of {whole}{'' if at is None else f': {placed(at)}'}."
    rate, accelerator = KernelRates(facts).of(work.rows), facts.device.accelerator
    unknown = accelerator is None or accelerator.peak(work.dtype) is None
    if work.dtype and (unknown or work.kind is DEPTHWISE_CONVOLUTIONS):  # they have too little arithmetic for the peak
        rate = replace(rate, peak_share=None)  # the bandwidth need not be what limits work that computes
    dtype = facts.device.vendor.word(Term.TF32) if work.dtype == "tf32" else work.dtype.upper()
    typed = f" in {dtype}" if work.dtype and rate.peak_share is None else ""
    label = named(work.kind.label) if work.kind.is_named else work.kind.label
    takes = "take" if work.kind.plural else "takes"
    backward = " in the backward pass" if work.is_backward else ""
    share = percent(min(1.0, work.busy_ns / whole_ns))
    limits = _rate(facts, work, rate) + _where(facts, work)
    hint = _hint(facts, work, rate) if work.busy_ns > MOST * whole_ns else ""
    if work.kind.instead:
        hint = f" {work.kind.instead}"
    return f" {label}{typed}{backward} {takes} {share} of {whole}{limits}.{hint}"


def _has_fix(facts: Facts, work: MainWork, priced: Sequence[Priced]) -> bool:
    mine = facts.gpu.in_window[work.rows]
    shorter = shortened_work(facts, [change for one in priced if one.price for change in one.changes])
    return int(mine[shorter[work.rows]].sum()) >= MOST * int(mine.sum())


def _rate(facts: Facts, work: MainWork, rate: Rate) -> str:
    if rate.peak_share is not None and rate.peak_share <= 1:
        if rate.limit == "compute":
            return f", at {percent(rate.peak_share)} of the {work.dtype} peak{peak_caveat(facts, work.dtype)}"
        caveat = peak_caveat(facts, "hbm_gb_per_s")
        return f", at {percent(rate.peak_share)} of the memory's bandwidth{caveat}"
    if rate.tflops is not None:
        return f", at {per_second(rate.tflops, 'TFLOP')}"
    return "" if rate.gb_per_s is None else f", at {per_second(rate.gb_per_s, 'GB')}"


def _hint(facts: Facts, work: MainWork, rate: Rate) -> str:
    """What may be faster. A narrower type has a higher peak, if the matmuls in 16 bits are near theirs."""
    if rate.peak_share is None:
        return _few_rows(facts) if work.kind is MATMULS else ""
    if rate.peak_share < WELL_BELOW_PEAK:
        return f" {work.kind.faster}" if work.kind.faster else ""
    accelerator = facts.device.accelerator
    if work.kind is not MATMULS or accelerator is None or rate.limit != "compute" or work.dtype not in ("bf16", "fp16"):
        return ""
    wide, narrow = accelerator.peak(work.dtype), accelerator.peak("fp8")
    return f" FP8 has {narrow / wide:.0f} times the peak." if wide and narrow else ""


def _few_rows(facts: Facts) -> str:
    """What limits the matmuls of an inference, as those of a CUDA graph that have no rate, if all with a recorded shape
    have few rows.
    """
    shapes, accelerator = facts.gemms.shapes, facts.device.accelerator
    if not facts.infers or not shapes or accelerator is None or not accelerator.hbm_gb_per_s:
        return ""
    for shape in shapes:
        peak = accelerator.peak(shape.dtype)
        if peak is None or shape.intensity * accelerator.hbm_gb_per_s > WELL_BELOW_PEAK * peak * 1e3:
            return ""
    rows = max(min(shape.m, shape.n) for shape in shapes)
    return f" With {rows} rows or fewer, reading the weights limits them: they are memory-bound."


def _where(facts: Facts, work: MainWork) -> str:
    """The operator and line with most of the work: ": aten::mm, model.py:31"."""
    time_ns, operator = facts.gpu.in_window[work.rows], facts.regions.op_of_work[work.rows]
    row = int(work.rows[time_ns.argmax()])
    via = operator_of_work(facts, row)[1]
    if via == "replay":
        return ""  # the line replays a whole graph
    least_ns = MOST * int(time_ns.sum())
    called = None if work.kind.is_named or via == "launch_stack" else _called_operator(facts, row)
    is_most = int(time_ns[operator == facts.regions.op_of_work[row]].sum()) >= least_ns
    at = [named(called)] if called is not None and is_most else []
    known = (facts.sites_of_work(work.rows) >= 0).any()
    place = _line(facts, work.rows) if known else place_of_work(facts, row) if is_most else None
    at += [placed(place)] if place is not None else []
    return f": {', '.join(at)}" if at else ""


def _line(facts: Facts, rows: I8) -> Location | None:
    """The line with most of some work; None if there is none."""
    site, time_ns = facts.sites_of_work(rows), facts.gpu.in_window[rows]
    if not (site >= 0).any():
        return None
    largest = int(np.bincount(site[site >= 0], weights=time_ns[site >= 0]).argmax())
    most = int(time_ns[site == largest].sum()) >= MOST * int(time_ns.sum())
    return facts.call_sites.sites[largest] if most else None


def _called_operator(facts: Facts, row: int) -> str | None:
    """The operator that the program or a node of autograd called, which may launch the work by others that it calls."""
    slices, at, found = facts.slices, int(facts.source_slices[row]), None
    while at >= 0:
        name = facts.trace.names[int(slices.name[at])]
        if slices.kind[at] == OP and "::" in name and not is_backward(name):
            found = name
        at = int(slices.parent[at])
    return found
