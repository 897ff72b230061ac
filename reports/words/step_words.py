"""The step in labels and sentences. A recording without step marks counts as one step, but nobody calls it that."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY, COMMUNICATION, DATA_LOADING, HOST_SYNC
from traceopt.reports.words.rank_words import rank_phrase
from traceopt.result.document import Result
from traceopt.result.finding import Saving
from traceopt.result.words import quantities
from traceopt.result.words.quantities import estimated, percent

# The names of the two sides of the step, in a run with a GPU and in a CPU-only run.
GPU_PATTERNED = "Patterned parts: the GPU is idle."
CPU_PATTERNED = "Patterned parts: no model work on the main thread."
_GPU_SIDES = ("GPU idle", "GPU busy", "idle", "busy", GPU_PATTERNED)
_CPU_SIDES = ("Outside the model", "Model work", "stall", "model", CPU_PATTERNED)


def step_noun(result: Result) -> str:
    """What the times are of: "step", or "recording" without step marks."""
    return "recording" if result.step.source == "window" else "step"


def per_step(result: Result) -> str:
    """What follows a unit: " per step", or nothing without step marks."""
    return "" if result.step.source == "window" else " per step"


def of_each_step(result: Result) -> str:
    """What follows a saving: "per step", or "of the recording" without step marks."""
    return "of the recording" if result.step.source == "window" else "per step"


def share_range(low: float, high: float) -> str:
    """ "35–78%"; empty if both look the same."""
    texts = percent(low), percent(high)
    return "" if texts[0] == texts[1] else f"{texts[0].rstrip('%')}–{texts[1]}"


def saved_about(result: Result, saving: Saving) -> str:
    """ "150 ms per step (36%, likely 27–45%)"."""
    step_us = saving.est_us / saving.share if saving.share > 0 else 0.0
    likely = share_range(saving.low_us / step_us, saving.high_us / step_us) if step_us > 0 else ""
    text = saved(result, saving)
    return f"{text[:-1]}, likely {likely})" if likely else text


def saved(result: Result, saving: Saving) -> str:
    """ "150 ms per step (36%)", "150 ms of the recording (36%)"."""
    return f"{estimated(saving.est_us)} {of_each_step(result)} ({percent(saving.share)})"


class Sides(Struct, frozen=True):
    """The names of the idle and the busy side of the step."""

    idle: str
    busy: str
    idle_short: str
    busy_short: str
    pattern_hint: str


def on_cpu(result: Result) -> bool:
    """True if the run used no accelerator, so that "GPU idle" would be wrong."""
    device = result.run.device
    return device.vendor == "cpu" if device is not None else not result.run.recorded.gpu


def has_gpu_sides(result: Result) -> bool:
    """Whether the step is divided into busy and idle time of the GPU."""
    return not on_cpu(result) and result.gpu.busy_share is not None


def sides(result: Result) -> Sides:
    """The names for a CPU-only run also if a GPU was used but not recorded: its idle time is unknown."""
    if has_gpu_sides(result):
        return Sides(*_GPU_SIDES)
    communicates = any(part.busy and part.name == COMMUNICATION.key for part in result.breakdown)
    words = Sides(*_CPU_SIDES)
    return replace(words, busy=f"{words.busy} and communication", busy_short="busy") if communicates else words


def steps_phrase(result: Result) -> str:
    step = result.step
    if step.source == "none":
        return "no trace"
    if step.source == "window":
        return "no usable step marks: the whole recording"
    skipped = f" ({step.skipped:,} left out)" if step.skipped else ""
    return quantities.counted(step.count, "step") + skipped


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


def limit(part: str | None) -> str | None:
    """ "launch-bound": the word for a step whose largest part is this one; None if there is no word."""
    return CAUSE_OF_KEY[part].limit if part in CAUSE_OF_KEY else None


def _own_time(result: Result, part: str) -> str:
    """The time of a part of the step, as the breakdown has it."""
    return quantities.ms_of_us(sum(row.us_per_step for row in result.breakdown if row.name == part))


def measured_facts(result: Result) -> list[str]:
    """Sentences about waits and overlap that the breakdown does not show, for what was recorded."""
    facts = []
    sync, loader, communication = result.sync, result.dataloader, result.communication
    if loader.us_per_step is not None and loader.stall_us_per_step is not None:
        waits, idle = map(quantities.ms_of_us, (loader.us_per_step, loader.stall_us_per_step))
        lost = f"the GPU is idle for {idle} of it" if has_gpu_sides(result) else f"{idle} of it stalls the step"
        facts.append(f"{DATA_LOADING.label}: {waits}; {lost}.")
    if sync.us_per_step is not None and sync.calls_per_step and sync.stall_us_per_step is not None:
        calls, waits = quantities.count(sync.calls_per_step), quantities.ms_of_us(sync.us_per_step)
        idle, own = quantities.ms_of_us(sync.stall_us_per_step), _own_time(result, HOST_SYNC.key)
        only = "" if own == idle else f" Of this idle time, {own} has no other cause."
        starved = f" The GPU is idle for {idle} during them and until the host has refilled its queue.{only}"
        facts.append(
            f"Host syncs: {calls}{per_step(result)}. The host waits in them for {waits}."
            + (starved if sync.stall_us_per_step > 0 else "")
        )
    if communication.us_per_step and communication.exposed_us_per_step is not None:
        hidden = communication.overlap_share
        overlap = f" ({quantities.percent(hidden)} overlapped)" if hidden is not None else ""
        total = quantities.ms_of_us(communication.us_per_step)
        exposed = quantities.ms_of_us(communication.exposed_us_per_step)
        lost = f"the step waits for {exposed} of it" if on_cpu(result) else f"{exposed} of it is exposed"
        facts.append(f"Communication: {total}; {'all of it is exposed' if total == exposed else lost + overlap}.")
    return facts
