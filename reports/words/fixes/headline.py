"""The top of every report: the sentence under the verdict, and four headline numbers."""

from __future__ import annotations

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION
from traceopt.reports.words import rank_words, safe_text, step_words
from traceopt.reports.words.fixes import fix_cards, plan_numbers
from traceopt.reports.words.fixes.fix_cards import Card, combined_fixes
from traceopt.reports.words.rank_words import rank_phrase
from traceopt.reports.words.step_words import on_cpu
from traceopt.result.document import Combined, Result
from traceopt.result.sections.step import MANY_STEPS
from traceopt.result.words import quantities

WORTH_FIXING_SHARE = 0.03  # the headline mentions fixes that save at least 3 % of the step
UNSURE_SHARE = 0.5  # of the saving: if more of it has low confidence, it is one that "may" be
LARGE_REPLAY_ERROR = 0.05  # share of the step: a larger error stands beside what the fixes save
LEAST_MFU = 0.001  # a lower one reads "<0.1%", which says nothing of the step
NOTHING_FOUND = "No fix above 3% found."
NOT_RELIABLE = "not reliable"


class Tile(Struct, frozen=True):
    """A headline number. If `unit` is None, `value` is a phrase such as "not recorded"."""

    label: str
    value: str
    unit: str | None
    note: str


def worth_fixing(result: Result) -> bool:
    shares = [finding.saving.share for finding in result.findings if finding.saving is not None]
    if result.combined is not None:
        shares.append(result.combined.share)
    return bool(fix_cards.groups(result).urgent) or any(share >= WORTH_FIXING_SHARE for share in shares)


def without_fix(verdict: str, card: Card | None) -> list[str]:
    """The sentences of the verdict; not the one that names the fix of the card, which the line below begins with."""
    named = f": {quantities.in_sentence(card.finding.title)}." if card is not None else None
    sentences = safe_text.split_sentences(verdict)
    return [sentence for sentence in sentences if named is None or not sentence.endswith(named)] or sentences


def first_saving(card: Card, result: Result) -> str:
    """ "saves about 150 ms": of the fix to start with."""
    verb = "may save" if card.finding.confidence == "low" else "saves"
    if card.row is not None:
        return f"{verb} about {plan_numbers.row_numbers(card.row, result).saves}"
    saving = card.finding.saving
    return "" if saving is None else f"{verb} about {quantities.estimated(saving.est_us)}"


def lead(result: Result) -> tuple[str, str, str]:
    """The sentence under the verdict in three pieces; the second is bold."""
    savings = [finding.saving for finding in result.findings if finding.saving is not None]
    if result.quality.verdict == "unusable" and not savings:
        return "Savings are not estimated: this trace is not reliable enough.", "", ""
    if result.step.source == "none" and not savings:
        return "", "", ""
    if not savings and any(finding.impact in ("high", "medium") for finding in result.findings):
        return "Savings are not estimated.", "", ""
    if not worth_fixing(result):
        observations = len(result.findings) - len(savings)
        found = f" {quantities.counted(observations, 'observation')} without an estimate." if observations else ""
        return "", NOTHING_FOUND, found
    if result.combined is None:
        best = max(savings, key=lambda saving: saving.est_us)
        saved = step_words.saved_about(result, best)
        if all(finding.confidence == "low" for finding in result.findings):
            return "The largest single fix may save about ", saved, ", with low confidence."
        if len(savings) == 1:
            return "The one fix saves about ", saved, "."
        return "The largest single fix saves about ", saved, "; what the fixes save together is not known."
    combined = result.combined
    fixes, above = combined_fixes(result) or "the fixes", _above(result)
    singular = fixes == "the top fix" or fixes.startswith("fix ")
    planned = [(card.row.saving_us, card.finding.confidence) for card in fix_cards.groups(result).plan if card.row]
    unsure_us = sum(saving_us for saving_us, confidence in planned if confidence == "low")
    unsure = unsure_us > UNSURE_SHARE * combined.saving_us
    verb = " may save about " if unsure else " saves about " if singular else " save about "
    before_us = combined.step_us_after + combined.saving_us
    limit = step_words.limit(combined.limit_after)
    measured = step_words.step_noun(result)
    then = f" The {measured} is then {limit}." if limit else ""
    sure = ", with low confidence" if unsure else ""
    change = quantities.from_to(quantities.ms_of_us(before_us), plan_numbers.step_after(result), " → about ")
    rest = f"{sure}: {change}.{then}{_unrecorded(combined)}{_replay_error(combined)}"
    start = above + fixes
    return start[0].upper() + start[1:] + verb, plan_numbers.saved_together(result), rest


def _unrecorded(combined: Combined) -> str:
    """What to expect of steps that no profiler makes longer."""
    bare = combined.unrecorded
    if bare is None:
        return ""
    change = quantities.from_to(
        quantities.ms_of_us(bare.step_us), quantities.estimated(bare.step_us_after), " → about "
    )
    return f" Without the profiler: {change}."


def _replay_error(combined: Combined) -> str:
    error = combined.replay_error_share
    if error is None or error <= LARGE_REPLAY_ERROR:
        return ""
    return f" The replay behind this number is off by up to {quantities.percent(error)}."


def _above(result: Result) -> str:
    """What stands above the plan: "Fix 1, from comparing the ranks, saves about 5.2 ms per step (23%). On rank 0, "."""
    above = fix_cards.groups(result).above
    if not above or above[0].finding.saving is None:
        return ""
    saving, shown = above[0].finding.saving, result.run.shown_rank
    saved = step_words.saved(result, saving)
    where = "In the plan, " if shown is None else f"On rank {shown}, "
    return f"Fix 1, from comparing the ranks, saves about {saved}. {where}"


def speedup(result: Result) -> str:
    """ ", 1.9× the throughput", or nothing if the fixes together change it by less than 5 %."""
    combined = result.combined
    if combined is None or combined.step_us_after <= 0:
        return ""
    factor = (combined.step_us_after + combined.saving_us) / combined.step_us_after
    return f", {quantities.two_digits(factor)}× the throughput" if factor >= 1.05 else ""


def tiles(result: Result) -> list[Tile]:
    """The tiles of step time, busy share, time after the fixes and peak memory."""
    if result.step.source == "none":
        return []
    found = [_step_tile(result), _busy_tile(result), _after_tile(result), _memory_tile(result)]
    if found[-1].value == quantities.NOT_RECORDED:  # what was not checked says how to record it
        found[-1:] = _rate_tiles(result)
    return found


def _rate_tiles(result: Result) -> list[Tile]:
    """How fast the step computes, for a trace without memory: its throughput or its MFU, if known."""
    throughput, reached = result.throughput, result.efficiency
    if result.quality.verdict == "unusable":
        return []
    if throughput is not None and (throughput.tokens_per_s or throughput.samples_per_s):
        unit = "tokens/s" if throughput.tokens_per_s else "samples/s"
        value = throughput.tokens_per_s or throughput.samples_per_s or 0.0
        share = throughput.reference_share
        note = "per GPU" + (f", {quantities.percent(share)} of the reference" if share else "")
        return [Tile("Throughput", quantities.count(value), unit, note)]
    if reached.mfu is not None and reached.mfu >= LEAST_MFU and reached.peak_tflops is not None:
        peak = f"of the {reached.peak_dtype} peak of {quantities.flop_rate(reached.peak_tflops)}"
        return [Tile("MFU", quantities.percent(reached.mfu).rstrip("%"), "%", peak)]
    return []


def _step_tile(result: Result) -> Tile:
    step = result.step
    label = "Recorded window" if step.source == "window" else "Step time"
    if step.typical_us is None:
        return Tile(label, quantities.NOT_RECORDED, None, "the trace has no complete step")
    if result.quality.verdict == "unusable":
        return Tile(label, NOT_RELIABLE, None, f"in the trace: {quantities.ms_of_us(step.typical_us)}")
    if step.source == "window":
        return Tile(label, *quantities.time_parts(step.typical_us), "the trace has no usable step marks")
    typical = len(step.typical_steps)
    note = quantities.counted(step.count, "step")
    note = f"mean of {typical} of {note}{_of_all(result)}" if typical < step.count else note
    if step.p10_us is not None and step.p90_us is not None and typical > 1:
        spread = quantities.from_to(quantities.ms_of_us(step.p10_us), quantities.ms_of_us(step.p90_us), "–")
        note = f"{spread}{' (p10–p90)' if typical >= MANY_STEPS else ''}, {note}"
    if (span := rank_words.span_of_ranks(result)) is not None:
        note = f"{note}, {rank_phrase(result)}; the ranks take {span}"
    return Tile(label, *quantities.time_parts(step.typical_us), note)


def _of_all(result: Result) -> str:
    """ " (141.1 ms with the unusual ones)"; empty if the other steps are not unusual, but of another kind."""
    mean_us = result.step.mean_us
    if mean_us is None or not step_words.left_out(result):
        return ""
    return f" ({quantities.ms_of_us(mean_us)} with the unusual ones)"


def _busy_tile(result: Result) -> Tile:
    rank = rank_phrase(result)
    if on_cpu(result):
        busy = [part for part in result.breakdown if part.busy and part.name != COMMUNICATION.key]
        if not result.breakdown:
            return Tile("Model work", quantities.NOT_RECORDED, None, "the step has no breakdown")
        share = quantities.percent(sum(part.share for part in busy))
        if result.quality.verdict == "unusable":
            return Tile("Model work", NOT_RELIABLE, None, f"in the trace: {share}")
        labels = ", ".join(quantities.in_sentence(part.label) for part in busy[:3]) or "no model work found"
        return Tile("Model work", share.rstrip("%"), "%", labels)
    gpu = result.gpu
    if gpu.busy_share is None:
        return Tile("GPU busy", quantities.NOT_RECORDED, None, "the trace has no GPU work")
    if result.quality.verdict == "unusable":
        return Tile("GPU busy", NOT_RELIABLE, None, f"in the trace: {quantities.percent(gpu.busy_share)}")
    note = f"of the {step_words.step_noun(result)}" + (f", {rank}" if rank else "")
    if gpu.compute_share is not None:
        note = f"{quantities.percent(gpu.compute_share)} compute" + (f", {rank}" if rank else "")
    return Tile("GPU busy", quantities.percent(gpu.busy_share).rstrip("%"), "%", note)


def _after_tile(result: Result) -> Tile:
    combined = result.combined
    fixes = combined_fixes(result)
    if combined is None or fixes is None:
        return _no_estimate_tile(result)
    after, _, unit = plan_numbers.step_after(result).rpartition(quantities.NO_BREAK_SPACE)
    label = f"After {fixes.removesuffix(' fixes')} (estimate)"
    likely = plan_numbers.likely_share(result)
    saved = f"{quantities.percent(combined.share)} less{f' ({likely})' if likely else ''}{speedup(result)}"
    return Tile(label, f"≈{quantities.NO_BREAK_SPACE}{after}", unit, saved)


def _no_estimate_tile(result: Result) -> Tile:
    label = "After the top fixes"
    if result.quality.verdict == "unusable":
        return Tile(label, "not estimated", None, "see the notes above")
    if not result.findings:
        return Tile(label, "no fix found", None, "see the checks below")
    priced = sum(finding.saving is not None for finding in result.findings)
    notes = {0: "no finding has an estimate", 1: "see the estimate of the one fix"}
    return Tile(label, "not estimated", None, notes.get(priced, "what the fixes save together is not known"))


def _memory_tile(result: Result) -> Tile:
    memory = result.memory
    resident = _resident_bytes(result) if on_cpu(result) else None
    if resident is not None:
        return Tile("Process memory", *quantities.size_parts(resident), "the most at the end of a step")
    if on_cpu(result) and memory.peak_allocated_bytes is not None:
        value, unit = quantities.size_parts(memory.peak_allocated_bytes)
        return Tile("Peak memory", value, unit, "of tensors, from the start of the recording")
    if memory.peak_allocated_bytes is None:
        if memory.peak_reserved_bytes is None:
            how = "not in Nsight exports" if result.run.recorded.nsight else "record with profile_memory=True"
            return Tile("Peak memory", quantities.NOT_RECORDED, None, how)
        value, unit = quantities.size_parts(memory.peak_reserved_bytes)
        return Tile("Peak memory", value, f"{unit} reserved", "allocated: not recorded")
    value, unit = quantities.size_parts(memory.peak_allocated_bytes)
    if memory.capacity_bytes is not None:
        capacity, capacity_unit = quantities.size_parts(memory.capacity_bytes)
        of = f"of {capacity}" if unit == capacity_unit else f"{unit} of {capacity}"
        unit = f"{of}{quantities.NO_BREAK_SPACE}{capacity_unit}"
    return Tile("Peak memory", value, unit, f"reserved: {quantities.size_text(memory.peak_reserved_bytes)}")


def _resident_bytes(result: Result) -> int | None:
    """The highest resident memory of the process at the end of a step; None if it was not read."""
    readings = (
        [] if result.whole_run is None else [memory for memory in result.whole_run.memory if memory.of == "process"]
    )
    return max((most for reading in readings for most in reading.bytes), default=None)
