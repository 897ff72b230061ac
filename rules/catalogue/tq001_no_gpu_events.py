"""TQ001: no GPU work was recorded."""

from __future__ import annotations

from traceopt.analyzer.vocabulary import runtime_calls
from traceopt.rules import COUNTER_TOOLS, CUPTI, TRACE_QUALITY, Facts, Findings, Fix, Rule

RECORD = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"


class NoGpuEvents(Rule):
    """Looks for GPU kernels, copies and fills inside the measured window.

    Why it matters: without them, nothing can be said about the GPU. It may have been busy all the time; "idle 100 %"
    would be a guess. There are five cases:

    - The run used only the CPU, perhaps on a machine with a GPU. It is analyzed as such, based on its main thread.
    - The run used a GPU that was not recorded: CUPTI (or roctracer) was missing, in use by another profiler, or not
      requested.
    - Hardware counters were collected. That replays and serializes kernels, so no duration in the file is real.
    - GPU work was recorded, but none of it lies inside the measured steps.
    - The file is damaged. Its GPU work may be in the part that is lost.

    How to fix: request the device's activities, and make sure that nothing else holds CUPTI (Nsight, DCGM profiling, a
    second profiler in the process).

        with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
            ...

    When it is wrong: a process whose GPU work is launched by another process or node (a parameter server, a
    coordinator) has no GPU work of its own.

    Sources: Kineto issues 859 and 1354; PyTorch issues 131462 and 192021.
    """

    code = "TQ001"
    name = "no-gpu-events"
    title = "Record GPU activity"
    family = TRACE_QUALITY

    def applies(self, facts: Facts) -> str | None:
        other = facts.device.unsupported
        return f"The device is {other}, which traceopt cannot analyze." if other else None

    def check(self, facts: Facts) -> Findings:
        if facts.has_gpu:
            return
        yield self.finding(
            why=_what_is_missing(facts),
            fix=Fix("Record CPU and CUDA activities together.", RECORD),
        )

    def passed(self, facts: Facts) -> str:
        return f"{len(facts.gpu.work):,} kernels, copies and fills were recorded."


def _what_is_missing(facts: Facts) -> str:
    quality, trace = facts.quality, facts.trace
    if quality.counter_run:
        return (
            f"Hardware counters were collected ({CUPTI} range profiler), which replays and serializes every kernel. No "
            f"duration in this file is real{', but its counts are' if facts.counter_ranges else ''}. Record again "
            "without experimental_config's profiler_metrics."
        )
    if quality.has_gpu_work:
        return (
            f"All {len(facts.gpu.work):,} recorded GPU events lie outside the measured steps, so nothing can be said "
            "about the GPU. Record several complete steps, with CPU and GPU in one profiler."
        )
    if quality.lost_all_gpu_events:
        return (
            "The file is cut off before its first GPU event, so nothing can be said about the "
            f"{trace.meta.listed_gpu}. Write the trace again and let the writer finish."
        )
    if quality.damaged:
        return (
            "The part of the file that could be read shows no GPU work, so it is unknown whether the run used a GPU. "
            "Write the trace again and let the writer finish."
        )
    if not quality.gpu_expected:
        if trace.meta.device_properties():
            return (
                f"The run launched no work on the machine's {trace.meta.listed_gpu}, so it is analyzed as a CPU run. "
                "If it should run on the GPU, move the model and each batch there."
            )
        return "This trace shows no GPU use, so it is analyzed as a CPU-only run, based on its main thread."
    names = [trace.names[code] for code in trace.runtime.name]
    launches = sum(runtime_calls.is_kernel_launch(name) for name in names)
    holds = f"{launches:,} kernel launches but no kernels" if launches else "a process with a GPU but no GPU work"
    return (
        f"The file holds {holds}, so nothing can be said about the {quality.device.label}. Record with "
        f"ProfilerActivity.CUDA, and make sure that no other profiler ({COUNTER_TOOLS}) holds {CUPTI}."
    )
