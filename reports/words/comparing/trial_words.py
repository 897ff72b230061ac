"""The words of changes that were tried: predicted and measured gains, losses, memory, verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.words.tables import Derived, ShownTable, shown_table
from traceopt.result.tables.change_tables import TRIED, TUNED
from traceopt.result.trial import TrialVerdict, TriedChange
from traceopt.result.words.quantities import from_to, ms_of_us, percent, size

HEADING = TRIED.title
VERDICTS: dict[TrialVerdict, str] = {
    "keep": "keep",
    "no_gain": "no gain",
    "unclear": "unclear",
    "slower": "slower",
    "trains_differently": "trains differently",
    "fails": "fails",
    "not_tried": "not tried",
}
_WITHOUT_PATCH = ("runtime", "environment", "arguments")
SAME_MEMORY = 0.01  # a smaller difference of the peaks is not shown


def predicted(row: TriedChange) -> str:
    return "–" if row.predicted_us is None else ms_of_us(row.predicted_us)


def measured(row: TriedChange) -> str:
    """ "−22% ± 2.0%, 152.0 → 118.0 ms"; "–" without a measurement."""
    if row.before_us is None or row.after_us is None or row.gain_share is None:
        return "–"
    return f"{change(row)}, {from_to(ms_of_us(row.before_us), ms_of_us(row.after_us))}"


def change(row: TriedChange) -> str:
    """ "−22% ± 2%": how the step changed, with half the width of the 99 % interval if that is known."""
    if row.gain_share is None:
        return "–"
    changed = f"{'−' if row.gain_share > 0 else '+'}{percent(abs(row.gain_share))}"
    if row.low_share is None or row.high_share is None:
        return changed
    return f"{changed} ± {percent((row.high_share - row.low_share) / 2)}"


def losses(row: TriedChange) -> str:
    found = row.losses
    if found is None or found.verdict == "unknown":
        return "not seen" if row.before_us is not None else "–"
    if found.verdict == "identical":
        return "identical"
    if found.verdict == "drifts":
        return f"drift from step {found.from_step}"
    if found.verdict == "redrawn":
        return "as with other seeds"
    return f"equal within {found.within_share:.0e}".replace("e-0", "e-")


def memory(row: TriedChange) -> str:
    found = row.memory
    if found is None:
        return "–"
    if abs(found.after_bytes - found.before_bytes) < SAME_MEMORY * max(found.before_bytes, 1):
        return size(found.after_bytes)
    return f"{size(found.before_bytes)} → {size(found.after_bytes)}"


def verdict(row: TriedChange) -> str:
    return VERDICTS[row.verdict]


def name(row: TriedChange) -> str:
    """The change, and those below it: "OP001 on top of DL001"."""
    return f"{row.name} on top of {', '.join(row.on_top_of)}" if row.on_top_of else row.name


def round_word(row: TriedChange) -> str:
    return "all" if row.tuning_round is None else str(row.tuning_round)


_DERIVED: Derived = {
    "change": name,
    "verdict_word": verdict,
    "predicted": predicted,
    "measured": measured,
    "loss_words": losses,
    "peak_memory": memory,
    "round_word": round_word,
}


def trial_table(tried: Sequence[TriedChange]) -> ShownTable:
    """Changes, what was predicted of them and what was measured; with the rounds of `traceopt tune`."""
    tuned = any(row.tuning_round is not None for row in tried)
    return shown_table(TUNED if tuned else TRIED, tried, derived=_DERIVED)


def notes(tried: Sequence[TriedChange]) -> list[str]:
    """Sentences below the table."""
    lines = [f"{row.name}: {text}" for row in tried for text in (row.reason, row.prediction_note) if text]
    lines += [
        f"With all that was kept, a step takes {ms_of_us(row.after_us)}, not {ms_of_us(row.before_us)}: "
        f"{row.before_us / row.after_us:.2f} times as fast."
        for row in tried
        if row.kind == "all" and row.verdict == "keep" and row.before_us and row.after_us
    ]
    settings = [row for row in tried if row.verdict == "keep" and row.via in _WITHOUT_PATCH and row.kind != "all"]
    if settings:
        named = (f"{row.name} ({row.title})" if row.kind == "fix" else row.name for row in settings)
        lines.append(f"Kept without a patch, for you to make: {'; '.join(named)}.")
    at_run_time = [row.name for row in tried if row.via == "runtime" and row.kind != "searched"]
    if at_run_time:
        names = ", ".join(at_run_time)
        lines.append(f"{names}: tried by a setting at run time, without a change of the source.")
    if any(row.seeded_by == "traceopt" for row in tried):
        lines.append("The script sets no random seed, so traceopt fixed it in the same way for all runs.")
    if any(row.losses is not None and row.losses.verdict == "drifts" for row in tried):
        lines.append(
            "Losses drift: traceopt does not keep such a change on its own, because runs with other seeds do not show "
            "that it trains the same. Decide whether the training is still the one that you want."
        )
    lines += [
        f"{row.name}: draws other random numbers. Over several seeds, the mean losses of both sides differ by at "
        f"most {percent(row.losses.within_share)}, so it trains the same."
        for row in tried
        if row.losses is not None and row.losses.verdict == "redrawn" and row.losses.within_share is not None
    ]
    if any(row.gain_share is not None for row in tried):
        lines.append("Measured without a profiler, in alternating runs, with a 99% interval.")
    return lines
