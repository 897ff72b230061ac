"""The sentences that every format shares: lead, tiles, scope, counts of checks, and how to record what is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from traceopt.reports import text
from traceopt.result import CheckStatus, Result
from traceopt.rules.finding import Finding

WORTH_FIXING_SHARE = 0.03  # the headline speaks of fixes from 3 % of the step on
NOTHING_FOUND = "No fix above 3% found."

IMPACT_WORDS = {"high": "High impact", "medium": "Medium impact", "low": "Low impact", "info": "Info"}

# What a run on a GPU calls the two sides of the step, and what a run on the CPU alone calls them.
_GPU_SIDES = ("GPU idle", "GPU busy", "idle", "busy", "Patterned parts: the GPU is idle.")
_CPU_SIDES = (
    "Outside the model",
    "Model work",
    "stall",
    "model",
    "Patterned parts: the training thread does no model work.",
)


@dataclass(frozen=True, slots=True)
class Sides:
    """Names of the idle and the busy parts of the step."""

    idle: str
    busy: str
    idle_short: str
    busy_short: str
    pattern_hint: str


@dataclass(frozen=True, slots=True)
class Card:
    """A finding with its place in the list; `number` is None when its saving is not estimated."""

    finding: Finding
    number: int | None
    anchor: str


@dataclass(frozen=True, slots=True)
class Tile:
    """A headline number. `value` is a phrase such as "not recorded" when `unit` is None."""

    label: str
    value: str
    unit: str | None
    note: str


def on_cpu(result: Result) -> bool:
    """True when the run used no accelerator, so that "GPU idle" would be a wrong word."""
    device = result.run.device
    return device.vendor == "cpu" if device is not None else not result.run.recorded.gpu


def sides(result: Result) -> Sides:
    """CPU words also when a GPU was used but not recorded: nothing is known of its idle time then."""
    return Sides(*(_CPU_SIDES if on_cpu(result) or result.gpu.busy_share is None else _GPU_SIDES))


def identity(result: Result) -> str:
    """Names of the traces: the last part of each path, the first three of them."""
    names = [PurePath(path).name or path for path in result.run.paths] or ["unnamed trace"]
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more:,} more" if more > 0 else "")


def rank_phrase(result: Result) -> str | None:
    run = result.run
    if run.shown_rank is None:
        return None
    total = run.world_size or len(run.ranks)
    return f"rank {run.shown_rank} of {total}" if total > 1 else f"rank {run.shown_rank}"


def device_phrase(result: Result) -> str:
    device = result.run.device
    if device is None:
        return "device not recorded"
    name = device.name or ("CPU" if device.vendor == "cpu" else f"{device.vendor} device, name not recorded")
    if device.vendor != "cpu" and device.count > 1:
        name += f", {device.count} devices visible"
    return name


def steps_phrase(result: Result) -> str:
    step = result.step
    if step.source == "window":
        return "no step marks: the whole recording"
    skipped = f" ({step.skipped:,} left out)" if step.skipped else ""
    return text.counted(step.count, "step") + skipped


def environment(result: Result) -> list[str]:
    """The line under the tiles: device, rank, versions, steps."""
    device = result.run.device
    capability = device.compute_capability if device is not None else None
    torch_version = result.run.torch_version
    items = [
        device_phrase(result),
        f"compute capability {capability}" if capability else None,
        rank_phrase(result),
        f"PyTorch {torch_version}" if torch_version else "PyTorch version not recorded",
        steps_phrase(result),
    ]
    return [item for item in items if item]


def scope(result: Result) -> str:
    """What the breakdown and the tables are of: "Mean of 12 steps, rank 0 of 4"."""
    if result.step.source == "window":
        mean = "The whole recording (no step marks)"
    else:
        mean = f"Mean of {text.counted(result.step.count, 'step')}"
    rank = rank_phrase(result)
    return f"{mean}, {rank}" if rank else mean


def cards(findings: list[Finding]) -> list[Card]:
    """Numbers the findings that have a saving; every anchor is unique and safe in a URL fragment."""
    numbered: list[Card] = []
    seen: dict[str, int] = {}
    number = 0
    for finding in findings:
        if finding.saving is not None:
            number += 1
        base = re.sub(r"[^A-Za-z0-9_.-]", "-", finding.code)
        seen[base] = seen.get(base, 0) + 1
        anchor = base if seen[base] == 1 else f"{base}-{seen[base]}"
        numbered.append(Card(finding, None if finding.saving is None else number, anchor))
    return numbered


def place(finding: Finding) -> str | None:
    """The finding's first place in the user's code, from its evidence when it names none itself."""
    evidence = [row.location for row in finding.evidence]
    located = next((item for item in [*finding.locations, *evidence] if item is not None), None)
    return None if located is None else str(located)


def combined_fixes(result: Result) -> str | None:
    """ "the top 3 fixes", "the top fix", or "fixes 1, 2 and 4"; None when nothing was combined."""
    if result.combined is None or not result.combined.codes:
        return None
    codes = set(result.combined.codes)
    numbers = [card.number for card in cards(result.findings) if card.number and card.finding.code in codes]
    if numbers == list(range(1, len(numbers) + 1)):
        return "the top fix" if len(numbers) == 1 else f"the top {len(numbers)} fixes"
    return ("fix " if len(numbers) == 1 else "fixes ") + text.joined([str(number) for number in numbers])


def worth_fixing(result: Result) -> bool:
    shares = [finding.saving.share for finding in result.findings if finding.saving is not None]
    if result.combined is not None:
        shares.append(result.combined.share)
    return any(share >= WORTH_FIXING_SHARE for share in shares)


def lead(result: Result) -> tuple[str, str, str]:
    """The sentence under the verdict in three pieces, of which the second is to be set bold."""
    savings = [finding.saving for finding in result.findings if finding.saving is not None]
    if result.quality.verdict == "unusable" and not savings:
        return "Savings are not estimated: this trace cannot carry the numbers.", "", ""
    if not worth_fixing(result):
        observations = len(result.findings) - len(savings)
        found = f" {text.counted(observations, 'observation')} without an estimate." if observations else ""
        return "", NOTHING_FOUND, found
    if result.combined is None:
        best = max(savings, key=lambda saving: saving.est_us)
        saved = f"{text.estimate_number(best.est_us)}{text.NO_BREAK_SPACE}ms per step ({text.percent(best.share)})"
        return "The largest single fix saves about ", saved, "; fixes together are not estimated."
    combined = result.combined
    fixes = combined_fixes(result) or "the fixes"
    verb = " saves about " if fixes in ("the top fix",) or fixes.startswith("fix ") else " save about "
    before_us = combined.step_us_after + combined.saving_us
    after = text.as_precise_as(combined.step_us_after, combined.saving_us)
    saved = f"{text.estimate_number(combined.saving_us)}{text.NO_BREAK_SPACE}ms per step ({text.percent(combined.share)})"
    rest = f": about {after}{text.NO_BREAK_SPACE}ms instead of {text.ms(before_us)}{speedup(result)}."
    return fixes[0].upper() + fixes[1:] + verb, saved, rest


def speedup(result: Result) -> str:
    """ ", 1.9× the throughput", or nothing when the fixes together change it by less than 5 %."""
    combined = result.combined
    if combined is None or combined.step_us_after <= 0:
        return ""
    factor = (combined.step_us_after + combined.saving_us) / combined.step_us_after
    return f", {text.two_digits(factor)}× the throughput" if factor >= 1.05 else ""


def tiles(result: Result) -> list[Tile]:
    """Step time, busy share, time after the fixes, peak memory."""
    return [_step_tile(result), _busy_tile(result), _after_tile(result), _memory_tile(result)]


def _step_tile(result: Result) -> Tile:
    step = result.step
    label = "Recorded window" if step.source == "window" else "Step time, median"
    if step.median_us is None:
        return Tile(label, text.NOT_RECORDED, None, "no complete step in the trace")
    if step.source == "window":
        return Tile(label, text.ms_number(step.median_us), "ms", "no step marks in the trace")
    note = text.counted(step.count, "step")
    if step.p10_us is not None and step.p90_us is not None and step.count > 1:
        spread = f"{text.ms_number(step.p10_us)}–{text.ms(step.p90_us)}"
        note = f"{spread} (p10–p90), {note}"
    return Tile(label, text.ms_number(step.median_us), "ms", note)


def _busy_tile(result: Result) -> Tile:
    rank = rank_phrase(result)
    if on_cpu(result):
        busy = [part for part in result.breakdown if part.busy]
        if not result.breakdown:
            return Tile("Model work", text.NOT_RECORDED, None, "no breakdown of the step")
        labels = ", ".join(part.label.lower() for part in busy[:3]) or "no model work seen"
        return Tile("Model work", text.percent(sum(part.share for part in busy)).rstrip("%"), "%", labels)
    gpu = result.gpu
    if gpu.busy_share is None:
        return Tile("GPU busy", text.NOT_RECORDED, None, "the trace holds no GPU work")
    note = "of the step window" + (f", {rank}" if rank else "")
    if gpu.compute_share is not None:
        note = f"{text.percent(gpu.compute_share)} compute" + (f", {rank}" if rank else "")
    return Tile("GPU busy", text.percent(gpu.busy_share).rstrip("%"), "%", note)


def _after_tile(result: Result) -> Tile:
    combined = result.combined
    fixes = combined_fixes(result)
    if combined is None or fixes is None:
        note = "no fix to combine" if not result.findings else "savings of several fixes overlap"
        return Tile("After the top fixes", "not estimated", None, note)
    after = text.as_precise_as(combined.step_us_after, combined.saving_us)
    label = f"After {fixes.removesuffix(' fixes')} (estimate)"
    saved = f"{text.percent(combined.share)} less{speedup(result)}"
    return Tile(label, f"≈{text.NO_BREAK_SPACE}{after}", "ms", saved)


def _memory_tile(result: Result) -> Tile:
    memory = result.memory
    if memory.peak_allocated_bytes is None:
        if memory.peak_reserved_bytes is None:
            return Tile("Peak memory", text.NOT_RECORDED, None, "record with profile_memory=True")
        value, unit = text.bytes_parts(memory.peak_reserved_bytes)
        return Tile("Peak memory", value, f"{unit} reserved", "allocated: not recorded")
    value, unit = text.bytes_parts(memory.peak_allocated_bytes)
    if memory.capacity_bytes is not None:
        capacity, capacity_unit = text.bytes_parts(memory.capacity_bytes)
        of = f"of {capacity}" if unit == capacity_unit else f"{unit} of {capacity}"
        unit = f"{of}{text.NO_BREAK_SPACE}{capacity_unit}"
    return Tile("Peak memory", value, unit, f"reserved: {text.bytes_text(memory.peak_reserved_bytes)}")


def measured_facts(result: Result) -> list[str]:
    """One sentence each for waits and overlap that the breakdown does not spell out; only what was recorded."""
    facts = []
    sync, loader, communication = result.sync, result.dataloader, result.communication
    if loader.us_per_step is not None and loader.stall_us_per_step is not None:
        facts.append(f"Data loader: {text.ms(loader.us_per_step)}, of which {text.ms(loader.stall_us_per_step)} stall the step.")
    if sync.us_per_step is not None and sync.calls_per_step and sync.stall_us_per_step is not None:
        calls = f"{text.count(sync.calls_per_step)} a step"
        facts.append(f"Host syncs: {calls}, {text.ms(sync.us_per_step)}, of which {text.ms(sync.stall_us_per_step)} stall the GPU.")
    if communication.us_per_step and communication.exposed_us_per_step is not None:
        hidden = communication.overlap_share
        overlap = f" ({text.percent(hidden)} overlapped)" if hidden is not None else ""
        exposed = text.ms(communication.exposed_us_per_step)
        facts.append(f"Communication: {text.ms(communication.us_per_step)}, of which {exposed} exposed{overlap}.")
    return facts


def quality_heading(result: Result) -> str | None:
    """None for a good trace."""
    if result.quality.verdict == "unusable":
        return "These numbers are not reliable"
    return "Read these numbers with care" if result.quality.verdict == "limited" else None


CHECK_WORDS: tuple[tuple[CheckStatus, str], ...] = (
    ("found", "found something"),
    ("passed", "passed"),
    ("not_checked", "not checked"),
    ("not_applicable", "not applicable"),
    ("error", "failed with an error"),
)


def checks_line(result: Result) -> str:
    """ "18 rules: 6 found something, 9 passed, 3 not checked, 0 not applicable." Errors only when there are any."""
    counts = {status: sum(check.status == status for check in result.checks) for status, _ in CHECK_WORDS}
    told = [f"{counts[status]} {words}" for status, words in CHECK_WORDS if status != "error" or counts[status]]
    return f"{text.counted(len(result.checks), 'rule')}: {', '.join(told)}."
