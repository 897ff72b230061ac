"""TQ003: the file holds only part of the run."""

from __future__ import annotations

from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule, ms, percent, threshold

_SIGNS = ("few_events", "hidden_work", "untraced")  # states of a recording that is only a part, or of a test


class CroppedOrSampled(Rule):
    """Looks for signs that the file is a part of a longer recording, or of a run that was already under way.

    - Sampled: the profiler numbers CPU events ("Ev Idx"), and most of the numbers are missing.
    - Starts in the middle: the file starts inside a step, or much of the GPU's work was launched before it starts. That
      work belongs to earlier steps, and its operators, shapes and source lines are unknown. A job that runs far ahead
      of its GPU shows the same.
    - Lead-in: at the start of the file, launched work does not begin, or the host waits for the GPU, while no GPU work
      is recorded. Work from before the recording still ran. The first step starts after it.
    - Too little: a handful of GPU events, no CPU operators, long waits for GPU work that the file does not show, or no
      event at all for most of the time in which the GPU is idle.

    Why it matters: shares of time, counts per step and idle time describe the part, not the job.

    How to fix: analyze the file as the profiler wrote it. Let the schedule skip a few steps. Wait for the GPU before
    the recording starts.

        torch.cuda.synchronize()
        prof.start()

    When it is wrong: a tool renumbered the events, or removed only irrelevant ones (python frames are not numbered).

    Sources: PyTorch documentation, "CUDA semantics: asynchronous execution" and "torch.profiler.schedule".
    """

    code = "TQ003"
    name = "cropped-or-sampled"
    title = "Analyze a complete recording"
    family = TRACE_QUALITY

    max_earlier_share: float = threshold(0.25, "largest accepted share of GPU time launched before the file starts")
    max_lead_steps: float = threshold(0.25, "most steps accepted between the file's start and the first measured step")
    max_leading_share: float = threshold(
        0.10, "longest accepted run of earlier work, as a share of the time until the steps end"
    )

    def check(self, facts: Facts) -> Findings:
        quality = facts.quality
        signs = []
        if quality.sampled_share is not None:
            signs.append(
                f"The file is sampled: it keeps {percent(quality.sampled_share)} of the CPU events that the profiler "
                "numbered, so counts and shares of time are not real. Analyze the file as the profiler wrote it."
            )
        begun_inside = quality.earlier_share > 0 and quality.lead_steps >= self.max_lead_steps
        if begun_inside or quality.earlier_share >= self.max_earlier_share:
            start = "The file starts inside a step. " if begun_inside else ""
            signs.append(
                f"{start}{percent(quality.earlier_share)} of the GPU's busy time was launched before the recording. It "
                "belongs to earlier steps, is not measured, and its operators and code are unknown. Call "
                "torch.cuda.synchronize() before the recording starts, or record more steps."
            )
        if quality.earlier_work_share >= self.max_leading_share:
            signs.append(
                f"The first {ms(quality.earlier_work.total)} of the recording are before the step: the GPU very likely "
                "still ran work from before the recording. Launched work or the host waited, and the file holds no GPU "
                "work of that time. It counts neither as busy nor as idle. Call torch.cuda.synchronize() before the "
                "recording starts."
            )
        if facts.state is not None and facts.state.name in _SIGNS:
            signs.append(facts.state.sentence)
        elif facts.has_gpu and not len(facts.trace.ops):
            signs.append("The file has no CPU operators, so what the host did between launches is unknown.")
        if signs:
            yield self.finding(
                why=" ".join(signs),
                fix=Fix(
                    "Analyze the file as the profiler wrote it, and wait for the GPU before the recording starts.",
                    "torch.cuda.synchronize()\nprof.start()",
                ),
                saving=None,
                evidence=[],
            )

    def passed(self, facts: Facts) -> str:
        return f"{percent(facts.quality.earlier_share)} of the GPU's busy time was launched before the file starts."
