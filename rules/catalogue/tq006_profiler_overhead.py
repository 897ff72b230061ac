"""TQ006: recording slowed the host, and the step waits for the host."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.table import DISPATCH, LONG_PYTHON, SMALL_OPS
from traceopt.rules import (
    TRACE_QUALITY,
    Evidence,
    Facts,
    Findings,
    Fix,
    Priced,
    Rule,
    lacks,
    microseconds,
    ms,
    percent,
    starved_ns,
    the_step,
    threshold,
)

STACKS = "stacks"  # the aspect of the note on stacks


class ProfilerOverhead(Rule):
    """Measures how much recording slowed the steps. `traceopt run` stores the time of every step of the run, recorded
    or not. The rule compares the median recorded step of the analyzed cycle with the median unrecorded one, excluding
    waits for data. It also reports recorded steps that are far shorter: they are not like the rest of the run. In
    other traces with Python stacks, it measures how much of the typical step the GPU waits for the host's ordinary work
    (operators, launches and Python). Hardware counters that were sampled during the recording are reported as well.

    Why it matters: recording costs time at every operator and launch. Shapes and memory cost more at every operator,
    stacks at every Python call. The GPU does not slow down, so the profiler makes a step look more host-bound than it
    is. Sampling hardware counters is the exception: it locks the GPU's clocks, so kernels take a different time.

    If the cost of the recorded events explains the longer steps of a GPU training, all times are corrected for it: the
    host's time between two launches becomes shorter, and the replay finds when the GPU then works. A busy GPU hides
    that cost: the steps are as long as without the profiler, but the host would seem to limit what fixes of the GPU's
    work gain. There, 3 us an event are taken out without a note.

    How to fix: find the lines with stacks, then measure the shares without them. `traceopt run` does both by itself, in
    two cycles.

        with profile(with_stack=False, record_shapes=False, profile_memory=False) as prof:
            ...

    When it is wrong: without the time of unrecorded steps, a step may be host-bound even without the profiler. With it,
    the unrecorded steps may do less work (other shapes, evaluation).

    Sources: PyTorch documentation of `torch.profiler.profile` on with_stack; Kineto issue 325, PyTorch issue 62390.
    """

    code = "TQ006"
    name = "profiler-overhead"
    title = "Measure host-bound time without stacks"
    family = TRACE_QUALITY

    min_stretch: float = threshold(1.1, "smallest ratio of recorded to unrecorded step time to report")
    max_shrink: float = threshold(0.8, "largest such ratio below 1 to report: recorded steps do less than the others")
    min_share: float = threshold(0.10, "smallest GPU wait for host work, as a share of the step, to report")

    def missing(self, facts: Facts) -> str | None:
        if facts.captured.stretch is not None or facts.quality.counter_readings:
            return None
        return next((lack for needed in ("gpu", "launches") if (lack := lacks(facts, needed))), None)

    def applies(self, facts: Facts) -> str | None:
        return (
            None
            if facts.captured.stretch is not None or facts.call_sites.recorded or facts.quality.counter_readings
            else "No Python stacks were recorded."
        )

    def check(self, facts: Facts) -> Findings:
        stretch = facts.captured.stretch
        if readings := facts.quality.counter_readings:
            yield self.finding(
                why=(
                    f"Hardware counters were sampled during the recording ({readings:,} readings), which locks the "
                    "GPU's clocks. Kernels take a different time than in an ordinary run."
                ),
                fix=Fix("Record without hardware counters to measure durations."),
            )
        if stretch is not None:
            if facts.captured.corrected and _recorded_ns(facts) >= self.min_stretch * facts.step_ns:
                yield self._corrected(facts)
            elif stretch >= self.min_stretch and not facts.captured.corrected:
                yield self._measured(facts, stretch)
            elif stretch <= self.max_shrink:
                yield self._unlike(facts, stretch)
            return
        if not facts.call_sites.recorded:
            return
        share = _host_share(facts)
        if share < self.min_share:
            return
        yield self.finding(
            why=(
                f"Python stacks were recorded, which slows the host, and the GPU waits for the host for "
                f"{percent(share)} of {the_step(facts)}. That share is smaller without the profiler. Record again with "
                "with_stack=False to measure it."
            ),
            fix=Fix("Find the line with stacks, then measure without them.", "profile(with_stack=False)"),
            aspect=STACKS,
        )

    def _corrected(self, facts: Facts) -> Priced:
        return self.finding(
            why=f"All times are corrected for the profiler. {_taken_out(facts)}",
            fix=Fix("Nothing. Viewers of the trace file, such as Perfetto, show the steps as they were recorded."),
        )

    def _measured(self, facts: Facts, stretch: float) -> Priced:
        inflated = (
            f"the GPU's wait for the host, {percent(_host_share(facts))} of {the_step(facts)}, is shorter without it"
            if facts.has_gpu
            else "Python and small operators take less time without it"
        )
        return self.finding(
            why=f"{self._compared(facts, stretch)} The profiler slows only the host: {inflated}.",
            fix=Fix("Rely on the order of the findings more than on their milliseconds."),
        )

    def _compared(self, facts: Facts, stretch: float) -> str:
        """The steps with and without a profiler. In steps that wait as long for data, only the rest tells."""
        usual_ns = facts.captured.ledger.usual_step_ns if facts.captured.ledger is not None else None
        if usual_ns and (facts.step_ns >= self.min_stretch * usual_ns) == (stretch >= self.min_stretch):
            return f"Recorded steps took {ms(facts.step_ns)}, and unrecorded ones {ms(usual_ns)}."
        return f"Recorded steps took {stretch:.2f} times as long as unrecorded ones, excluding waits for data."

    def _unlike(self, facts: Facts, stretch: float) -> Priced:
        ledger = facts.captured.ledger
        cycles = ledger.stretch if ledger is not None else {}
        return self.finding(
            why=(
                f"Recorded steps took only {stretch:.2f} times as long as unrecorded ones, excluding waits for data. "
                "They are not like the other steps of the run: these do more, or other programs slow them down."
            ),
            fix=Fix("Record other steps: --wait skips more of the first ones.", "traceopt run --wait 50 train.py"),
            evidence=[Evidence(f"{cycle} cycle", detail=f"{ratio:.2f} times") for cycle, ratio in cycles.items()],
        )

    def passed(self, facts: Facts) -> str:
        stretch = facts.captured.stretch
        if stretch is not None:
            return _taken_out(facts) if facts.captured.corrected else self._compared(facts, stretch)
        return f"The GPU waits for the host's ordinary work for {percent(_host_share(facts))} of {the_step(facts)}."


def _taken_out(facts: Facts) -> str:
    """What recording cost, which all times are corrected for, and the step with and without it."""
    meta = facts.trace.meta
    event, kernel = microseconds(meta.event_cost_ns or 0.0), microseconds(meta.kernel_cost_ns)
    return (
        f"Recorded steps took {ms(_recorded_ns(facts))}, and take {ms(facts.step_ns)} without its cost: each recorded "
        f"event cost the host {event}, and each kernel the GPU {kernel}."
    )


def _recorded_ns(facts: Facts) -> float:
    """The step before the correction."""
    return facts.trace.meta.recorded_step_ns or 0.0


def _host_share(facts: Facts) -> float:
    return starved_ns(facts, *DISPATCH, SMALL_OPS, LONG_PYTHON) / facts.step_ns
