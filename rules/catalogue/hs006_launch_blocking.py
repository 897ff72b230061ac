"""HS006: every kernel launch waits until its kernel has run."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import intersect, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import DropSync
from traceopt.result.finding import Evidence, Fix
from traceopt.result.quantities import ms, percent
from traceopt.result.rounding import us
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.pricing import priced

VARIABLES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
LONG_NS = 20_000  # a shorter kernel may be over before its launch returns, without anybody waiting
TAIL_NS = 2_000  # the clocks of host and GPU agree to this


class LaunchBlocking(Rule):
    """Measures among kernels that run for 20 microseconds and longer, the share of time of those whose launch returns
    only when they have run. Where there are too few, the recorded variables decide.

    Why it costs: host and GPU take turns. While a kernel runs the host prepares nothing, and while the host prepares
    the next one the GPU is idle: the step is the sum of both, instead of the longer.

    How to fix: take the variable out of the environment; it is for debugging. Look into the job script, the container
    image, and `os.environ` at the top of the script.

        unset CUDA_LAUNCH_BLOCKING

    When it is wrong: a debugger or a profiler that serializes kernels (Nsight Compute, cuda-gdb) looks the same.

    Sources: CUDA programming guide, "Asynchronous Concurrent Execution"; PyTorch documentation, "CUDA semantics".
    """

    code: ClassVar[str] = "HS006"
    name: ClassVar[str] = "launch-blocking"
    title: ClassVar[str] = "Let kernel launches return at once"
    family: ClassVar[str] = "host synchronisation"
    effort: ClassVar[str] = "One variable"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "launches")

    min_share: float = threshold(0.9, "share of the kernels' time whose launches must wait for them")
    min_kernels: int = threshold(20, "long kernels that are needed to tell it from the trace alone")

    def check(self, facts: Facts) -> Findings:
        variables = _variables(facts)
        count, waiting = _waiting(facts)
        if count < self.min_kernels:
            if not variables:
                return
        elif waiting < self.min_share:
            return
        runtime, edges = facts.trace.runtime, facts.steps.edges
        launches = distinct_values(facts.links.launch[facts.gpu.rows[facts.gpu.is_kernel]])
        launches = launches[launches >= 0]
        waits = intersect(union(runtime.start[launches], runtime.end_of(launches)), facts.gpu.busy)
        wait_ns = median(waits.within(edges[:-1], edges[1:]))
        busy_ns = facts.gpu.busy.total / facts.steps.count
        own_ns = max(0.0, facts.step_ns - wait_ns)  # of the host
        gain = max(0.0, facts.step_ns - max(own_ns, busy_ns))
        if count < self.min_kernels:
            seen = f"The run has {variables[0]}"
        else:
            seen = f"For {percent(waiting)} of the kernels' time the launch returns only when its kernel has run"
        yield self.finding(
            why=(
                f"{seen}: host and GPU take turns. The host waits {ms(wait_ns)} of each {ms(facts.step_ns)} step in "
                "launches, "
                f"and the GPU works for {ms(busy_ns)} of it."
            ),
            saving=priced(
                facts,
                (0.5 * gain, gain, gain),
                [DropSync(_blocked(facts))],
                "Host and GPU beside each other: the step is then the longer of the host's own time and the GPU's "
                "work. Half of that where other syncs keep them in turns.",
            )
            if gain > 0
            else None,
            evidence=[
                Evidence("waiting in kernel launches", us(wait_ns), round(len(launches) / facts.steps.count, 3)),
                *(Evidence(variable, detail="recorded environment") for variable in variables),
            ],
            fix=Fix(
                "Remove the variable from the environment (job script, container, os.environ in the script).",
                "\n".join(f"unset {variable.partition('=')[0]}" for variable in variables)
                or "unset CUDA_LAUNCH_BLOCKING",
            ),
            shares_cause_with=["LB001"],
        )

    def passed(self, facts: Facts) -> str:
        count, waiting = _waiting(facts)
        if not count:
            return "No kernel is long enough to tell; no such variable was recorded."
        return f"The launches of {percent(waiting)} of the kernels' time wait for their kernels."


def _blocked(facts: Facts) -> npt.NDArray[np.integer]:
    """The calls that would return at once: all that launch, also copies, but for those that wait by their nature."""
    launches = distinct_values(facts.links.launch[facts.gpu.rows])
    return np.setdiff1d(launches, facts.slices.row[facts.syncs.slice])


def _variables(facts: Facts) -> list[str]:
    """ "CUDA_LAUNCH_BLOCKING=1", of those that are set to something else than 0."""
    known = facts.captured.environment.variables
    return [f"{name}={known[name]}" for name in VARIABLES if known.get(name, "0") not in ("0", "")]


def _waiting(facts: Facts) -> tuple[int, float]:
    """How many long kernels have a launch, and the share of their time in which the launch had not returned by the "
    "end."""
    gpu = facts.gpu
    launch = facts.links.launch[gpu.rows]
    long = gpu.is_kernel & (gpu.in_window > 0) & (gpu.work.duration >= LONG_NS) & (launch >= 0)
    time = gpu.work.duration[long]
    if not len(time):
        return 0, 0.0
    waited = facts.trace.runtime.end_of(launch[long]) >= gpu.work.end_of(long) - TAIL_NS
    return len(time), float(time[waited].sum() / time.sum())
