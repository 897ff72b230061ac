"""What stands above the tables and the timeline: what they hold, and what rates are compared with."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.op_names import is_convolution
from traceopt.reports.words import safe_text
from traceopt.reports.words.rank_words import rank_phrase
from traceopt.reports.words.step_words import on_cpu, scope, step_noun
from traceopt.result.document import Result
from traceopt.result.sections.step import Efficiency, TensorCores
from traceopt.result.sections.work_rows import Gemm, Kernel
from traceopt.result.tables.step_tables import MODULES
from traceopt.result.words import quantities
from traceopt.result.words.vendors import Term, vendor_called

MOST_MATMULS = 0.9  # of the time of matmul kernels: if the table holds less, its caption says so


def timeline_caption(result: Result, shaded: bool) -> str:
    """Which step the timeline shows, what is shaded, and how much is drawn."""
    timeline = result.timeline
    if timeline is None:
        return ""
    steps = ["The whole recording"] if result.step.source == "window" else [timeline.step]
    if result.step.count > 1:
        steps.append("a typical step")
    rank = rank_phrase(result)
    sentences = [", ".join([*steps, rank] if rank else steps) + "."]
    if shaded:
        sentences.append(f"Shaded: the longest gap without {'model' if on_cpu(result) else 'GPU'} work.")
    if any(lane.occupancy for lane in timeline.lanes):
        sentences.append("Dense lanes show how busy each moment is.")
    return " ".join(sentences)


def memory_caption(result: Result, peak_us: float | None, reserved: bool) -> str:
    """The peak, and what the curve of the memory shows, which is highest at `peak_us`; None if there is no curve.
    `reserved`: it shows reserved memory, too. "" if the peak is not known.
    """
    memory, size = result.memory, quantities.size_text
    capacity = "" if memory.capacity_bytes is None else f" of {size(memory.capacity_bytes)}"
    rank = rank_phrase(result)
    since = ", counted from the start of the recording" if on_cpu(result) else ""
    if memory.peak_allocated_bytes is None:
        return ""
    peak = f"Peak {size(memory.peak_allocated_bytes)}{capacity}{f', {rank}' if rank else ''}{since}."
    if peak_us is None:
        return peak
    sentences = [
        peak,
        f"In this {step_noun(result)} it is highest at {quantities.ms_of_us(peak_us)}.",
        "Of the GPU with the highest peak." if result.gpu.devices else "",
        "" if on_cpu(result) else "Time of the host, which allocates before the GPU runs the work.",
        "Solid: allocated.",
        "Dashed: reserved by the caching allocator." if reserved else "",
    ]
    return " ".join(filter(None, sentences))


def matrix_units(result: Result) -> str:
    """What the device's vendor calls the units that multiply matrices."""
    device = result.run.device
    return vendor_called(device.vendor if device is not None else None).word(Term.TENSOR_CORE) + "s"


def gemm_caption(result: Result) -> str:
    """How much of the matmuls the table holds if shapes are missing, Tensor Core use, and the achieved share of the
    peak, if known.
    """
    cores, efficiency = result.tensor_cores, result.efficiency
    sentences = []
    known = result.gemm_known_share
    if known is not None and known < MOST_MATMULS:
        sentences.append(
            f"The table holds {quantities.percent(known)} of the time of matmul kernels. The others have no operator "
            "with shapes of its own (compiled code, graphs, custom kernels, batches of another size)."
        )
    if cores.eligible_share is not None:
        sentences.append(f"{matrix_units(result)}: {_tensor_core_use(cores)}")
    if efficiency.achieved_tflops is not None:
        sentences.append(_reached(efficiency, efficiency.achieved_tflops))
    return " ".join([*sentences, *_other_peaks(result)])


def _reached(efficiency: Efficiency, tflops: float) -> str:
    """The rate of the step and its MFU, which leaves recomputation out."""
    rate = safe_text.unbroken(f"The step reaches {quantities.flop_rate(tflops)}.")
    if efficiency.mfu is None or efficiency.peak_tflops is None:
        return rate
    caveat = quantities.peak_caveat(efficiency.peak_source, efficiency.peak_verified)
    dtype = f"{efficiency.peak_dtype} " if efficiency.peak_dtype else ""
    peak = safe_text.unbroken(f"the {dtype}peak of {quantities.flop_rate(efficiency.peak_tflops)}")
    recomputes = efficiency.hfu is not None and efficiency.hfu > efficiency.mfu
    remarks = [caveat] if caveat else []
    if recomputes:
        remarks.append(f"{quantities.percent(efficiency.hfu)} with recomputation")
    in_brackets = f" ({'; '.join(remarks)})" if remarks else ""
    return f"{rate} MFU: {quantities.percent(efficiency.mfu)} of {peak}{in_brackets}."


# By the bound of a kernel and the peak that it is nearer to.
# What bounds a kernel, and what that means.
_BOUND = {
    ("memory", "memory"): ("memory-bound", "only moving fewer bytes helps (fusion, smaller types)"),
    ("compute", "compute"): ("compute-bound", "only fewer operations or a faster type help"),
    ("neither", "memory"): ("far below memory", "latency, uneven access or too little work"),
    ("neither", "compute"): ("far below compute", "another shape, kernel or library may help"),
}


def bound_words(kernel: Kernel) -> str:
    """What bounds a kernel: "memory-bound"; "" if it is not known."""
    return _bound(kernel)[0]


def _bound(kernel: Kernel) -> tuple[str, str]:
    return _BOUND.get((kernel.bound or "", kernel.limit or ""), ("", ""))


def kernel_caption(result: Result) -> str:
    """What the shares of the peak are shares of, and what bounds a kernel; "" if no kernel has a share."""
    limits = {kernel.limit for kernel in result.kernels} - {None}
    if not limits:
        return ""
    peaks = {peak.figure: peak for peak in (result.run.device.peaks if result.run.device else [])}
    memory = peaks.get("memory")
    bandwidth = f", {quantities.per_second(memory.rate, 'GB')}" if memory else ""
    caveat = quantities.peak_caveat(memory.source, memory.verified) if memory else ""
    caveat = f" ({caveat})" if caveat else ""
    beyond = {(kernel.limit, kernel.kind) for kernel in result.kernels if (kernel.peak_share or 0) > 1}
    above = " Above 100%: the data was in the cache." if any(limit == "memory" for limit, _ in beyond) else ""
    above += " Above 100% (compute): a Winograd kernel does fewer operations." if ("compute", "conv") in beyond else ""
    return (
        "Of peak: of the limit that the kernel is nearer to, the rate of its type (compute) or the memory's "
        f"bandwidth{bandwidth}{caveat} (memory), if each tensor is read or written once.{above}{_bounds(result)}"
    )


def _bounds(result: Result) -> str:
    """ " Memory-bound: only moving fewer bytes helps.", for what bounds kernels of the table."""
    found = set(map(_bound, result.kernels))
    return "".join(f" {word.capitalize()}: {meaning}." for word, meaning in _BOUND.values() if (word, meaning) in found)


def cpu_caption(result: Result) -> str:
    """What the CPU reaches, to which the rates of a CPU-only run are compared."""
    rates = {rate.figure: rate for rate in result.cpu.rates} if result.cpu is not None else {}
    if not rates:
        return "The peak of this CPU was not measured."
    peaks = ", ".join(f"{quantities.rate_number(rate.rate)} {rate.unit} ({figure})" for figure, rate in rates.items())
    return f"Of peak: as a share of what this CPU reached after the run with the same threads: {peaks}."


def _other_peaks(result: Result) -> list[str]:
    """The other peaks of the table that are unverified or from the user's settings."""
    device, named = result.run.device, result.efficiency.peak_dtype
    dtypes = {gemm.dtype for gemm in result.gemms if gemm.peak_share is not None} - {named}
    peaks = [peak for peak in (device.peaks if device else []) if peak.figure in dtypes]
    unverified = [peak.figure for peak in peaks if peak.verified is False]
    given = [peak.figure for peak in peaks if peak.verified is None]
    sentences = [f"Peak unverified: {', '.join(unverified)}."] if unverified else []
    return [*sentences, f"Peak from your settings: {', '.join(given)}."] if given else sentences


def _tensor_core_use(cores: TensorCores) -> str:
    """ "36% of kernel time is eligible; all of it uses them."."""
    eligible, used = quantities.percent(cores.eligible_share), quantities.percent(cores.used_share)
    use = "all of it uses them" if used == eligible else f"{used} uses them"
    unknown = f", {quantities.percent(cores.unknown_share)} is unknown" if cores.unknown_share else ""
    return f"{eligible} of kernel time is eligible; {use}{unknown}."


_TENSOR_CORE_BYTES = 16  # rows of operands must be a multiple of this
_ELEMENT_BYTES = {"tf32": 4, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp4": 0.5, "int8": 1}


def misaligned(gemm: Gemm, size: int) -> str:
    """ "not ×8": what N or K (`size`) of a misaligned GEMM should be a multiple of; "" if it is. M is free."""
    element_bytes = _ELEMENT_BYTES.get(gemm.dtype)
    if gemm.aligned is not False or element_bytes is None:
        return ""
    multiple = int(_TENSOR_CORE_BYTES / element_bytes)
    return f"not ×{multiple}" if size % multiple else ""


def misaligned_caption(result: Result) -> str:
    """What marks in the table of matmuls mean; "" if it has none."""
    marked = any(gemm.aligned is False for gemm in result.gemms)
    return "Marked: N or K that makes rows a size other than a multiple of 16 bytes." if marked else ""


def shaped_caption(result: Result) -> str:
    """Why a convolution exceeds the peak; "" if none does."""
    above = any((op.peak_share or 0) > 1 and is_convolution(op.name) for op in result.shaped_ops)
    return "Above 100% of the peak: Winograd kernels do fewer operations than the shapes say." if above else ""


def module_caption(result: Result) -> str:
    """What the times of modules are, and which modules the tree has."""
    time = "time of their operators" if on_cpu(result) else "GPU time"
    most = f" The tree has the {MODULES.most} longest." if len(result.modules) >= MODULES.most else ""
    return (
        f"The nn.Modules of the model, by {time}, {quantities.in_sentence(scope(result))}. Own, and by class: without "
        f"the modules that they call.{most}"
    )


def expert_caption(result: Result) -> str:
    """What is not seen of the tokens of experts that take only so many."""
    frame = result.communication.expert_capacity
    if frame is None:
        return ""
    return (
        f"The experts have a capacity ({frame}): tokens beyond it are dropped before they are sent, or "
        "padding is sent with them. So the router may be less even than the tokens here."
    )


def phase_caption(result: Result) -> str:
    """What marks the phases of a reinforcement-learning step."""
    gpus = result.rl_phases[0].gpus if result.rl_phases else None
    marks = "By the marks of the phases."
    if gpus is not None:
        marks = (
            "By the marks of the phases in all processes; phases of different processes can overlap. Idle time is the "
            f"mean over {gpus} GPUs."
        )
    return f"{marks} GPU work counts in the phase in which it runs. Time between phases is left out."


def rank_caption(result: Result) -> str:
    """Which rank the other tables show."""
    return f"The other tables show {rank_phrase(result) or 'one of them'}."
