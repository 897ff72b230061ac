"""HS006: every kernel launch blocks until its kernel has finished."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.result.words.vendors import VENDORS
from traceopt.rules import (
    DropSync,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    SetVariable,
    each_step,
    intersect,
    ms,
    named,
    percent,
    priced,
    threshold,
    union,
    us,
)

VARIABLES = tuple(name for vendor in VENDORS for name in vendor.blocking_variables)
LONG_NS = 20_000  # a shorter kernel may finish before its launch returns even if the launch does not block
TAIL_NS = 2_000  # host and GPU clocks agree to within this


class LaunchBlocking(Rule):
    """Measures the share of time in long kernels (20 microseconds or longer) whose launch call returns only after they
    have finished. If there are too few long kernels, the recorded environment variables decide.

    Why it costs: host and GPU take turns. While a kernel runs, the host prepares nothing. While the host prepares the
    next kernel, the GPU is idle. The step takes the sum of both times instead of the longer one.

    How to fix: unset the environment variable; it is for debugging. Check the job script, the container image, and
    `os.environ` at the top of the script.

        unset CUDA_LAUNCH_BLOCKING

    When it is wrong: a debugger or a profiler that serializes kernels (Nsight Compute, cuda-gdb) looks the same.

    Sources: CUDA programming guide, "Asynchronous Concurrent Execution"; PyTorch documentation, "CUDA semantics".
    """

    code = "HS006"
    name = "launch-blocking"
    title = "Turn off blocking kernel launches"
    family = "host synchronization"
    effort = Effort.ONE_LINE
    requires = ("gpu", "launches")

    min_share: float = threshold(0.9, "smallest share of long-kernel time with blocking launches to report")
    min_kernels: int = threshold(20, "fewest long kernels needed to judge from the trace alone")

    def check(self, facts: Facts) -> Findings:
        variables = _variables(facts)
        count, waiting = _waiting(facts)
        if count < self.min_kernels:
            if not variables:
                return
        elif waiting < self.min_share:
            return
        runtime = facts.trace.runtime
        launches = facts.launch_calls.kernel_calls
        waits = intersect(union(runtime.start[launches], runtime.end_of(launches)), facts.gpu.busy)
        wait_ns = facts.steps.mean_ns(waits)
        busy_ns = facts.gpu.busy.total / facts.steps.count
        host_ns = max(0.0, facts.step_ns - wait_ns)  # the host's own work
        gain = max(0.0, facts.step_ns - max(host_ns, busy_ns))
        if count < self.min_kernels:
            cause = f"The run sets {variables[0]}"
        else:
            cause = f"Launches block until the kernel has finished for {percent(waiting)} of kernel time"
        yield self.finding(
            why=(
                f"{cause}, so host and GPU take turns. In {each_step(facts)} the host waits {ms(wait_ns)} "
                f"in launches, and the GPU is busy for {ms(busy_ns)}."
            ),
            saving=priced(
                facts,
                (0.5 * gain, gain, gain),
                [DropSync(_blocked(facts))],
                "Assumes host and GPU work overlap, so the step takes the longer of the two. The low end is half of "
                "that, because other syncs may still serialize them.",
            )
            if gain > 0
            else None,
            evidence=[
                Evidence("Waiting in kernel launches", us(wait_ns), round(len(launches) / facts.steps.count, 3)),
                *(Evidence(named(variable), detail="recorded environment") for variable in variables),
            ],
            fix=Fix(
                "Unset the variable in the environment (job script, container, os.environ in the script).",
                edits=[
                    SetVariable(variable.partition("=")[0], None)
                    for variable in variables or facts.device.vendor.blocking_variables[:1]
                ],
            ),
            shares_cause_with=["LB002"],
        )

    def passed(self, facts: Facts) -> str:
        count, waiting = _waiting(facts)
        if not count:
            return "No kernel is long enough to judge, and no such variable was recorded."
        return f"Launches block for {percent(waiting)} of long-kernel time."


def _blocked(facts: Facts) -> npt.NDArray[np.integer]:
    """The launch calls (kernels and copies) that would return at once; calls that wait by design are left out."""
    return np.setdiff1d(facts.launch_calls.calls, facts.slices.row[facts.syncs.slice])


def _variables(facts: Facts) -> list[str]:
    """The variables set to something other than 0, as "CUDA_LAUNCH_BLOCKING=1"."""
    known = facts.captured.environment.variables
    return [f"{name}={known[name]}" for name in VARIABLES if known.get(name, "0") not in ("0", "")]


def _waiting(facts: Facts) -> tuple[int, float]:
    """How many long kernels have a launch, and the share of their time in kernels whose launch outlasts them."""
    gpu = facts.gpu
    launch = facts.links.launch
    long = gpu.is_kernel & gpu.is_inside & (gpu.work.duration >= LONG_NS) & (launch >= 0)
    time = gpu.work.duration[long]
    if not len(time):
        return 0, 0.0
    waited = facts.trace.runtime.end_of(launch[long]) >= gpu.work.end_of(long) - TAIL_NS
    return len(time), float(time[waited].sum() / time.sum())
