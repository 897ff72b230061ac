"""The run in sentences: script, device, versions, throughput, the verdict and the checks."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from traceopt.reports.words.step_words import step_noun, steps_phrase
from traceopt.result.document import NOT_JUDGED, CheckStatus, Result
from traceopt.result.sections.rank_rows import ProcessGpu
from traceopt.result.sections.step import ServedRequests, ServingPhase
from traceopt.result.words import quantities
from traceopt.result.words.vendors import device_name, vendor_called

COMMAND_PATHS = 8
MOST_GPUS = 16  # of a process


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


def device_phrase(result: Result) -> str:
    device = result.run.device
    if result.step.source == "none":
        return ""
    if device is None:
        return "device not recorded"
    name = device_name(device.name, device.vendor)
    number = 1 if device.vendor == "cpu" else max(1, len(result.run.ranks))
    number *= 1 if _is_mixed(result) else max(1, device.used)
    return f"{number}{quantities.NO_BREAK_SPACE}× {name}" if number > 1 else name


def gpus(result: Result) -> list[str]:
    """ "GPU 0: busy 50% of the step, waits 12.0 ms for GPU 1", for each GPU of a process that works on several."""
    mixed, noun, lines = _is_mixed(result), step_noun(result), []
    for row in result.gpu.devices[:MOST_GPUS]:
        name = f" ({row.name})" if mixed and row.name else ""
        waits = f", waits {quantities.ms_of_us(row.waits_us_per_step)} {waits_for(row)}" if row.waits_for else ""
        rest = waits if row.compute_us_per_step else ", copies only"
        lines.append(f"GPU {row.gpu}{name}: busy {quantities.percent(row.busy_share)} of the {noun}{rest}")
    left_out = len(result.gpu.devices) - MOST_GPUS
    return [*lines, f"and {quantities.counted(left_out, 'more GPU')}"] if left_out > 0 else lines


def waits_for(row: ProcessGpu) -> str:
    """ "for GPU 1, GPU 2"; "" if it waits for none."""
    return f"for {', '.join(f'GPU {other}' for other in row.waits_for)}" if row.waits_for else ""


def _is_mixed(result: Result) -> bool:
    """Whether the process works on GPUs of different models."""
    return len({row.name for row in result.gpu.devices} - {None}) > 1


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


def cost(result: Result) -> str | None:
    """ "$0.17 per 1,000 steps at $32.00 an hour ($0.52 for this run), of which the plan saves about $0.07"; None if the
    user gave no price.
    """
    known = result.cost
    if known is None:
        return None
    run = f" ({quantities.dollars(known.of_run)} for this run)" if known.of_run is not None else ""
    saves = (
        f", of which the plan saves about {quantities.dollars(1_000 * known.saved_per_step)}"
        if known.saved_per_step
        else ""
    )
    each = quantities.dollars(1_000 * known.per_step)
    return f"{each} per 1,000 steps at {quantities.dollars(known.price_per_hour)} an hour{run}{saves}"


def serving(result: Result) -> str | None:
    """ "Serving (vLLM): 40 decode steps (32 tokens per step, 20.9 ms), 3 prefill steps (...). The typical step is a
    decode step. Requests per step: 32. ..."; None for other steps.
    """
    found = result.serving
    if found is None:
        return None
    steps = ", ".join(map(_phase, found.phases))
    shown = [f"The typical step is a {found.phases[0].phase} step"] if len(found.phases) > 1 else []
    requests = [] if found.requests is None else _requests(found.requests)
    return ". ".join([f"Serving ({found.engine}): {steps}", *shown, *requests])


def _requests(seen: ServedRequests) -> list[str]:
    """ "Requests per step: 32", "Time between tokens: 4.2 ms (longest 12.4 ms)", ..."""
    most, mean = quantities.count(seen.most_requests), quantities.rate_number(seen.requests_per_step)
    requests = most if seen.requests_per_step == seen.most_requests else f"{mean} on average, at most {most}"
    items = [f"Requests per step: {requests}"]
    if seen.first_token_us is not None:
        at_least = quantities.ms_of_us(seen.first_token_us)
        items.append(f"Time to the first token: at least {at_least}, without the queue")
    if seen.between_tokens_us is not None:
        longest = f"longest {quantities.ms_of_us(seen.longest_between_tokens_us)}"
        part = seen.prompts_between_share
        prompts = f", {quantities.percent(part)} of it for prompts" if part else ""
        items.append(f"Time between tokens: {quantities.ms_of_us(seen.between_tokens_us)} ({longest}{prompts})")
    if seen.idle_between_passes_share is not None:
        share = quantities.percent(seen.idle_between_passes_share)
        items.append(f"The GPU is idle between forward passes for {share} of the time")
    if seen.queue_gaps:
        gaps = quantities.counted(seen.queue_gaps, "pause")
        items.append(f"{gaps} without requests: {quantities.percent(seen.queue_gap_share)} of the time")
    return items


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
    """ "40 decode steps (32 tokens per step, 20.9 ms, 1,530 tokens/s)", "1 decode step (16 tokens, 7.1 ms)"."""
    steps = quantities.counted(phase.count, f"{phase.phase} step")
    if phase.phase == "idle":
        return steps
    tokens, rate = phase.tokens_per_step, phase.tokens_per_s
    each = " per step" if phase.count > 1 else ""
    items = [
        None if tokens is None else f"{quantities.count(tokens)} {'token' if tokens == 1 else 'tokens'}{each}",
        quantities.ms_of_us(phase.step_us),
        None if rate is None else quantities.per_second(rate, "tokens"),
    ]
    return f"{steps} ({', '.join(item for item in items if item)})"


def environment(result: Result) -> list[str]:
    """The line under the tiles: device, versions, cores, steps."""
    device = result.run.device
    torch_version = result.run.torch_version
    items = [
        device_phrase(result),
        f"{vendor_called(device.vendor).capability_name} {device.compute_capability}"
        if device is not None and device.compute_capability
        else None,
        f"PyTorch {torch_version}" if torch_version else None,
        result.run.gpu_runtime,
        *(_cores(setting.value) for setting in result.run.settings if setting.name == "CPU cores"),
        steps_phrase(result),
        throughput(result),
        cost(result),
        serving(result),
    ]
    return [item for item in items if item]


def _cores(number: str) -> str:
    return "1 CPU core" if number == "1" else f"{number} CPU cores"


def verdict(result: Result) -> str:
    """The headline. For an unusable trace without the reason, which the banner below gives."""
    if result.quality.unusable_by is None:
        return result.verdict
    return f"{result.ending} {NOT_JUDGED}" if result.ending else NOT_JUDGED


def quality_heading(result: Result) -> str | None:
    """The heading of the notes; None without notes."""
    if result.quality.verdict == "unusable":
        return "These numbers are not reliable"
    if not result.quality.notes:
        return None
    return "Read these numbers with care" if result.quality.verdict == "limited" else "Keep in mind"


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
