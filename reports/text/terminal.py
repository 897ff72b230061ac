"""The summary that a terminal shows, and the concise form of one line a finding."""

from __future__ import annotations

import re

from traceopt.reports.text.terminal_lines import MAX_WIDTH, MIN_WIDTH, Paper, pad, width_of
from traceopt.reports.words import headline, quantities, sentences
from traceopt.reports.words.shown_document import shown as shown_form
from traceopt.result.document import Result
from traceopt.result.rows import BreakdownPart

STEP_COLUMNS = 40  # columns of a bar that is the whole step
BAR_COLUMNS = (6, 18)  # columns that bars may take, least and most; the scale shrinks when one part is larger
BESIDE_BARS = 62  # columns of the numbers and the longest label
SMALL_SHARE = 0.005  # smaller parts of the step share a line
VERDICT_LINES = 2
TITLE_LINES = 2
NARROW, NARROW_TITLE_LINES = 80, 4  # below this width titles need more lines
NAME_COLUMNS = 16  # what the header leaves to the trace's name at least
PLACE_COLUMNS = (14, 20, 32)  # on a narrow, a usual and a wide terminal
CODE_COLUMNS = 8
NOTES = 5  # quality notes and warnings shown of each
WIDE = 96  # from here on the column of confidence has its full heading

_TRACE_SUFFIX = re.compile(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$")
_IMPACT_COLOURS = {"high": "red", "medium": "yellow", "low": "cyan", "info": "blue"}


def render_terminal(result: Result, *, width: int, color: bool, unicode: bool) -> str:
    """The summary in lines of at most `width` columns (60 to 110). `unicode` False keeps to ASCII."""
    shown = shown_form(result)
    paper = Paper(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    blocks = [
        _headline(shown, paper),
        _quality(shown, paper),
        _breakdown(shown, paper),
        _fixes(shown, paper),
        _footer(shown, paper),
    ]
    return quantities.without_commands("\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n")


def _headline(result: Result, paper: Paper) -> list[str]:
    name = "traceopt"
    lines = [paper.style(name, bold=True) + "  " + _about(result, paper, paper.width - len(name) - 2), ""]
    lines += [paper.style(line, bold=True) for line in _verdict_lines(sentences.verdict(result), paper)]
    before, strong, after = headline.lead(result)
    lines += _emphasized(paper.wrap(before + strong + after), paper.plain(strong), paper)
    rate = sentences.throughput(result)
    return lines + (paper.wrap(f"Throughput: {rate}.", indent="  ") if rate else [])


def _about(result: Result, paper: Paper, columns: int) -> str:
    """Trace, device, steps and rank; the trace's name is shortened first."""
    steps = "no step marks" if result.step.source == "window" else sentences.steps_phrase(result)
    rest = paper.plain(
        "".join(
            f" · {item}" for item in (sentences.device_phrase(result), steps, sentences.rank_phrase(result)) if item
        )
    )
    name = sentences.identity(result)
    if width_of(name) + width_of(rest) > columns:
        name = _TRACE_SUFFIX.sub("", name)
    room = max(NAME_COLUMNS, columns - width_of(rest))
    return paper.fit(paper.fit(name, room) + rest, columns)


def _verdict_lines(verdict: str, paper: Paper) -> list[str]:
    """A sentence a line where two sentences do not fit one."""
    sentences = quantities.sentences(paper.plain(verdict))
    short_enough = len(sentences) <= VERDICT_LINES and max(map(width_of, sentences)) <= paper.width
    if short_enough and width_of(verdict) > paper.width:
        return sentences
    return paper.lines(verdict, paper.width, VERDICT_LINES)


def _emphasized(lines: list[str], strong: str, paper: Paper) -> list[str]:
    """`strong` in bold where it was not broken over two lines."""
    if not strong:
        return lines
    return [line.replace(strong, paper.style(strong, bold=True), 1) for line in lines]


def _quality(result: Result, paper: Paper) -> list[str]:
    heading = sentences.quality_heading(result)
    if heading is None:
        return []
    colour = "red" if result.quality.verdict == "unusable" else "yellow"
    lines = [paper.style(f"{heading}:", fg=colour, bold=True)]
    for note in result.quality.notes[:NOTES]:
        told = note.text if result.quality.verdict == "unusable" else quantities.first_sentence(note.text)[0]
        lines += paper.wrap(f"{told} ({note.code})", first="  - ", indent="    ")
    return lines + _more(len(result.quality.notes), "note")


def _breakdown(result: Result, paper: Paper) -> list[str]:
    measured = [part for part in result.breakdown if min(part.us_per_step, part.share) > 0]
    parts = [part for busy in (False, True) for part in _without_crumbs([p for p in measured if p.busy is busy])]
    if not parts:
        return []
    words = sentences.sides(result)
    most = max(BAR_COLUMNS[0], min(BAR_COLUMNS[1], paper.width - BESIDE_BARS))
    columns_of_step = min(STEP_COLUMNS, most / max(part.share for part in parts))
    bar_columns = max(_bar_length(part, columns_of_step) for part in parts)
    lines = []
    previous: bool | None = None
    for part in parts:
        side = "" if part.busy is previous else (words.busy_short if part.busy else words.idle_short)
        previous = part.busy
        bar = paper.plain("█" * _bar_length(part, columns_of_step))
        start = f"  {side:<5} {paper.plain(quantities.ms(part.us_per_step)):>10} {quantities.percent(part.share):>5}  "
        label = paper.fit(part.label, paper.width - len(start) - bar_columns - 2)
        lines.append(f"{start}{_painted(bar, bar_columns, part.busy, paper)}  {label}")
    return lines


def _without_crumbs(parts: list[BreakdownPart]) -> list[BreakdownPart]:
    """`parts` of one side, largest first; two and more that are hardly visible become one."""
    small = [part for part in parts if part.share < SMALL_SHARE]
    if len(small) < 2:
        return parts
    us, share = sum(part.us_per_step for part in small), sum(part.share for part in small)
    together = BreakdownPart("smaller", f"{len(small)} smaller parts", small[0].busy, us, share, None)
    return [*parts[: -len(small)], together]


def _bar_length(part: BreakdownPart, columns_of_step: float) -> int:
    return max(1, round(part.share * columns_of_step))


def _painted(bar: str, columns: int, busy: bool, paper: Paper) -> str:
    return paper.style(bar, fg="blue" if busy else "red") + " " * (columns - len(bar))


def _fixes(result: Result, paper: Paper) -> list[str]:
    cards = sentences.cards(result.findings)
    priced = [card for card in cards if card.number is not None]
    others = [card for card in cards if card.number is None]
    lines = []
    if priced:
        confidence = "confidence" if paper.width >= WIDE else "conf."
        columns = max(len(confidence), len("medium"))
        place_columns = _place_columns(priced, paper)
        heading = f"      saves   step  {confidence:<{columns}} "
        title_columns = paper.width - len(heading) - place_columns - 2
        lines.append(paper.style(f"{heading}{'fix':<{title_columns}}  where", dim=True))
        for card in priced:
            finding, saving = card.finding, card.finding.saving
            if saving is None:
                continue
            saved = f"{quantities.estimate_number(saving.est_us)} ms"
            start = f"{card.number:>2} {saved:>8}  {quantities.percent(saving.share):>5}  "
            start += f"{finding.confidence:<{columns}} "
            lines += _titled(card, start, title_columns, place_columns, result, paper)
        if len(priced) > 1:
            lines.append(paper.style("   Savings overlap, so do not add them up.", dim=True))
        patched = [str(card.number) for card in priced if card.finding.fix.patch]
        if patched:
            lines.append(paper.style(f"   With a patch: {quantities.joined(patched)}.", dim=True))
    if others:
        heading = "Also noted, without an estimate:" if priced else "Findings, without an estimate:"
        lines += [*([""] if priced else []), paper.style(heading, dim=True)]
        place_columns = _place_columns(others, paper)
        for card in others:
            lines += _titled(card, " - ", paper.width - 3 - place_columns - 2, place_columns, result, paper)
    return lines


def _place_columns(cards: list[sentences.Card], paper: Paper) -> int:
    narrow, usual, wide = PLACE_COLUMNS
    most = wide if paper.width >= WIDE else usual if paper.width >= NARROW else narrow
    places = [paper.fit_path(sentences.place(card.finding) or "", most) for card in cards]
    return max(len("where"), *map(width_of, places))


def _titled(
    card: sentences.Card, start: str, title_columns: int, place_columns: int, result: Result, paper: Paper
) -> list[str]:
    """A row: `start`, code and title, the place in the code; a long title goes on below its code, on the whole line."""
    finding = card.finding
    title_columns = min(title_columns, paper.width - len(start) - place_columns - 2)  # a huge saving takes more room
    code = paper.fit(finding.code, CODE_COLUMNS)
    room = title_columns - width_of(code) - 1
    only = sentences.only_on(finding, result)
    title = f"{finding.title} ({only})" if only else finding.title
    most = TITLE_LINES if paper.width >= NARROW else NARROW_TITLE_LINES
    titles = paper.lines(title, room, most, later=title_columns + 2 + place_columns)
    place = paper.fit_path(sentences.place(finding) or "", place_columns)
    painted = paper.style(code, fg=_IMPACT_COLOURS[finding.impact])
    first = f"{start}{painted} {pad(titles[0], room)}  {place}".rstrip()
    return [first, *(" " * len(start) + line for line in titles[1:])]


def _footer(result: Result, paper: Paper) -> list[str]:
    lines = paper.wrap(sentences.checks_line(result))
    for warning in result.warnings[:NOTES]:
        lines += paper.wrap(f"Warning: {warning}", indent="  ")
    return lines + _more(len(result.warnings), "warning")


def _more(number: int, noun: str) -> list[str]:
    """What was left out of a list of notes or warnings; the report has them all."""
    return [f"  and {quantities.counted(number - NOTES, f'more {noun}')} in the report"] if number > NOTES else []


def render_concise(result: Result) -> str:
    """A line a finding for editors and grep: `file:line: CODE saves X ms (Y%), conf confidence: title`.

    The place comes first, so that editors can jump to it; "-" stands where the place is not known.
    """
    shown = shown_form(result)
    lines = []
    for finding in shown.findings:
        saving = finding.saving
        if saving is None:
            saved = "saving not estimated"
        else:
            saved = f"saves {quantities.estimate_number(saving.est_us)} ms ({quantities.percent(saving.share)})"
        place = sentences.place(finding) or "-"
        lines.append(f"{place}: {finding.code} {saved}, {finding.confidence} confidence: {finding.title}\n")
    lines += [f"-: {check.code} failed: {check.reason}\n" for check in shown.checks if check.status == "error"]
    return quantities.without_commands("".join(lines).replace(quantities.NO_BREAK_SPACE, " "))
