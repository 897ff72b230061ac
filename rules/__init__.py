"""The rules, and the engine that turns facts into findings.

Rules, built-in or plug-in, import everything they need from here:

    from traceopt.rules import Evidence, Facts, Findings, Fix, RemoveHost, Rule, priced, threshold

docs/rules-development.md shows a complete rule; `traceopt.testing` has what its tests need.
"""

from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge, subtract, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.attribution.syncs import BLOCKING_COPY, DATA_DEPENDENT, EXPLICIT, SCALAR_READ
from traceopt.analyzer.communication.device_times import DeviceTimes
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.joint_replay import Ranks
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.replay.changes import (
    AsyncCopy,
    Change,
    DropSync,
    MergeKernels,
    MoveToStream,
    RemoveHost,
    RemoveLaunches,
    ScaleWork,
)
from traceopt.analyzer.requirements import lacks
from traceopt.analyzer.run_log.step_ledger import Ledger
from traceopt.analyzer.tables.compilation import Fallback, GraphBreak, GraphSkip, Recompiled
from traceopt.analyzer.tables.schema import F8, I8, Mask
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME
from traceopt.analyzer.timeline.steps import UNUSUAL_DEVIATIONS, UNUSUAL_FACTOR, unusual, usual_interval
from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.analyzer.work.gemms import GemmShape
from traceopt.result.edits import (
    Call,
    CallEvery,
    Compile,
    Edit,
    RemoveCall,
    Replace,
    SetArguments,
    SetAttribute,
    SetVariable,
    Wrap,
)
from traceopt.result.finding import Confidence, Evidence, Finding, Fix, Impact, Location
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.result.words.message import (
    COUNTER_TOOLS,
    CUDA_GRAPH,
    CUDNN,
    CUPTI,
    NCCL,
    SERVING_ENGINES,
    TENSOR_CORE,
    TF32,
    megabytes,
    microseconds,
    ms,
    named,
    of_memory,
    of_ranks,
    per_second,
    percent,
    placed,
    seconds,
    size,
)
from traceopt.result.words.quantities import counted, rate_number
from traceopt.result.words.rounding import rate, us
from traceopt.rules.bases.rank_rule import (
    RunRule,
    on_rank,
    place_on,
    rank_name,
    rank_names,
    ranks_saving,
    step_of_ranks,
)
from traceopt.rules.evidence import (
    RECORD_STACKS,
    SiteCost,
    by_calling_site,
    by_site,
    frames_inside,
    functions_inside,
    gpu_evidence,
    lines_inside,
    location_of,
    main_function_by_site,
    name_of,
    place_of_work,
    places,
    site_evidence,
    site_locations,
    slowest_line_of,
)
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Findings, Former, Rule, required, threshold
from traceopt.rules.savings.price import Price, Priced
from traceopt.rules.savings.pricing import (
    Changes,
    area_of,
    calls_in,
    hide,
    hide_collectives,
    priced,
    priced_host,
    priced_work,
    scaled,
    shorter,
    within,
    without_calls,
    work_of,
)
from traceopt.rules.savings.roofline import peak_caveat
from traceopt.rules.savings.starvation import (
    dispatch_area,
    dispatch_ns,
    host_bounds,
    launch_confidence,
    launched_in_steps,
    launched_ns,
    passes_area,
    passes_ns,
    saving,
    starved_ns,
    typical_ns,
)
from traceopt.rules.savings.whole_run import mean_part_ns, mean_step_ns, whole_run_saving
from traceopt.rules.savings.work.fused_attention import fused_attention
from traceopt.rules.savings.work.precision import kernel_evidence
from traceopt.rules.step_words import each_step, per_step, the_step, times

# The parts of a rule
__all__ = [
    "TRACE_QUALITY",  # the family of rules about the trace itself
    "Confidence",  # "high", "medium" or "low": how sure a conclusion is
    "Effort",  # how much work a fix is
    "Evidence",
    "Facts",
    "Finding",
    "Findings",  # what check() yields
    "Fix",
    "Former",  # a rule that is part of another one now
    "Impact",  # "high", "medium", "low" or "info": the size of the expected saving
    "Location",
    "Risk",  # what can go wrong with a fix
    "Rule",
    "required",  # required(facts.compilation): never None in a rule that requires it
    "threshold",
]

# What facts consist of, and helpers for them
__all__ += [
    "ANNOTATION",  # kind of slice: record_function() ranges and other annotations
    "BLOCKING_COPY",  # reason of a sync (`facts.syncs.reason`): a copy to the host
    "DATA_DEPENDENT",  # reason of a sync: an operator whose output size depends on the data
    "DTYPE_BYTES",  # bytes per element of each dtype
    "EXPLICIT",  # reason of a sync: the script asked for it
    "F8",  # an array of numbers with fractions, such as mean times in ns
    "I8",  # an array of 64-bit integers: rows, or times in ns
    "OP",  # kind of slice: PyTorch operators
    "PYTHON",  # kind of slice: Python frames
    "RUNTIME",  # kind of slice: runtime and driver calls
    "SCALAR_READ",  # reason of a sync: one number is read from the GPU
    "UNUSUAL_DEVIATIONS",  # robust standard deviations from the median step, from which a step is unusual
    "UNUSUAL_FACTOR",  # multiple of the median step, from which a step is unusual
    "DeviceTimes",  # what one of several GPUs did (`facts.device_times`)
    "Fallback",  # a function that torch.compile gave up on (`facts.compilation.fallbacks`)
    "GemmShape",
    "GraphBreak",  # `facts.graph_breaks`
    "GraphSkip",  # compiled code without a CUDA graph (`facts.compilation.graph_skips`)
    "Intervals",
    "Ledger",
    "Mask",  # an array of truth values
    "Recompiled",  # `facts.compilation.recompilations`
    "intersect",
    "lacks",  # lacks(facts, "stacks"): how to record what a trace lacks; None if it has it
    "median",
    "merge",
    "subtract",
    "union",
    "unusual",
    "usual_interval",
]

# Evidence and locations
__all__ += [
    "RECORD_STACKS",  # the sentence that says how to record source lines
    "SiteCost",
    "by_calling_site",
    "by_site",
    "frames_inside",
    "functions_inside",
    "gpu_evidence",  # the compute of one of several GPUs, and for which others it waits
    "kernel_evidence",
    "lines_inside",
    "location_of",
    "main_function_by_site",
    "name_of",
    "place_of_work",
    "places",
    "short_name",
    "site_evidence",
    "site_locations",
    "slowest_line_of",
]

# Terms that vendors name differently: f"{TENSOR_CORE}s" reads "Matrix Cores" on AMD
__all__ += [
    "COUNTER_TOOLS",  # "Nsight, DCGM"
    "CUDA_GRAPH",  # "CUDA graph"
    "CUDNN",  # "cuDNN"
    "CUPTI",  # "CUPTI"
    "NCCL",  # "NCCL"
    "SERVING_ENGINES",  # "vLLM, TGI, ..."
    "TENSOR_CORE",  # "Tensor Core"
    "TF32",  # "TF32", "XF32" on AMD
]

# What a sentence speaks of (message.py), and rounded numbers
__all__ += [
    "counted",
    "megabytes",
    "microseconds",
    "ms",
    "named",  # named("aten::mm"): a name from the trace or the program
    "of_memory",
    "of_ranks",
    "per_second",
    "percent",
    "placed",  # placed(location): "train.py:31"
    "rate",
    "rate_number",
    "seconds",
    "size",
    "us",
]

# The step in sentences: other words if the recording has no step marks
__all__ += [
    "each_step",  # "each 43.0 ms step"
    "per_step",  # "per step"
    "the_step",  # "the step"
    "times",  # "once per step"
]

# What a fix changes
__all__ += [
    "AsyncCopy",
    "Change",
    "Changes",  # what a fix does to the steps: a sequence of changes
    "DropSync",
    "MergeKernels",
    "MoveToStream",
    "RemoveHost",
    "RemoveLaunches",
    "ScaleWork",
    "area_of",
    "calls_in",
    "hide",
    "hide_collectives",
    "scaled",
    "shorter",
    "within",
    "without_calls",
    "work_of",
]

# The edits of a fix
__all__ += [
    "Call",  # a function, once before the loop
    "CallEvery",  # a call of each step, only every N steps
    "Compile",  # with torch.compile
    "Edit",  # any of these
    "RemoveCall",
    "Replace",  # an expression by a call
    "SetArguments",  # keyword arguments of a call
    "SetAttribute",  # a switch of the process
    "SetVariable",  # of the environment
    "Wrap",  # statements in a context manager
]

# What a fix saves
__all__ += [
    "Price",
    "Priced",
    "dispatch_area",
    "dispatch_ns",
    "fused_attention",
    "host_bounds",
    "launch_confidence",
    "launched_in_steps",
    "launched_ns",
    "mean_part_ns",
    "mean_step_ns",
    "passes_area",
    "passes_ns",
    "peak_caveat",
    "priced",
    "priced_host",
    "priced_work",
    "saving",
    "starved_ns",
    "typical_ns",
    "whole_run_saving",
]

# Rules that compare ranks
__all__ += [
    "Ranks",
    "RunFacts",
    "RunRule",
    "on_rank",
    "place_on",
    "rank_name",
    "rank_names",
    "ranks_saving",
    "step_of_ranks",
]
