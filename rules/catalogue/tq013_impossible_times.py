"""TQ013: times in the trace cannot be."""

from __future__ import annotations

from traceopt.analyzer.tables.trace import TimeFault
from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule, ms

_UNKNOWN = "What the GPU waits for is unknown."


class ImpossibleTimes(Rule):
    """Looks for times that contradict each other:

    - Two clocks: work of the GPU starts before its launch, or goes on after the host has waited for it, or the time
      from launches to work that finds the GPU idle grows or shrinks all the time.
    - Overlap: work goes on after the next work of its stream has ended. A stream runs in order.
    - Another unit: launches that take milliseconds or less than 0.1 µs, durations that all overlap, kernels that are
      shorter than any kernel, copies that are faster than any link between host and device.
    - Far events: a part of the events is many minutes away from the others, as after an overflow of a counter.

    Why it matters: idle time, its causes and all savings follow from these times. traceopt corrects them where it is
    certain what they should be: a constant difference or a steady drift of the clocks, microseconds written as
    nanoseconds, an overflow of 32 bits, single durations that are cut where the next work of the stream starts.
    Everything else is not judged.

    A difference of the clocks is certain if it is shown by work that finds the GPU idle and so starts right after its
    launch, or by long waits that end with the work, and if nothing contradicts it once it is corrected.

    How to fix: record again with a current version of PyTorch and of the driver. Analyze the file as the profiler wrote
    it.

        pip install --upgrade torch

    When it is wrong: a tool that merges streams shows parallel work as work of one stream. Differences of the clocks
    below 0.1 ms are not reported, because profilers convert one clock to the other only so well.

    Sources: Kineto issues 112, 1082 and 1380; PyTorch issue 192021; CUDA C++ Programming Guide, "Streams" and
    "Programmatic Dependent Launch".
    """

    code = "TQ013"
    name = "impossible-times"
    title = "Record times that agree with each other"
    family = TRACE_QUALITY

    def check(self, facts: Facts) -> Findings:
        if facts.time_faults:
            yield self.finding(
                why=" ".join(map(_sentence, facts.time_faults)),
                fix=Fix("Record again with a current version of PyTorch and of the driver."),
            )

    def passed(self, facts: Facts) -> str:
        return f"The times of {len(facts.gpu.work):,} kernels and copies agree with their launches and streams."


def _sentence(fault: TimeFault) -> str:
    """What cannot be, and what became of it."""
    some = f"{fault.count:,} of {fault.of:,}"
    if fault.kind in ("clock", "drift"):
        return _clock(fault, some)
    if fault.kind == "overlap":
        if fault.mended:
            return (
                f"{some} kernels and copies are cut where the next one of their stream starts, because a stream runs "
                "in order."
            )
        return (
            f"{some} kernels and copies end after the next one of their stream has started, so how long they ran is "
            "unknown."
        )
    if fault.kind == "unit":
        if fault.mended:
            return f"{some} durations are divided by 1,000: they are in nanoseconds, where the format has microseconds."
        return f"{some} durations are not in microseconds, and their unit is unknown."
    apart = f"{fault.amount_ns / 60e9:.1f} minutes"
    if fault.kind == "far":
        return f"{some} events are moved by {apart} to the others: a counter of microseconds overflowed at 32 bits."
    text = f"{some} events are left out, because they lie {apart} away from the others."
    return text if fault.mended else f"{text} Too much is missing for the rest to be judged."


def _clock(fault: TimeFault, some: str) -> str:
    early = f"{some} kernels and copies start before their launch"
    seen = early if fault.count else "work starts late, or goes on after the host has waited for it"
    if not fault.mended:
        return f"The clocks of the host and of GPU {fault.device} disagree by no fixed time: {seen}. {_UNKNOWN}"
    apart = ms(abs(fault.amount_ns))
    if fault.kind == "drift":
        return f"The clock of GPU {fault.device} drifts by up to {apart} from the host's, which is corrected."
    direction = "behind" if fault.amount_ns < 0 else "ahead of"
    return f"The clock of GPU {fault.device} is {apart} {direction} the host's, which is corrected: {seen}."
