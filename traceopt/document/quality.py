"""How far a trace can be judged, and what that allows to say of its findings."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.run_settings import UNLIKE
from traceopt.result.document import Note, Quality
from traceopt.result.finding import IMPACTS, Confidence, Finding, Impact

UNUSABLE = ("TQ001", "TQ007", "TQ013")  # notes that make the trace unusable
_SINGLE_STEP = "TQ002"  # the note on a single step or none
_HARMLESS = ("TQ006",)  # notes about single findings, not about the trace
_LOST_SHARE = 0.2  # of the kernel launches: if so many kernels are lost, shares of time are not real
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


def quality_of(facts: Facts, notes: list[Note]) -> Quality:
    codes = {note.code for note in notes}
    unusable = [code for code in UNUSABLE if code in codes]
    if not facts.quality.gpu_expected:
        unusable = [code for code in unusable if code != "TQ001"]  # a CPU-only run without GPU work is fine
        codes.discard("TQ001")
    if facts.times_hold:
        unusable = [code for code in unusable if code != "TQ013"]
    sampled = facts.quality.sampled_share
    if unusable or facts.quality.cut_off:
        return Quality("unusable", notes, unusable[0] if unusable else None, sampled_share=sampled)
    stretch = facts.captured.stretch or 1.0
    if facts.captured.corrected or 1 / UNLIKE < stretch < UNLIKE:
        codes -= set(_HARMLESS)
    again = facts.state is not None and facts.state.record_again
    return Quality("limited" if codes else "good", notes, record_again=again, sampled_share=sampled)


def allowed(facts: Facts, quality: Quality) -> Allowed:
    """What a trace of this quality allows to say."""
    lower = 2 if _is_partial(facts) else 0  # shares of a part are not shares of the run
    if quality.verdict == "unusable":  # the evidence holds, but savings are shares of times that are not real
        return Allowed(savings=False, impact="info", lower=lower)
    if facts.quality.sampled_share is not None:  # a sample shows what it holds, but not how much
        return Allowed(savings=False, impact="medium", lower=2)
    if facts.has_gpu and facts.replay_error is None:  # without launches, what the step gains is not known
        return Allowed(lower=lower, lower_with_saving=2)
    single = any(note.code == _SINGLE_STEP for note in quality.notes)
    if not facts.replay_complete or single or facts.quality.events_were_dropped:
        return Allowed(lower=lower, lower_with_saving=1)  # a part of the step is unknown, or may not recur
    return Allowed(lower=lower)


def _is_partial(facts: Facts) -> bool:
    """Whether so much of the GPU's work is missing from the file that its shares of time are not real."""
    quality, state = facts.quality, facts.state
    lacks_work = state is not None and state.name in ("lost_kernels", "hidden_work")
    lost = quality.launches_without_work > _LOST_SHARE * quality.launch_count
    return quality.damaged or lacks_work or lost
