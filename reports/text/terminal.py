"""The summary for a terminal, and the concise format with one line per finding."""

from __future__ import annotations

import re

from traceopt.reports.text.terminal_lines import MAX_WIDTH, MIN_WIDTH, Terminal, width_of
from traceopt.reports.words import rank_words, run_words, safe_text, step_words
from traceopt.reports.words.companions.sections import companion_lines
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes import fix_cards, headline, plan_numbers
from traceopt.reports.words.part_styles import small_parts_together
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words import quantities

STEP_COLUMNS = 40  # columns of a bar for the whole step
BAR_COLUMNS = (6, 18)  # columns that bars may take, least and most; a larger part shrinks the scale
OTHER_COLUMNS = 62  # the numbers and the longest label
SMALL_SHARE = 0.005  # smaller parts of the step share one line
VERDICT_LINES = 4
TITLE_COLUMNS = 30  # the least for titles; beside longer numbers, titles have lines of their own
TITLE_LINES = 4
NAME_COLUMNS = 16  # the least that the header leaves for the trace's name
CODE_COLUMNS = 8
ALONE = "Alone: without the other fixes."
REASONED = 2  # findings without an estimate: so many have their reasons and fixes, if there are no others
NOTES = 5  # quality notes shown, and warnings
WIDE = 96  # from this width on, the confidence column has its full heading

_TRACE_SUFFIX = re.compile(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$")
_IMPACT_COLORS = {"high": "red", "medium": "yellow", "low": "cyan", "info": "blue"}


def render_terminal(result: Result, *, width: int, color: bool, unicode: bool) -> str:
    """The summary in lines of at most `width` columns (60 to 110). Without `unicode` it is ASCII."""
    document = for_display(result)
    terminal = Terminal(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    blocks = [
        _headline(document, terminal),
        _quality(document, terminal),
        _breakdown(document, terminal),
        _fixes(document, terminal),
        _companions(document, terminal),
        _tried(document, terminal),
        _footer(document, terminal),
    ]
    return safe_text.without_commands("\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n")


def _headline(result: Result, terminal: Terminal) -> list[str]:
    name = "traceopt"
    first, *rest = _about(result, terminal, terminal.width - len(name) - 2)
    lines = [f"{terminal.style(name, bold=True)}  {first}", *(f"{' ' * len(name)}  {line}" for line in rest), ""]
    lines += [terminal.style(line, bold=True) for line in _verdict_lines(run_words.verdict(result), terminal)]
    before, strong, after = headline.lead(result)
    lines += _emphasized(terminal.wrap(before + strong + after), terminal.plain(strong), terminal)
    lines += terminal.wrap(step_words.unusual_steps(result))
    if (span := rank_words.span_of_ranks(result)) is not None:
        lines += terminal.wrap(f"The ranks take {span} a step; these numbers are of {rank_words.rank_phrase(result)}.")
    lines += terminal.wrap(rank_words.slow_ranks(result) or "")
    rate, cost, serving = run_words.throughput(result), run_words.cost(result), run_words.serving(result)
    lines += terminal.wrap(f"Throughput: {rate}.", indent="  ") if rate else []
    lines += terminal.wrap(f"Cost: {cost}.", indent="  ") if cost else []
    lines += terminal.wrap(f"{serving}.", indent="  ") if serving else []
    phases = run_words.rl_phases(result)
    return lines + (terminal.wrap(f"{phases}.", indent="  ") if phases else [])


def _about(result: Result, terminal: Terminal, columns: int) -> list[str]:
    """Trace, device, steps and rank. The trace's name is shortened first, then it has a line of its own."""
    steps = "no usable step marks" if result.step.source == "window" else step_words.steps_phrase(result)
    rest = terminal.plain(
        "".join(
            f" · {item}" for item in (run_words.device_phrase(result), steps, rank_words.rank_phrase(result)) if item
        )
    )
    name = run_words.identity(result)
    if width_of(name) + width_of(rest) > columns:
        name = _TRACE_SUFFIX.sub("", name)
    room = columns - width_of(rest)
    if room >= min(NAME_COLUMNS, width_of(name)):
        return [terminal.fit(name, room) + rest]
    return [terminal.fit(run_words.identity(result), columns), *terminal.lines(rest[3:], columns, 3)]


def _verdict_lines(verdict: str, terminal: Terminal) -> list[str]:
    """One sentence per line if two do not fit on one. The last sentences are left out if there are too many lines."""
    sentences = safe_text.split_sentences(verdict)
    short_enough = len(sentences) <= VERDICT_LINES and max(map(width_of, sentences)) <= terminal.width
    if short_enough and width_of(verdict) > terminal.width:
        return [terminal.plain(sentence) for sentence in sentences]
    while len(sentences) > 1 and len(terminal.wrap(" ".join(sentences))) > VERDICT_LINES:
        sentences.pop()
    return terminal.lines(" ".join(sentences), terminal.width, VERDICT_LINES)


def _emphasized(lines: list[str], strong: str, terminal: Terminal) -> list[str]:
    """`strong` in bold, unless it was broken over two lines."""
    if not strong:
        return lines
    return [line.replace(strong, terminal.style(strong, bold=True), 1) for line in lines]


def _quality(result: Result, terminal: Terminal) -> list[str]:
    heading = run_words.quality_heading(result)
    if heading is None:
        return []
    color = "red" if result.quality.verdict == "unusable" else "yellow"
    lines = [terminal.style(f"{heading}:", fg=color, bold=True)]
    for note in result.quality.notes[:NOTES]:
        text = note.text if result.quality.verdict == "unusable" else safe_text.first_sentence(note.text)[0]
        lines += terminal.wrap(f"{text} ({note.code})", first="  - ", indent="    ")
    return lines + _more(len(result.quality.notes), "note")


def _breakdown(result: Result, terminal: Terminal) -> list[str]:
    measured = [part for part in result.breakdown if min(part.us_per_step, part.share) > 0]
    parts = small_parts_together(measured, SMALL_SHARE)
    if not parts:
        return []
    words = step_words.sides(result)
    most = max(BAR_COLUMNS[0], min(BAR_COLUMNS[1], terminal.width - OTHER_COLUMNS))
    columns_of_step = min(STEP_COLUMNS, most / max(part.share for part in parts))
    bar_columns = max(_bar_length(part, columns_of_step) for part in parts)
    share_columns = max(5, *(len(quantities.percent(part.share)) for part in parts))
    lines = []
    previous: bool | None = None
    for part in parts:
        side = "" if part.busy is previous else (words.busy_short if part.busy else words.idle_short)
        previous = part.busy
        bar = terminal.plain("█" * _bar_length(part, columns_of_step))
        time = terminal.plain(quantities.ms_of_us(part.us_per_step))
        start = f"  {side:<5} {time:>10} {quantities.percent(part.share):>{share_columns}}  "
        label = terminal.fit(part.label, terminal.width - len(start) - bar_columns - 2)
        lines.append(f"{start}{_painted(bar, bar_columns, part.busy, terminal)}  {label}")
    gpus = [line for text in run_words.gpus(result) for line in terminal.wrap(text, first="  ", indent="    ")]
    return [*lines, "", *gpus] if gpus else lines


def _bar_length(part: BreakdownPart, columns_of_step: float) -> int:
    return max(1, round(part.share * columns_of_step))


def _painted(bar: str, columns: int, busy: bool, terminal: Terminal) -> str:
    return terminal.style(bar, fg="blue" if busy else "red") + " " * (columns - len(bar))


def _companions(result: Result, terminal: Terminal) -> list[str]:
    """What the files beside the trace say."""
    return [line for text in companion_lines(result) for line in terminal.wrap(text, first="  ", indent="    ")]


def _fixes(result: Result, terminal: Terminal) -> list[str]:
    groups = fix_cards.groups(result)
    above, planned, rest, others = groups.above, groups.plan, groups.rest, groups.later
    blocks = [_table(result, cards, terminal) for cards in (above, planned, rest)]
    if above:
        blocks[0].insert(0, terminal.style(f"{fix_cards.ACROSS_RANKS}:", dim=True))
        blocks[1][:0] = ["", terminal.style(f"{fix_cards.plan_heading(result)}:", dim=True)]
    if planned and rest:
        blocks[2][:0] = ["", terminal.style(f"{fix_cards.unplanned(result)}:", dim=True)]
    priced = [*above, *planned, *rest]
    patched = [str(card.number) for card in priced if card.finding.fix.patch]
    if patched:
        blocks.append([terminal.style(f"   With a patch: {safe_text.joined(patched)}.", dim=True)])
    if groups.urgent:
        first = [terminal.style("Before all others:", dim=True), *_noted(result, groups.urgent, terminal, reasons=True)]
        blocks.insert(0, [*first, ""] if priced else first)
    if groups.minor:
        blocks.append([*([""] if priced or groups.urgent else []), terminal.style(f"{fix_cards.MINOR}:", dim=True)])
        blocks.append(_minor(result, groups.minor, terminal))
        priced += groups.minor
    if others:
        heading = "Also noted, without an estimate:" if priced or groups.urgent else "Findings without an estimate:"
        reasons = not priced and len(groups.noted) <= REASONED
        blocks.append([*([""] if priced or groups.urgent else []), terminal.style(heading, dim=True)])
        blocks.append(_noted(result, others, terminal, reasons=reasons))
    return [line for block in blocks for line in block]


def _minor(result: Result, cards: list[fix_cards.Card], terminal: Terminal) -> list[str]:
    """Fixes that save next to nothing, with what they save alone."""
    saves = [terminal.plain(_savings(card, result)[0]) for card in cards]
    columns = max(map(width_of, saves))
    starts = [f"{card.number:>2} {saved:>{columns}}  " for card, saved in zip(cards, saves, strict=True)]
    return [line for card, start in zip(cards, starts, strict=True) for line in _titled(card, start, result, terminal)]


def _noted(result: Result, cards: list[fix_cards.Card], terminal: Terminal, *, reasons: bool) -> list[str]:
    """Findings without a saving, if wanted with their reasons and fixes."""
    lines = []
    for card in cards:
        lines += _titled(card, " - ", result, terminal)
        lines += _reason(card, terminal) if reasons else []
    return lines


def _reason(card: fix_cards.Card, terminal: Terminal) -> list[str]:
    """Why, and what to do."""
    return terminal.wrap(f"{card.finding.why} {card.finding.fix.text}", first="   ", indent="   ")


def _table(result: Result, cards: list[fix_cards.Card], terminal: Terminal) -> list[str]:
    """Fixes with what they save. Those of the plan also say what they save alone, and the step after them."""
    if not cards:
        return []
    planned = cards[0].row is not None
    confidence = "confidence" if terminal.width >= WIDE else "conf."
    columns = max(len(confidence), len("medium"))
    after = "step after" if step_noun(result) == "step" else "time after"  # of the same width
    numbers = ("saves", "alone", after) if planned else ("alone", "share")
    rows = [[terminal.plain(value) for value in _savings(card, result)] for card in cards]
    widths = [max(map(width_of, (name, *values))) for name, *values in zip(numbers, *rows, strict=True)]
    heading = "   " + "  ".join(f"{name:>{width}}" for name, width in zip(numbers, widths, strict=True))
    heading += f"  {confidence:<{columns}} "
    in_own_lines = terminal.width - width_of(heading) < TITLE_COLUMNS
    lines = [terminal.style(heading.rstrip() if in_own_lines else f"{heading}fix", dim=True)]
    for card, row in zip(cards, rows, strict=True):
        values = "  ".join(f"{value:>{width}}" for value, width in zip(row, widths, strict=True))
        start = f"{card.number:>2} {values}  {card.finding.confidence:<{columns}} "
        if in_own_lines:
            lines.append(terminal.fit(start.rstrip(), terminal.width))
            start = "   "
        lines += _titled(card, start, result, terminal)
    if planned and len(cards) > 1:
        lines = [*_note(f"{fix_cards.PLAN_ORDER} {ALONE} {fix_cards.HOW_SURE}", terminal), *lines]
    return lines


def _note(text: str, terminal: Terminal) -> list[str]:
    return [terminal.style(line, dim=True) for line in terminal.wrap(text, first="   ", indent="   ")]


def _savings(card: fix_cards.Card, result: Result) -> tuple[str, ...]:
    saving, row = card.finding.saving, card.row
    if row is not None:
        numbers = plan_numbers.row_numbers(row, result)
        return numbers.saves, numbers.alone, numbers.step_after
    if saving is None:
        return "", ""
    return quantities.estimated(saving.est_us), quantities.percent(saving.share)


def _titled(card: fix_cards.Card, start: str, result: Result, terminal: Terminal) -> list[str]:
    """`start`, code and title. Below the title: the place in the code, and what the fix needs."""
    code = terminal.fit(card.finding.code, CODE_COLUMNS)
    margin = width_of(start) + width_of(code) + 1
    room = terminal.width - margin
    first, *rest = terminal.lines(fix_cards.title(card, result), room, TITLE_LINES)
    place = terminal.fit_path(fix_cards.place(card.finding) or "", terminal.width)
    needs = fix_cards.needs(card)
    joined = terminal.plain(f"{place} · {needs}") if place and needs else place or needs
    below = [joined] if width_of(joined) <= room else [place, *terminal.lines(needs, room, TITLE_LINES)]
    rest += [line for line in below if line]
    painted = terminal.style(code, fg=_IMPACT_COLORS[card.finding.impact])
    # A file whose name is longer than the column begins further left.
    return [f"{start}{painted} {first}", *(" " * min(margin, terminal.width - width_of(line)) + line for line in rest)]


def _tried(result: Result, terminal: Terminal) -> list[str]:
    if not result.tried:
        return []
    from traceopt.reports.text.trial_terminal import trial_lines

    return trial_lines(result.tried, terminal)


def _footer(result: Result, terminal: Terminal) -> list[str]:
    lines = terminal.wrap(run_words.checks_line(result))
    for warning in result.warnings[:NOTES]:
        lines += terminal.wrap(f"Warning: {warning}", indent="  ")
    return lines + _more(len(result.warnings), "warning")


def _more(number: int, noun: str) -> list[str]:
    """How many notes or warnings are only in the report."""
    return [f"  and {quantities.counted(number - NOTES, f'more {noun}')} in the report"] if number > NOTES else []


def render_concise(result: Result) -> str:
    """A line per finding, for editors and grep: `file:line: CODE saves X ms alone (Y%), conf confidence: title`.

    The place comes first, so that editors can jump to it. It is "-" if the place is unknown. The verdict comes
    before all findings; it begins with why the times may not be those of the run.
    """
    document = for_display(result)
    lines = [f"-: {document.verdict}\n"]
    for finding in document.findings:
        saving = finding.saving
        if saving is None:
            saved = "saving not estimated"
        else:
            saved = f"saves {quantities.estimated(saving.est_us)} alone ({quantities.percent(saving.share)})"
        place = fix_cards.location(finding) or "-"
        lines.append(f"{place}: {finding.code} {saved}, {finding.confidence} confidence: {finding.title}\n")
    lines += [f"-: {check.code} failed: {check.reason}\n" for check in document.checks if check.status == "error"]
    return safe_text.without_commands("".join(lines).replace(quantities.NO_BREAK_SPACE, " "))
