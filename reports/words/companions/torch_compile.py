"""What torch.compile did, in words: names of its phases, and the lines for the terminal and Markdown."""

from __future__ import annotations

from traceopt.result.companions.torch_compile import TorchCompile
from traceopt.result.document import Result
from traceopt.result.quantities import counted

PHASES = {
    "dynamo": "Dynamo: trace Python",
    "aot_autograd": "AOTAutograd: forward and backward graph",
    "inductor": "Inductor: lower and schedule",
    "code_generation": "Inductor: generate code",
    "kernel_compilation": "Compile kernels",
    "autotuning": "Autotune kernels",
    "cuda_graph_recording": "Record CUDA graphs",
}


def lines(result: Result) -> list[str]:
    """At most four sentences; none if nothing was compiled."""
    known = result.torch_compile
    if known is None:
        return []
    said = [summary(known)]
    if known.breaks:
        first = known.breaks[0]
        where = f" at {first.location}" if first.location is not None else ""
        said.append(f"{counted(len(known.breaks), 'graph break')}, most often{where}: {first.reason}")
    if known.recompilations:
        again = known.recompilations[0]
        where = f" ({again.location})" if again.location is not None else ""
        said.append(
            f"Recompiled {counted(sum(one.count for one in known.recompilations), 'time')}. Most time went to "
            f"{again.function or 'a function'}(){where}, where this guard failed: {again.guard}"
        )
    if known.graph_skips:
        said.append(f"CUDA graphs were skipped: {known.graph_skips[0].reason}")
    return said


def summary(known: TorchCompile) -> str:
    """ "torch.compile compiled 18 frames in 29.4 s."."""
    seconds = f" in {known.us / 1e6:.3g} s" if known.us is not None else ""
    processes = f" of {known.processes} processes" if known.processes > 1 else ""
    return f"torch.compile compiled {counted(known.compilations, 'frame')}{processes}{seconds}."
