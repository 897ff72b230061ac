"""How far a trace can be judged, and what that allows to say of its findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.recording_state import RecordingState
from traceopt.analyzer.run_log.run_settings import UNLIKE
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, COPIES
from traceopt.result.document import NOT_JUDGED, Note, Quality
from traceopt.result.finding import IMPACTS, Confidence, Finding, Impact
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words.message import percent

UNUSABLE = ("TQ001", "TQ007", "TQ013")  # notes that make the trace unusable
_SINGLE_STEP = "TQ002"  # the note on a single step or none
_HARMLESS = ("TQ006",)  # notes about single findings, not about the trace
_LOST_SHARE = 0.2  # of the kernel launches: if so many kernels are lost, shares of time are not real
_TOLD_SHARE = 0.01  # of a kind of events: if less is known to be missing, no share is named
_DAMAGED_SHARE = 0.05  # of a kind of events: a damaged file that lacks more cannot be judged
_LACKING_STATES = ("lost_kernels", "hidden_work")  # of recordings that lack GPU work
_LACKING = {
    "events": "of its events",
    "text": "of its text",
    "kernels": "of its kernels",
    "copies": "of its copies",
    "launches": "of its launches",
    "operators": "of its launches and their work",
    "calls": "of its calls and their work",
}
_CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


class Allowed(Struct, frozen=True):
    """What may be said of findings. Without `savings` there is no plan either, and the impact of a finding that had a
    saving is at most `impact`. `lower`, `lower_with_saving`: levels of confidence that each finding loses.
    """

    savings: bool = True
    impact: Impact = "high"
    lower: int = 0
    lower_with_saving: int = 0

    def finding(self, one: Finding) -> Finding:
        """The finding as far as it may be said."""
        had = one.saving is not None
        lower = max(self.lower, self.lower_with_saving if had else 0)
        level = min(len(_CONFIDENCES) - 1, _CONFIDENCES.index(one.confidence) + lower)
        return replace(
            one,
            saving=one.saving if self.savings else None,
            impact=max(one.impact, self.impact, key=IMPACTS.index) if had else one.impact,
            confidence=_CONFIDENCES[level],
        )


def quality_of(facts: Facts, notes: list[Note], breakdown: Sequence[BreakdownPart]) -> Quality:
    codes = {note.code for note in notes}
    unusable = [code for code in UNUSABLE if code in codes]
    if not facts.quality.gpu_expected:
        unusable = [code for code in unusable if code != "TQ001"]  # a CPU-only run without GPU work is fine
        codes.discard("TQ001")
    if facts.times_hold:
        unusable = [code for code in unusable if code != "TQ013"]
    reason = next((note.text for note in notes if note.code in unusable[:1]), None)
    state = stated(facts, breakdown)
    caveat, sampled = caveat_of_file(facts, state, reason), facts.quality.sampled_share
    if caveat is None and state is not None:
        caveat = state.sentence
    if unusable or _is_torn(facts):
        by = unusable[0] if unusable else None
        return Quality("unusable", notes, by, sampled_share=sampled, caveat=caveat)
    stretch = facts.captured.stretch or 1.0
    if facts.captured.corrected or 1 / UNLIKE < stretch < UNLIKE:
        codes -= set(_HARMLESS)
    again = facts.state is not None and facts.state.record_again
    verdict: Literal["good", "limited"] = "limited" if codes or caveat is not None else "good"
    return Quality(verdict, notes, record_again=again, sampled_share=sampled, caveat=caveat)


def stated(facts: Facts, breakdown: Sequence[BreakdownPart]) -> RecordingState | None:
    """The state of the recording. None if it only makes a part of the idle time longer, and exposed communication or
    copies take more than that.
    """
    state = facts.state
    transfers = max((part.share for part in breakdown if part.name in (COMMUNICATION.key, COPIES.key)), default=0.0)
    return None if state is not None and state.record_again and transfers > state.share else state


def caveat_of_file(facts: Facts, state: RecordingState | None, unusable: str | None = None) -> str | None:
    """Why the times of the trace are not those of the run, or may not be, beside the state of the recording; times that
    were corrected need no caveat. `unusable`: why it cannot be judged.
    """
    quality = facts.quality
    if quality.sampled_share is not None:
        return f"This file has only {percent(quality.sampled_share)} of the events: its shares of time are not real."
    if quality.lost_all_gpu_events:
        gpu = facts.trace.meta.listed_gpu
        return f"This file is cut off before its first GPU event: it does not show what the {gpu} did."
    if quality.cut_off:
        return "This file is cut off: whole kinds of events may be missing, so its times are not those of the run."
    if unusable is not None:
        return f"{NOT_JUDGED} {unusable}"
    if facts.has_trace and not facts.has_gpu and not len(facts.trace.ops) and not facts.device.unsupported:
        return "This file lacks the CPU operators: what the host did is unknown."
    missing = quality.missing
    if quality.damaged:
        least = f", at least {percent(missing.share)} {_LACKING[missing.kind]}" if missing.share >= _TOLD_SHARE else ""
        times = "are not" if _is_torn(facts) else "may not be"
        return f"Part of the file is lost{least}: its times {times} those of the run."
    if quality.events_were_dropped and (state is None or state.name not in _LACKING_STATES):
        lacks = f"The file lacks {percent(missing.share)} {_LACKING[missing.kind]}"
        return f"{lacks}: its times may not be those of the run."
    return None


def _is_torn(facts: Facts) -> bool:
    """Whether the file is damaged, and so much of a kind of events is missing that its times are not those of the run.
    Where it ends early, whole kinds may be missing.
    """
    quality = facts.quality
    return quality.cut_off or (quality.damaged and quality.missing.share >= _DAMAGED_SHARE)


def allowed(facts: Facts, quality: Quality) -> Allowed:
    """What a trace of this quality allows to say."""
    lower = 2 if _is_partial(facts) else 0  # shares of a part are not shares of the run
    if quality.verdict == "unusable":  # the evidence holds, but savings are shares of times that are not real
        return Allowed(savings=False, impact="info", lower=lower)
    if facts.quality.sampled_share is not None:  # a sample shows what it holds, but not how much
        return Allowed(savings=False, impact="medium", lower=2)
    if quality.record_again:  # no steady step was recorded, so what a fix saves of one is not known
        return Allowed(savings=False, impact="medium", lower=lower)
    if facts.has_gpu and facts.replay_error is None:  # without launches, what the step gains is not known
        return Allowed(lower=lower, lower_with_saving=2)
    single = any(note.code == _SINGLE_STEP for note in quality.notes)
    if not facts.replay_complete or single or facts.quality.events_were_dropped:
        return Allowed(lower=lower, lower_with_saving=1)  # a part of the step is unknown, or may not recur
    return Allowed(lower=lower)


def _is_partial(facts: Facts) -> bool:
    """Whether so much of the GPU's work is missing from the file that its shares of time are not real."""
    quality, state = facts.quality, facts.state
    lacks_work = state is not None and state.name in _LACKING_STATES
    return quality.damaged or lacks_work or quality.kernels.share > _LOST_SHARE
