"""Names and sentences that all formats share: device, scope, fixes, captions, check counts."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from traceopt.reports.words import safe_text
from traceopt.reports.words.step_words import per_step
from traceopt.result import quantities
from traceopt.result.document import CheckStatus, Result, ServingPhase, TensorCores
from traceopt.result.finding import Finding
from traceopt.result.rows import Gemm, Kernel, PlanRow
from traceopt.result.vendor_words import device_name, worded

COMMAND_PATHS = 8
RANKS_NAMED = 16
MORE = 1.2  # times what the planned fix saves: a smaller difference is within the error of predictions
RANKS_DIFFER_SHARE = 0.05  # of the step: with less, the ranks take the same time
MOST_MATMULS = 0.9  # of the time of matmul kernels: if the table holds less, its caption says so

IMPACT_WORDS = {"high": "High impact", "medium": "Medium impact", "low": "Low impact", "info": "Info"}

# What limits a step whose largest part is this one.
LIMITS = {
    "compute": "GPU-bound",
    "communication": "communication-bound",
    "copies": "copy-bound",
    "data_loading": "input-bound",
    "loader_startup": "bound by the start of data loader workers",
    "input_work": "input-bound",
    "host_copy": "copy-bound",
    "post_processing": "bound by post-processing",
    "sleep": "bound by time.sleep",
    "program": "bound by other programs",
    "os_wait": "bound by waits in the operating system",
    "launch": "launch-bound",
    "host_sync": "sync-bound",
    "logging": "logging-bound",
    "checkpoint": "checkpoint-bound",
    "gc": "bound by garbage collection",
    "hole": "Python-bound",
    "long_python": "Python-bound",
    "cpu_op": "bound by CPU operators",
    "small_ops": "bound by small operators",
    "python": "Python-bound",
    "allocation": "allocation-bound",
    "startup": "bound by start-up",
    "module_load": "bound by kernel loading",
    "compile": "bound by compilation",
    "queued": "stalled with work queued",
    "forward": "bound by the forward pass",
    "backward": "bound by the backward pass",
    "optimizer": "bound by the optimizer",
}

# The names of the two sides of the step, in a run with a GPU and in a CPU-only run.
GPU_PATTERNED = "Patterned parts: the GPU is idle."
CPU_PATTERNED = "Patterned parts: no model work on the main thread."
_GPU_SIDES = ("GPU idle", "GPU busy", "idle", "busy", GPU_PATTERNED)
_CPU_SIDES = ("Outside the model", "Model work", "stall", "model", CPU_PATTERNED)


class Sides(Struct, frozen=True):
    """The names of the idle and the busy side of the step."""

    idle: str
    busy: str
    idle_short: str
    busy_short: str
    pattern_hint: str


class Card(Struct, frozen=True):
    """A finding and its number in the list; None if its saving is not estimated.

    `row`: its row of the plan, None if it is not in the plan. `needs`: the numbers of the fixes without which it saves
    little. `instead_of`: the number of the fix in the plan that treats the same cause. `saves_more`: this one is
    expected to save more than that fix does in the plan. `same_call`: the number of the fix above whose torch.compile
    call also makes this fix.
    """

    finding: Finding
    number: int | None
    anchor: str
    row: PlanRow | None = None
    needs: list[int] = []
    instead_of: int | None = None
    saves_more: bool = False
    same_call: int | None = None


def on_cpu(result: Result) -> bool:
    """True if the run used no accelerator, so that "GPU idle" would be wrong."""
    device = result.run.device
    return device.vendor == "cpu" if device is not None else not result.run.recorded.gpu


def sides(result: Result) -> Sides:
    """The names for a CPU-only run also if a GPU was used but not recorded: its idle time is unknown."""
    if not on_cpu(result) and result.gpu.busy_share is not None:
        return Sides(*_GPU_SIDES)
    communicates = any(part.busy and part.name == "communication" for part in result.breakdown)
    words = Sides(*_CPU_SIDES)
    return replace(words, busy=f"{words.busy} and communication", busy_short="busy") if communicates else words


def identity(result: Result) -> str:
    """The script that was recorded and its trace file, or the number of several files. Without a script, several files
    are named by their folder.
    """
    paths, name = result.run.paths, result.run.script or ""
    if len(paths) == 1:
        files = PurePath(paths[0]).name or paths[0]
    else:
        folders = {PurePath(path).parent.name for path in paths}
        name = name or (folders.pop() if len(folders) == 1 else "")
        files = quantities.counted(len(paths), "file") if paths else "unnamed trace"
    return f"{name}: {files}" if name else files


def command(result: Result) -> str:
    """The command that makes this report again. It names the first few of many files."""
    paths = result.run.paths
    quoted = " ".join(shlex.quote(path) for path in paths[:COMMAND_PATHS])
    return f"traceopt analyze {quoted}" + (" …" if len(paths) > COMMAND_PATHS else "")


def rank_phrase(result: Result) -> str | None:
    run = result.run
    if run.shown_rank is None:
        return None
    total = run.world_size or len(run.ranks)
    return f"rank {run.shown_rank} of {total}" if total > 1 else f"rank {run.shown_rank}"


def span_of_ranks(result: Result) -> str | None:
    """ "12.5–18.7 ms": the step of the fastest and of the slowest rank; None if all take about the same time, or if
    only one step was recorded, which begins on each rank when its recording begins.
    """
    if result.step.count < 2:
        return None
    times = [row.step_us for row in result.ranks if row.step_us is not None and row.engine is None]
    if not times or max(times) <= (1 + RANKS_DIFFER_SHARE) * min(times):
        return None
    return quantities.from_to(quantities.ms_of_us(min(times)), quantities.ms_of_us(max(times)), "–")


def device_phrase(result: Result) -> str:
    device = result.run.device
    if result.step.source == "none":
        return ""
    if device is None:
        return "device not recorded"
    name = device_name(device.name, device.vendor)
    several = device.vendor != "cpu" and len(result.run.ranks) > 1
    return f"{len(result.run.ranks)}{quantities.NO_BREAK_SPACE}× {name}" if several else name


def steps_phrase(result: Result) -> str:
    step = result.step
    if step.source == "none":
        return "no trace"
    if step.source == "window":
        return "no usable step marks: the whole recording"
    skipped = f" ({step.skipped:,} left out)" if step.skipped else ""
    return quantities.counted(step.count, "step") + skipped


def throughput(result: Result) -> str | None:
    """ "12,300 tokens/s per GPU, 71% of the reference", if the user said what a step processes."""
    found = result.throughput
    if found is None:
        return None
    rates = [
        quantities.per_second(value, unit)
        for value, unit in ((found.tokens_per_s, "tokens"), (found.samples_per_s, "samples"))
        if value is not None
    ]
    reference = found.reference_share
    return f"{', '.join(rates)} per GPU" + (f", {quantities.percent(reference)} of the reference" if reference else "")


def serving(result: Result) -> str | None:
    """ "Serving steps (vLLM): 40 decode, 3 prefill; decode 32 tokens a step, 20.9 ms, ..."; None for other steps."""
    found = result.serving
    if found is None:
        return None
    counts = ", ".join(f"{phase.count:,} {phase.phase}" for phase in found.phases)
    figures = [_phase(phase) for phase in found.phases if phase.phase != "idle"]
    shown = [f"the typical step is {found.phases[0].phase}"] if len(found.phases) > 1 else []
    return "; ".join([f"Serving steps ({found.engine}): {counts}", *figures, *shown])


def rl_phases(result: Result) -> str | None:
    """ "Phases: rollout 62% of the step (GPU idle for 70% of it), reward ..."; None for other steps."""
    if not result.rl_phases:
        return None
    texts = []
    for phase in result.rl_phases:
        idle = phase.idle_us_per_step
        waiting = ""
        if idle is not None and phase.gpus is not None:
            waiting = f" ({phase.gpus * idle / phase.us_per_step:.1f} of {phase.gpus} GPUs idle)"
        elif idle is not None:
            waiting = f" (GPU idle for {quantities.percent(idle / phase.us_per_step)} of it)"
        texts.append(f"{phase.name} {quantities.percent(phase.share)} of the step{waiting}")
    return f"Phases: {', '.join(texts)}"


def _phase(phase: ServingPhase) -> str:
    """ "decode 32 tokens a step, 20.9 ms, 1,530 tokens/s"."""
    tokens, rate = phase.tokens_per_step, phase.tokens_per_s
    items = [
        None if tokens is None else f"{quantities.count(tokens)} {'token' if tokens == 1 else 'tokens'} a step",
        quantities.ms_of_us(phase.step_us),
        None if rate is None else quantities.per_second(rate, "tokens"),
    ]
    return f"{phase.phase} {', '.join(item for item in items if item)}"


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
        serving(result),
    ]
    return [item for item in items if item]


def _cores(number: str) -> str:
    return "1 CPU core" if number == "1" else f"{number} CPU cores"


def scope(result: Result) -> str:
    """What the breakdown and the tables cover: "Mean of 12 steps, rank 0 of 4"."""
    if result.step.source == "window":
        mean = "The whole recording (no usable step marks)"
    else:
        count = len(result.step.typical_steps)
        mean = "One step" if count == 1 else f"Mean of {quantities.counted(count, 'step')}"
    rank = rank_phrase(result)
    return f"{mean}, {rank}" if rank else mean


def left_out(result: Result) -> int:
    """How many steps are unusual and not part of the typical step. Steps of another serving phase are not unusual."""
    if result.step.source == "window" or (result.serving is not None and len(result.serving.phases) > 1):
        return 0
    return max(0, result.step.count - len(result.step.typical_steps))


def unusual_steps(result: Result) -> str:
    """ "2 of 6 steps are unusual and left out of the typical step. Mean of all steps: 141.1 ms."; "" without any."""
    number, mean_us = left_out(result), result.step.mean_us
    if not number:
        return ""
    verb = "is" if number == 1 else "are"
    of_all = f"{number:,} of {quantities.counted(result.step.count, 'step')}"
    mean = "" if mean_us is None else f" Mean of all steps: {quantities.ms_of_us(mean_us)}."
    return f"{of_all} {verb} unusual and left out of the typical step.{mean}"


def typical_step(result: Result) -> str:
    """A reminder after the scope that unusual steps are left out, if there are any."""
    left_out = result.step.count - len(result.step.typical_steps)
    return f" ({quantities.counted(left_out, 'unusual step')} left out)" if left_out > 0 else ""


def partly_hidden(result: Result) -> list[str]:
    """Names of the parts that also ran while the time counts for another part."""
    return [
        part.name
        for part in result.breakdown
        if part.raw_us_per_step is not None and part.raw_us_per_step > 1.005 * part.us_per_step
    ]


def cards(result: Result) -> list[Card]:
    """Numbers the findings that have a saving. Every anchor is unique and safe in a URL fragment."""
    numbered: list[Card] = []
    seen: dict[str, int] = {}
    number = 0
    rows = {row.finding: (place, row) for place, row in enumerate(result.plan, 1)}
    number_of: dict[int, int] = {}  # by row of the plan, from 1
    for place, finding in enumerate(result.findings):
        if finding.saving is not None:
            number += 1
        base = re.sub(r"[^A-Za-z0-9_.-]", "-", finding.code)
        seen[base] = seen.get(base, 0) + 1
        anchor = base if seen[base] == 1 else f"{base}-{seen[base]}"
        place_in_plan, row = rows.get(place, (0, None))
        number_of[place_in_plan] = number
        needs = [number_of[other] for other in row.needs if other in number_of] if row is not None else []
        call = None if row is None or row.same_call is None else number_of.get(row.same_call)
        card = Card(finding, None if finding.saving is None else number, anchor, row, needs, same_call=call)
        other = _same_cause(finding, numbered) if row is None and finding.saving is not None else None
        if other is not None and other.row is not None and finding.saving is not None:
            more = finding.saving.est_us > MORE * other.row.saving_us
            card = replace(card, instead_of=other.number, saves_more=more)
        numbered.append(card)
    return numbered


def _same_cause(finding: Finding, before: list[Card]) -> Card | None:
    """The planned fix that treats the same cause."""
    for card in before:
        planned, either = card.finding, (card.finding.shares_cause_with, finding.shares_cause_with)
        if card.row is not None and (finding.code in either[0] or planned.code in either[1]):
            return card
    return None


class Groups(Struct, frozen=True):
    """The cards as reports show them, one group after the other."""

    above: list[Card]  # of the comparison of ranks, each saves more than the first fix of the plan
    plan: list[Card]
    rest: list[Card]  # with a saving, not in the plan
    noted: list[Card]  # without a saving, first those by which the run ends


def groups(result: Result) -> Groups:
    every = cards(result)
    plan = [card for card in every if card.row is not None]
    first = min((card.number for card in plan if card.number is not None), default=0)
    others = [card for card in every if card.row is None]
    return Groups(
        above=[card for card in others if card.number is not None and card.number < first],
        plan=plan,
        rest=[card for card in others if card.number is not None and card.number >= first],
        noted=sorted((card for card in others if card.number is None), key=lambda card: card.finding.impact == "info"),
    )


def title(card: Card, result: Result) -> str:
    """The finding's title, with the ranks that have it unless all do."""
    only = only_on(card.finding, result)
    return f"{card.finding.title} ({only})" if only else card.finding.title


def needs(card: Card) -> str:
    """How the fix depends on the plan; empty if it does not.

    "needs fixes 1 and 2": without them this one saves little. "same torch.compile call as fix 2": one edit makes both.
    "same cause as fix 2": both treat the same cause.
    "saves 0.5 ms after the plan": why it is not in the plan.
    """
    if card.needs:
        noun = "fix" if len(card.needs) == 1 else "fixes"
        needed = f"needs {noun} {joined([str(number) for number in card.needs])}"
        return f"{needed}; {_same_call(card)}" if card.same_call is not None else needed
    if card.same_call is not None:
        return _same_call(card)
    if card.instead_of is not None:
        return f"same cause as fix {card.instead_of}" + (", may save more" if card.saves_more else "")
    after_us = card.finding.after_plan_us
    if after_us is None:
        return ""
    return f"saves {quantities.estimated(after_us) if after_us > 0 else 'nothing'} after the plan"


def _same_call(card: Card) -> str:
    return f"same torch.compile call as fix {card.same_call}"


ACROSS_RANKS = "From comparing the ranks"


def plan_heading(result: Result) -> str:
    """ "The plan for rank 0": the words above the plan where other fixes stand above it."""
    shown = result.run.shown_rank
    return "The plan" if shown is None else f"The plan for rank {shown}"


def unplanned(result: Result) -> str:
    """The words above fixes that are not in the plan."""
    return "Not in the plan: alternatives, and fixes that add little" if result.plan else "What each fix saves alone"


def place(finding: Finding) -> str | None:
    """The finding's first place in the user's code, taken from its evidence if it names none itself."""
    evidence = [row.location for row in finding.evidence]
    located = next((item for item in [*finding.locations, *evidence] if item is not None), None)
    return None if located is None else str(located)


def ranks_phrase(ranks: list[int]) -> str:
    """ "rank 3" or "ranks 0, 1, 4"."""
    named = ", ".join(str(rank) for rank in ranks[:RANKS_NAMED]) + (" and more" if len(ranks) > RANKS_NAMED else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {named}"


def only_on(finding: Finding, result: Result) -> str | None:
    """The finding's ranks, if not all ranks have it and its title does not say which."""
    ranks = finding.ranks
    says_which = finding.title.rpartition(": ")[2].startswith(("rank ", "ranks "))
    if not ranks or len(ranks) >= len(result.run.ranks) or says_which:
        return None
    return ranks_phrase(ranks)


def ranks_missing(result: Result) -> str:
    """ "7 of 8 ranks are missing": communication cannot be judged as with all of them; empty if none is."""
    world, known = result.run.world_size or 0, len(result.run.ranks)
    if not 0 < known < world:
        return ""
    return f"{world - known:,} of {world:,} ranks {'is' if world - known == 1 else 'are'} missing"


def first_card(result: Result) -> Card | None:
    """The fix to start with; None if there is none, or if another recording comes first."""
    if "Record again" in result.verdict:
        return None
    return next((card for card in cards(result) if card.number == 1), None)


def limit(part: str | None) -> str | None:
    """ "launch-bound": the word for a step whose largest part is this one; None if there is no word."""
    return LIMITS.get(part) if part is not None else None


def combined_fixes(result: Result) -> str | None:
    """ "the top 3 fixes", "the top fix", "fixes 1, 2 and 4" or "the fixes"; None without a combination."""
    if result.combined is None or not result.combined.codes:
        return None
    numbers = [card.number for card in cards(result) if card.row is not None and card.number is not None]
    if not numbers:
        return "the fixes"
    if numbers == list(range(1, len(numbers) + 1)):
        return "the top fix" if len(numbers) == 1 else f"the top {len(numbers)} fixes"
    return ("fix " if len(numbers) == 1 else "fixes ") + joined([str(number) for number in numbers])


def measured_facts(result: Result) -> list[str]:
    """Sentences about waits and overlap that the breakdown does not show, for what was recorded."""
    facts = []
    sync, loader, communication = result.sync, result.dataloader, result.communication
    if loader.us_per_step is not None and loader.stall_us_per_step is not None:
        stall = quantities.ms_of_us(loader.stall_us_per_step)
        facts.append(f"Data loader: {quantities.ms_of_us(loader.us_per_step)}; {stall} of it stalls the step.")
    if sync.us_per_step is not None and sync.calls_per_step and sync.stall_us_per_step is not None:
        calls, stall = quantities.count(sync.calls_per_step), quantities.ms_of_us(sync.stall_us_per_step)
        waits = quantities.ms_of_us(sync.us_per_step)
        cost = f"They stall the GPU for {stall}, including the refill of its queue."
        facts.append(f"Host syncs: {calls}{per_step(result)}, {waits}. {cost}")
    if communication.us_per_step and communication.exposed_us_per_step is not None:
        hidden = communication.overlap_share
        overlap = f" ({quantities.percent(hidden)} overlapped)" if hidden is not None else ""
        total = quantities.ms_of_us(communication.us_per_step)
        exposed = quantities.ms_of_us(communication.exposed_us_per_step)
        facts.append(f"Communication: {total}; {exposed} of it is exposed{overlap}.")
    return facts


def timeline_caption(result: Result, shaded: bool) -> str:
    """Which step the timeline shows, what is shaded, and how much is drawn."""
    timeline = result.timeline
    if timeline is None:
        return ""
    steps = ["The whole recording"] if result.step.source == "window" else [timeline.step]
    if result.step.count > 1:
        steps.append("a typical step")
    rank = rank_phrase(result)
    sentences = [", ".join([*steps, rank] if rank else steps) + "."]
    if shaded:
        sentences.append(f"Shaded: the longest gap without {'model' if on_cpu(result) else 'GPU'} work.")
    if any(lane.occupancy for lane in timeline.lanes):
        sentences.append("Dense lanes show how busy each moment is.")
    return " ".join(sentences)


def matrix_units(result: Result) -> str:
    """What the device's vendor calls the units that multiply matrices."""
    return worded("Tensor Cores", result.run.device.vendor if result.run.device is not None else None)


def gemm_caption(result: Result) -> str:
    """How much of the matmuls the table holds if shapes are missing, Tensor Core use, and the achieved share of the
    peak, if known.
    """
    cores, efficiency = result.tensor_cores, result.efficiency
    sentences = []
    known = result.gemm_known_share
    if known is not None and known < MOST_MATMULS:
        sentences.append(
            f"The table holds {quantities.percent(known)} of the time of matmul kernels. The others have no operator "
            "with shapes (compiled code, graphs, custom kernels)."
        )
    if cores.eligible_share is not None:
        sentences.append(f"{matrix_units(result)}: {_tensor_core_use(cores)}")
    if efficiency.achieved_tflops is not None:
        reached = f"The step reaches {quantities.per_second(efficiency.achieved_tflops, 'TFLOP')}"
        if efficiency.mfu is not None and efficiency.peak_tflops is not None:
            peak = quantities.per_second(efficiency.peak_tflops, "TFLOP")
            dtype = f"{efficiency.peak_dtype} " if efficiency.peak_dtype else ""
            recomputes = efficiency.hfu is not None and efficiency.hfu > efficiency.mfu
            share = efficiency.hfu if recomputes else efficiency.mfu
            reached += f", {quantities.percent(share)} of the {dtype}peak of {peak}"
            caveat = quantities.peak_caveat(efficiency.peak_source, efficiency.peak_verified)
            remarks = [caveat] if caveat else []
            if recomputes:
                remarks.append(f"{quantities.percent(efficiency.mfu)} without recomputation")
            if remarks:
                reached += f" ({'; '.join(remarks)})"
        sentences.append(safe_text.unbroken(reached) + ".")
    return " ".join([*sentences, *_other_peaks(result)])


# By the bound of a kernel and the peak that it is nearer to.
# What bounds a kernel, and what that means.
_BOUND = {
    ("memory", "memory"): ("memory-bound", "only moving fewer bytes helps (fusion, smaller types)"),
    ("compute", "compute"): ("compute-bound", "only fewer operations or a faster type help"),
    ("neither", "memory"): ("far below memory", "latency, uneven access or too little work"),
    ("neither", "compute"): ("far below compute", "another shape, kernel or library may help"),
}


def kernel_rate(kernel: Kernel) -> tuple[str, str]:
    """What a kernel reaches, and what bounds it: "783 GB/s", "memory-bound"; "" for what is not known."""
    reached = [
        quantities.per_second(value, unit)
        for value, unit, limit in ((kernel.tflops, "TFLOP", "compute"), (kernel.gb_per_s, "GB", "memory"))
        if value is not None and kernel.limit in (limit, None)
    ]
    return " and ".join(reached), _bound(kernel)[0]


def _bound(kernel: Kernel) -> tuple[str, str]:
    return _BOUND.get((kernel.bound or "", kernel.limit or ""), ("", ""))


def kernel_caption(result: Result) -> str:
    """What the shares of the peak are shares of, and what bounds a kernel; "" if no kernel has a share."""
    limits = {kernel.limit for kernel in result.kernels} - {None}
    if not limits:
        return ""
    peaks = {peak.figure: peak for peak in (result.run.device.peaks if result.run.device else [])}
    memory = peaks.get("memory")
    bandwidth = f", {quantities.per_second(memory.rate, 'GB')}" if memory else ""
    caveat = quantities.peak_caveat(memory.source, memory.verified) if memory else ""
    caveat = f" ({caveat})" if caveat else ""
    beyond = {kernel.limit for kernel in result.kernels if (kernel.peak_share or 0) > 1}
    above = " Above 100%: the data was in the cache." if "memory" in beyond else ""
    above += " Above 100% (compute): a Winograd kernel does fewer operations." if "compute" in beyond else ""
    return (
        "Of peak: of the limit that the kernel is nearer to, the rate of its type (compute) or the memory's "
        f"bandwidth{bandwidth}{caveat} (memory), if each tensor is read or written once.{above}{_bounds(result)}"
    )


def _bounds(result: Result) -> str:
    """ " Memory-bound: only moving fewer bytes helps.", for what bounds kernels of the table."""
    found = set(map(_bound, result.kernels))
    return "".join(f" {word.capitalize()}: {meaning}." for word, meaning in _BOUND.values() if (word, meaning) in found)


def cpu_caption(result: Result) -> str:
    """What the CPU reaches, to which the rates of a CPU-only run are compared."""
    rates = {rate.figure: rate for rate in result.cpu.rates} if result.cpu is not None else {}
    if not rates:
        return "The peak of this CPU was not measured."
    peaks = ", ".join(f"{quantities.rate_number(rate.rate)} {rate.unit} ({figure})" for figure, rate in rates.items())
    return f"Of peak: as a share of what this CPU reached after the run with the same threads: {peaks}."


def _other_peaks(result: Result) -> list[str]:
    """The other peaks of the table that are unverified or from the user's settings."""
    device, named = result.run.device, result.efficiency.peak_dtype
    dtypes = {gemm.dtype for gemm in result.gemms if gemm.peak_share is not None} - {named}
    peaks = [peak for peak in (device.peaks if device else []) if peak.figure in dtypes]
    unverified = [peak.figure for peak in peaks if peak.verified is False]
    given = [peak.figure for peak in peaks if peak.verified is None]
    sentences = [f"Peak unverified: {', '.join(unverified)}."] if unverified else []
    return [*sentences, f"Peak from your settings: {', '.join(given)}."] if given else sentences


def _tensor_core_use(cores: TensorCores) -> str:
    """ "36% of kernel time is eligible; all of it uses them."."""
    eligible, used = quantities.percent(cores.eligible_share), quantities.percent(cores.used_share)
    use = "all of it uses them" if used == eligible else f"{used} uses them"
    unknown = f", {quantities.percent(cores.unknown_share)} is unknown" if cores.unknown_share else ""
    return f"{eligible} of kernel time is eligible; {use}{unknown}."


_TENSOR_CORE_BYTES = 16  # rows of operands must be a multiple of this
_ELEMENT_BYTES = {"tf32": 4, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp4": 0.5, "int8": 1}


def misaligned(gemm: Gemm, size: int) -> int | None:
    """The number that N or K (`size`) of a misaligned GEMM should be a multiple of; None if it is. M is free."""
    element_bytes = _ELEMENT_BYTES.get(gemm.dtype)
    if gemm.aligned is not False or element_bytes is None:
        return None
    multiple = int(_TENSOR_CORE_BYTES / element_bytes)
    return multiple if size % multiple else None


def verdict(result: Result) -> str:
    """The headline. For an unusable trace without the reason, which the banner below gives."""
    if result.quality.verdict == "unusable":
        for note in result.quality.notes:
            short = result.verdict.removesuffix(note.text).rstrip()
            if short and short != result.verdict:
                return short
    return result.verdict


def quality_heading(result: Result) -> str | None:
    """The heading of the notes; None for a good trace without notes."""
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
    parts = [f"{counts[status]} {words}" for status, words in CHECK_WORDS if status != "error" or counts[status]]
    return f"{quantities.counted(len(result.checks), 'rule')}: {', '.join(parts)}."


def joined(words: list[str]) -> str:
    """ "1, 2 and 4"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def yes_no(value: bool | None) -> str:
    return "unknown" if value is None else ("yes" if value else "no")
