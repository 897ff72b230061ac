"""TQ003: the file holds only a part of what ran."""

from __future__ import annotations

from collections.abc import Iterator

from traceopt.analyzer.trace_quality import DROPPED_SHARE, TraceQuality
from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Former, Rule, ms, percent, threshold

_MISSING = {
    "kernels": "kernel launches ({}) have no kernel, so busy time is understated and idle time overstated",
    "copies": "copy calls ({}) have no copy, so busy time is understated and idle time overstated",
    "operators": "operators ({}) launch nothing, although others of their names do, so their work is missing",
    "calls": "ids of runtime calls ({}) are skipped in times without host events, so work is missing",
    "launches": "GPU events ({}) have no launch, so their operators are unknown",
}
_SIGNS = ("few_events", "hidden_work", "untraced")  # states of a recording that is only a part, or of a test


class CroppedOrSampled(Rule):
    """Looks for signs that the file is a part of a longer recording, of a run that was already under way, or that
    events were lost.

    - Sampled: the profiler numbers CPU events ("Ev Idx"), and most of the numbers are missing.
    - Starts in the middle: the file starts inside a step, or much of the GPU's work was launched before it starts. That
      work belongs to earlier steps, and its operators, shapes and source lines are unknown. A job that runs far ahead
      of its GPU shows the same.
    - Lead-in: at the start of the file, launched work does not begin, or the host waits for the GPU, while no GPU work
      is recorded. Work from before the recording still ran. The first step starts after it.
    - Too little: a handful of GPU events, no CPU operators, nothing that links kernels to their launches, long waits
      for GPU work that the file does not show, or no event at all for most of the time in which the GPU is idle.
    - Dropped: kernel launches or copies inside the window have no GPU work, or kernels have no launch although earlier
      launches of the same stream are there. Launches inside a graph capture do not count, because nothing runs.
    - Damaged: the file ends too early, or events could not be read: raw quotes and line breaks in names, bytes that are
      not UTF-8, times that are not numbers, holes. All readable events are used. An event that could be read after its
      text was repaired is complete and does not count as lost. A hole of any size looks like a single lost event, so
      one is enough for the note. Launches without work show how much is missing at least.

    Why it matters: shares of time, counts per step and idle time describe the part, not the job. If kernels are
    missing, the GPU looks idle although it worked. Events are written by kind and thread, not in order of time, so a
    file that ends early may lack the GPU side or the later operators.

    How to fix: analyze the file as the profiler wrote it, after the writer has finished. Let the schedule skip a few
    steps, and record a few at a time, so that the profiler's buffers do not overflow. Wait for the GPU before the
    recording starts and before it stops.

        with profile(schedule=schedule(wait=1, warmup=2, active=3)) as prof:
            torch.cuda.synchronize()                # before the first and the last prof.step()
        prof.export_chrome_trace("trace.json.gz")   # after the `with` block; check the disk's free space

    When it is wrong: a tool renumbered the events, or removed only irrelevant ones (python frames are not numbered).
    Somebody removed short kernels from the file. Another library's profiler that replays graphs may hide launches on
    purpose. Bytes after the end of the document (a shorter file written over a longer one) count as lost events,
    although nothing of the trace is lost.

    Sources: PyTorch documentation, "CUDA semantics: asynchronous execution" and "torch.profiler.schedule"; Kineto
    issues 80, 336, 1336 and 1459; PyTorch issues 98432, 113001, 130622, 131462, 166121 and 192021.
    """

    code = "TQ003"
    name = "cropped-or-sampled"
    title = "Analyze a complete recording"
    family = TRACE_QUALITY
    former = (Former("TQ005", "dropped-events", {"min_share": "min_dropped_share"}), Former("TQ009", "truncated-file"))

    max_earlier_share: float = threshold(0.25, "largest accepted share of GPU time launched before the file starts")
    max_lead_steps: float = threshold(0.25, "most steps accepted between the file's start and the first measured step")
    max_leading_share: float = threshold(0.10, "longest accepted lead-in, as a share of the time until the steps end")
    min_dropped_share: float = threshold(DROPPED_SHARE, "smallest share of lost launches or lost GPU work to report")

    def check(self, facts: Facts) -> Findings:
        signs = [*self._damage(facts), *self._crop(facts), *self._dropped(facts)]
        if signs:
            yield self.finding(
                why=" ".join(signs),
                fix=Fix(
                    "Analyze the file as the profiler wrote it, and wait for the GPU before the recording starts.",
                    "torch.cuda.synchronize()\nprof.start()",
                ),
            )

    def _damage(self, facts: Facts) -> Iterator[str]:
        meta = facts.trace.meta
        if not facts.quality.damaged:
            return
        damage = f"The file is damaged: {meta.damage}." if meta.damage else "Parts of the file are unreadable."
        yield (
            f"{damage} {_counts(facts.quality)}. The events read cover {ms(facts.trace.duration_ns)}, and whole kinds "
            "of events may be missing. Write the trace again and let the writer finish."
        )

    def _crop(self, facts: Facts) -> Iterator[str]:
        quality = facts.quality
        if quality.sampled_share is not None:
            yield (
                f"The file is sampled: it keeps {percent(quality.sampled_share)} of the CPU events that the profiler "
                "numbered, so counts and shares of time are not real. Analyze the file as the profiler wrote it."
            )
        begun_inside = quality.earlier_share > 0 and quality.lead_steps >= self.max_lead_steps
        if begun_inside or quality.earlier_share >= self.max_earlier_share:
            start = "The file starts inside a step. " if begun_inside else ""
            yield (
                f"{start}{percent(quality.earlier_share)} of the GPU's busy time was launched before the recording. It "
                "belongs to earlier steps, is not measured, and its operators and code are unknown. Call "
                "torch.cuda.synchronize() before the recording starts, or record more steps."
            )
        if quality.earlier_work_share >= self.max_leading_share:
            yield (
                f"The first {ms(quality.earlier_work.total)} of the recording are before the step: the GPU very likely "
                "still ran work from before the recording. Launched work or the host waited, and the file holds no GPU "
                "work of that time. It counts neither as busy nor as idle. Call torch.cuda.synchronize() before the "
                "recording starts."
            )
        if facts.state is not None and facts.state.name in _SIGNS:
            yield facts.state.sentence
        elif facts.has_gpu and not len(facts.trace.ops):
            yield "The file has no CPU operators, so what the host did between launches is unknown."
        elif facts.has_gpu and len(facts.trace.runtime) and not facts.trace.links_launches:
            yield (
                "The file does not tell which call launched which kernel: it has no correlation ids, External ids or "
                "flows (ac2g) for that. So operators of kernels and savings in launches are unknown."
            )

    def _dropped(self, facts: Facts) -> Iterator[str]:
        damaged = facts.quality.damaged
        least = 0.0 if damaged else self.min_dropped_share
        signs = [
            f"{unlinked.count:,} of {unlinked.of:,} {_MISSING[unlinked.kind].format(percent(unlinked.share))}."
            for unlinked in facts.quality.unlinked
            if unlinked.count and unlinked.share >= least
        ]
        if signs and damaged:
            yield " ".join(signs)
        elif signs:
            yield f"The profiler dropped events. {' '.join(signs)} Record fewer steps at a time."

    def passed(self, facts: Facts) -> str:
        quality = facts.quality
        launches = ""
        if quality.unlinked:
            launches = (
                f" {quality.kernels.count:,} of {quality.kernels.of:,} kernel launches have no kernel; "
                f"{quality.lost_launches:,} GPU events have no launch."
            )
        unused = ", ".join(f"{count:,} {category}" for category, count in quality.unread.items())
        return (
            f"{percent(quality.earlier_share)} of the GPU's busy time was launched before the file starts.{launches} "
            f"Of all events, {_lost(facts.quality)}." + (f" Counted but not used: {unused}." if unused else "")
        )


def _counts(quality: TraceQuality) -> str:
    return f"{quality.trace.meta.event_count:,} events were read: {_lost(quality)}"


def _lost(quality: TraceQuality) -> str:
    meta, count = quality.trace.meta, quality.lost_events
    least = "at least " if count > meta.lost_events else ""
    repaired = f", {meta.repaired_events:,} repaired" if meta.repaired_events else ""
    return f"{least}{count:,} {'was' if count == 1 else 'were'} lost{repaired}"
