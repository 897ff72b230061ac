"""The names and sentences that every format shares: device, scope, fixes, captions, counts of checks."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from traceopt.reports.words import quantities
from traceopt.reports.words.part_styles import DENSE_LANE_SPANS
from traceopt.result.document import CheckStatus, Result
from traceopt.result.finding import Finding
from traceopt.result.quantities import peak_caveat
from traceopt.result.rows import Gemm

COMMAND_PATHS = 8
RANKS_NAMED = 16
UNLIKE_SHARE = 0.05  # from here on the mean step is said to differ from the median one

_MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
IMPACT_WORDS = {"high": "High impact", "medium": "Medium impact", "low": "Low impact", "info": "Info"}

# What limits a step, by the part of its breakdown that is the largest.
LIMITS = {
    "compute": "GPU-bound",
    "communication": "communication-bound",
    "copies": "bound by copies",
    "data_loading": "input-bound",
    "input_work": "input-bound",
    "launch": "launch-bound",
    "host_sync": "bound by syncs",
    "logging": "bound by logging",
    "checkpoint": "bound by checkpoints",
    "gc": "bound by garbage collection",
    "hole": "bound by Python",
    "python": "bound by Python",
    "allocation": "bound by memory allocation",
    "module_load": "bound by first calls",
    "compile": "bound by compilation",
    "queued": "bound by what holds queued work",
    "forward": "bound by the forward pass",
    "backward": "bound by the backward pass",
    "optimizer": "bound by the optimizer",
}

# What a run on a GPU calls the two sides of the step, and what a run on the CPU alone calls them.
_GPU_SIDES = ("GPU idle", "GPU busy", "idle", "busy", "Patterned parts: the GPU is idle.")
_CPU_SIDES = (
    "Outside the model",
    "Model work",
    "stall",
    "model",
    "Patterned parts: the training thread does no model work.",
)


class Sides(Struct, frozen=True):
    """Names of the idle and the busy parts of the step."""

    idle: str
    busy: str
    idle_short: str
    busy_short: str
    pattern_hint: str


class Card(Struct, frozen=True):
    """A finding with its place in the list; `number` is None when its saving is not estimated."""

    finding: Finding
    number: int | None
    anchor: str


def on_cpu(result: Result) -> bool:
    """True when the run used no accelerator, so that "GPU idle" would be a wrong word."""
    device = result.run.device
    return device.vendor == "cpu" if device is not None else not result.run.recorded.gpu


def sides(result: Result) -> Sides:
    """CPU words also when a GPU was used but not recorded: nothing is known of its idle time then."""
    if not on_cpu(result) and result.gpu.busy_share is not None:
        return Sides(*_GPU_SIDES)
    communicates = any(part.busy and part.name == "communication" for part in result.breakdown)
    words = Sides(*_CPU_SIDES)
    return replace(words, busy=f"{words.busy} and communication", busy_short="busy") if communicates else words


def identity(result: Result) -> str:
    """The trace's file name; of several, their folder and number."""
    paths = result.run.paths
    if len(paths) == 1:
        return PurePath(paths[0]).name or paths[0]
    folders = {PurePath(path).parent.name for path in paths}
    folder = folders.pop() if len(folders) == 1 else ""
    files = quantities.counted(len(paths), "file") if paths else "unnamed trace"
    return f"{folder}: {files}" if folder else files


def command(result: Result) -> str:
    """What to type to get this report again; of many files the first few."""
    paths = result.run.paths
    shown = " ".join(shlex.quote(path) for path in paths[:COMMAND_PATHS])
    return f"traceopt analyze {shown}" + (" …" if len(paths) > COMMAND_PATHS else "")


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
    unnamed = "CPU" if device.vendor == "cpu" else f"{_MAKERS.get(device.vendor, 'unnamed')} GPU"
    name = device.name or unnamed
    several = device.vendor != "cpu" and len(result.run.ranks) > 1
    return f"{len(result.run.ranks)}{quantities.NO_BREAK_SPACE}× {name}" if several else name


def steps_phrase(result: Result) -> str:
    step = result.step
    if step.source == "window":
        return "no step marks: the whole recording"
    skipped = f" ({step.skipped:,} left out)" if step.skipped else ""
    return quantities.counted(step.count, "step") + skipped


def throughput(result: Result) -> str | None:
    """ "12,300 tokens/s per GPU, 71% of the reference", where the user said what a step processes."""
    found = result.throughput
    if found is None:
        return None
    rates = [
        f"{rate:,.0f} {unit}/s" if rate >= 100 else f"{quantities.measured(rate)} {unit}/s"
        for rate, unit in ((found.tokens_per_s, "tokens"), (found.samples_per_s, "samples"))
        if rate is not None
    ]
    reference = found.reference_share
    return f"{', '.join(rates)} per GPU" + (f", {quantities.percent(reference)} of the reference" if reference else "")


def environment(result: Result) -> list[str]:
    """The line under the tiles: device, versions, cores, steps."""
    device = result.run.device
    capability = device.compute_capability if device is not None else None
    nvidia = device is not None and device.vendor == "nvidia"
    torch_version = result.run.torch_version
    items = [
        device_phrase(result),
        f"{'compute capability' if nvidia else 'architecture'} {capability}" if capability else None,
        f"PyTorch {torch_version}" if torch_version else None,
        result.run.gpu_runtime,
        *(_cores(setting.value) for setting in result.run.settings if setting.name == "CPU cores"),
        steps_phrase(result),
        throughput(result),
    ]
    return [item for item in items if item]


def _cores(number: str) -> str:
    return "1 CPU core" if number == "1" else f"{number} CPU cores"


def scope(result: Result) -> str:
    """What the breakdown and the tables are of: "Mean of 12 steps, rank 0 of 4"."""
    if result.step.source == "window":
        mean = "The whole recording (no step marks)"
    else:
        mean = "One step" if result.step.count == 1 else f"Mean of {quantities.counted(result.step.count, 'step')}"
    rank = rank_phrase(result)
    return f"{mean}, {rank}" if rank else mean


def typical_step(result: Result) -> str:
    """A reminder behind the scope where a few unusual steps pull the mean away from the median."""
    median_us, mean_us = result.step.median_us, sum(part.us_per_step for part in result.breakdown)
    if median_us is None or abs(mean_us - median_us) < UNLIKE_SHARE * median_us:
        return ""
    return f" (the median step takes {quantities.ms(median_us)})"


def partly_hidden(result: Result) -> list[str]:
    """Names of the parts that also ran while another part is counted."""
    return [
        part.name
        for part in result.breakdown
        if part.raw_us_per_step is not None and part.raw_us_per_step > 1.005 * part.us_per_step
    ]


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


def ranks_phrase(ranks: list[int]) -> str:
    """ "rank 3" or "ranks 0, 1, 4"."""
    named = ", ".join(str(rank) for rank in ranks[:RANKS_NAMED]) + (" and more" if len(ranks) > RANKS_NAMED else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {named}"


def only_on(finding: Finding, result: Result) -> str | None:
    """The ranks of a finding that not all ranks share."""
    ranks = finding.ranks
    return ranks_phrase(ranks) if ranks and len(ranks) < len(result.run.ranks) else None


def limit(part: str | None) -> str | None:
    """ "launch-bound": what a step is, whose largest part is this; None where that has no word."""
    return LIMITS.get(part) if part is not None else None


def combined_fixes(result: Result) -> str | None:
    """ "the top 3 fixes", "the top fix", "fixes 1, 2 and 4" or "the fixes"; None without a combination."""
    if result.combined is None or not result.combined.codes:
        return None
    # A rule may stand behind several findings: each mention of its code means the next one of them.
    left = [(card.finding.code, card.number) for card in cards(result.findings) if card.number is not None]
    numbers = []
    for code in result.combined.codes:
        found = next((entry for entry in left if entry[0] == code), None)
        if found is not None:
            left.remove(found)
            numbers.append(found[1])
    numbers.sort()
    if not numbers:
        return "the fixes"
    if numbers == list(range(1, len(numbers) + 1)):
        return "the top fix" if len(numbers) == 1 else f"the top {len(numbers)} fixes"
    return ("fix " if len(numbers) == 1 else "fixes ") + quantities.joined([str(number) for number in numbers])


def measured_facts(result: Result) -> list[str]:
    """A sentence each for waits and overlap that the breakdown does not spell out, where recorded."""
    facts = []
    sync, loader, communication = result.sync, result.dataloader, result.communication
    if loader.us_per_step is not None and loader.stall_us_per_step is not None:
        stall = quantities.ms(loader.stall_us_per_step)
        facts.append(f"Data loader: {quantities.ms(loader.us_per_step)}, of which {stall} stall the step.")
    if sync.us_per_step is not None and sync.calls_per_step and sync.stall_us_per_step is not None:
        calls, stall = quantities.count(sync.calls_per_step), quantities.ms(sync.stall_us_per_step)
        waits = quantities.ms(sync.us_per_step)
        facts.append(f"Host syncs: {calls} per step, {waits}; with the refill after them they cost the GPU {stall}.")
    if communication.us_per_step and communication.exposed_us_per_step is not None:
        hidden = communication.overlap_share
        overlap = f" ({quantities.percent(hidden)} overlapped)" if hidden is not None else ""
        exposed = quantities.ms(communication.exposed_us_per_step)
        facts.append(f"Communication: {quantities.ms(communication.us_per_step)}, of which {exposed} exposed{overlap}.")
    return facts


def timeline_caption(result: Result, shaded: bool) -> str:
    """Which step the timeline shows, what is shaded in it, and how much of it is drawn."""
    timeline = result.timeline
    if timeline is None:
        return ""
    steps = ["The whole recording"] if result.step.source == "window" else [timeline.step]
    if result.step.count > 1:
        steps.append("the median step")
    rank = rank_phrase(result)
    sentences = [", ".join([*steps, rank] if rank else steps) + "."]
    if shaded:
        sentences.append(f"Shaded: the longest stretch without {'model' if on_cpu(result) else 'GPU'} work.")
    drawn, total = sum(len(lane.spans) for lane in timeline.lanes), sum(lane.total for lane in timeline.lanes)
    if drawn < total:
        sentences.append(f"Drawn: the {drawn:,} longest of {total:,} spans.")
    if any(len(lane.spans) > DENSE_LANE_SPANS for lane in timeline.lanes):
        sentences.append("Dense lanes show how full each moment is.")
    return " ".join(sentences)


def gemm_caption(result: Result) -> str:
    """Tensor Core use and the reached part of the peak, where known."""
    cores, efficiency = result.tensor_cores, result.efficiency
    sentences = []
    if cores.eligible_share is not None:
        unknown = f"; of {quantities.percent(cores.unknown_share)} it is unknown" if cores.unknown_share else ""
        eligible, used = quantities.percent(cores.eligible_share), quantities.percent(cores.used_share)
        sentences.append(f"Of kernel time, {eligible} could use Tensor Cores and {used} does{unknown}.")
    if efficiency.achieved_tflops is not None:
        reached = (
            f"The step reaches {quantities.measured(efficiency.achieved_tflops)}{quantities.NO_BREAK_SPACE}TFLOP/s"
        )
        if efficiency.mfu is not None and efficiency.peak_tflops is not None:
            peak = f"{quantities.measured(efficiency.peak_tflops)}{quantities.NO_BREAK_SPACE}TFLOP/s"
            dtype = f"{efficiency.peak_dtype} " if efficiency.peak_dtype else ""
            reached += f", {quantities.percent(efficiency.mfu)} of the {dtype}peak of {peak}"
            caveat = peak_caveat(efficiency.peak_source, efficiency.peak_verified)
            remarks = [caveat] if caveat else []
            if efficiency.hfu is not None and efficiency.hfu > efficiency.mfu:
                remarks.append(f"{quantities.percent(efficiency.hfu)} with what is computed again")
            if remarks:
                reached += f" ({'; '.join(remarks)})"
        sentences.append(reached + ".")
    return " ".join([*sentences, *_other_peaks(result)])


def _other_peaks(result: Result) -> list[str]:
    """Which of the peaks that rows of the table are a share of were not verified, or are the user's."""
    device, told = result.run.device, result.efficiency.peak_dtype
    dtypes = {gemm.dtype for gemm in result.gemms if gemm.peak_share is not None} - {told}
    peaks = [peak for peak in (device.peaks if device else []) if peak.figure in dtypes]
    unverified = [peak.figure for peak in peaks if peak.verified is False]
    given = [peak.figure for peak in peaks if peak.verified is None]
    sentences = [f"Peak unverified: {', '.join(unverified)}."] if unverified else []
    return [*sentences, f"Peak from your settings: {', '.join(given)}."] if given else sentences


_TENSOR_CORE_BYTES = 16  # what a row of an operand has to be a multiple of
_ELEMENT_BYTES = {"tf32": 4, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}


def misaligned(gemm: Gemm, size: int) -> int | None:
    """The number of which N or K of an unaligned product, `size`, should be a multiple and is none (M is free)."""
    element_bytes = _ELEMENT_BYTES.get(gemm.dtype)
    if gemm.aligned is not False or element_bytes is None:
        return None
    multiple = _TENSOR_CORE_BYTES // element_bytes
    return multiple if size % multiple else None


def verdict(result: Result) -> str:
    """The headline. That of an unusable trace goes on with its reason, which the banner below it gives."""
    if result.quality.verdict == "unusable":
        for note in result.quality.notes:
            short = result.verdict.removesuffix(note.text).rstrip()
            if short and short != result.verdict:
                return short
    return result.verdict


def quality_heading(result: Result) -> str | None:
    """None for a good trace without notes."""
    if result.quality.verdict == "unusable":
        return "These numbers are not reliable"
    if result.quality.verdict == "limited":
        return "Read these numbers with care"
    return "Keep in mind" if result.quality.notes else None


CHECK_WORDS: tuple[tuple[CheckStatus, str], ...] = (
    ("found", "found something"),
    ("passed", "passed"),
    ("not_checked", "not checked"),
    ("not_applicable", "not applicable"),
    ("error", "failed with an error"),
)


def checks_line(result: Result) -> str:
    """ "18 rules: 6 found something, 9 passed, 3 not checked, 0 not applicable.", and errors if any."""
    counts = {status: sum(check.status == status for check in result.checks) for status, _ in CHECK_WORDS}
    told = [f"{counts[status]} {words}" for status, words in CHECK_WORDS if status != "error" or counts[status]]
    return f"{quantities.counted(len(result.checks), 'rule')}: {', '.join(told)}."
