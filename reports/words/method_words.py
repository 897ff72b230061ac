"""How the numbers of the report were measured: terms and what they mean."""

from __future__ import annotations

from collections.abc import Iterator

from traceopt.reports.words import not_recorded, step_words
from traceopt.reports.words.fixes import fix_cards
from traceopt.result.document import Result
from traceopt.result.words import quantities

_STEP_MARKS = {
    "profiler_step": "ProfilerStep marks the steps.",
    "annotation": "A repeating annotation marks the steps, because the trace has no ProfilerStep marks.",
    "data_loader": "A step goes from one data loader call to the next, because the trace has no ProfilerStep marks.",
    "optimizer": "A step goes from one optimizer update to the next, because the trace has no ProfilerStep marks.",
    "compiled_region": "A step begins with a call of compiled code, because the trace has no ProfilerStep marks.",
    "backward": "A step goes from one backward pass to the next, because the trace has no ProfilerStep marks.",
    "window": "The trace has no step marks, so the whole recording counts as one step.",
}


def method(result: Result) -> Iterator[tuple[str, str]]:
    """Each term and its meaning."""
    recorded = not_recorded.recorded_flags(result)
    yield (
        "Recorded",
        ", ".join(f"{name}: {'yes' if present else quantities.NOT_RECORDED}" for name, present in recorded),
    )
    if result.run.settings:
        yield "Settings", ", ".join(f"{setting.name}: {setting.value}" for setting in result.run.settings)
    on_gpu = step_words.has_gpu_sides(result)
    yield "Step", _step(result, on_gpu)
    if on_gpu:
        yield (
            "GPU busy and idle",
            "Busy: a kernel, copy or memset runs on the device. Idle: the rest of the step. Each gap has one cause, "
            "the first that explains it.",
        )
    else:
        yield (
            "Model work",
            "The time in which the main thread runs operators of the model. Each part of the remaining time has one "
            "cause: what the thread did then.",
        )
    yield "Savings", _savings(result)
    meanings = " ".join(f"{level.capitalize()}: {words}." for level, words in fix_cards.CONFIDENCE_WORDS.items())
    yield "Confidence", f"How sure it is that the fix saves time; the likely range says how much. {meanings}"
    yield (
        "Impact",
        "The most that the fix can save: in the plan, or once the other limits of the step are gone. High: 10% of the "
        "step or more, or the run ends by it. Medium: 3 to 10%. Low: under 3%. Info: no saving estimated.",
    )
    if result.run.recorded.stacks:
        yield (
            "Source lines",
            "The profiler records the first line of each Python function, so a place identifies the function, not the "
            "statement.",
        )
    yield "Profiler overhead", _overhead(result)


def _step(result: Result, on_gpu: bool) -> str:
    sentences = [_STEP_MARKS[result.step.source]]
    if result.step.source != "window":
        if on_gpu:
            sentences.append(
                "A step ends when the host has reached its mark and the GPU has finished everything that was launched "
                "before."
            )
        sentences.append(
            "All times per step are means over the same steps: all recorded steps but those that are unusual once, "
            "or cut by the profiler."
        )
    return " ".join(sentences)


def _savings(result: Result) -> str:
    bound = (
        "The time that a fix can remove from the step: expected is at most the measured idle time or the modeled "
        "excess. The likely range may go beyond it, by as much as earlier predictions were off. "
        f"{fix_cards.PLAN_ORDER}"
    )
    if result.combined is None:
        return bound
    if result.combined.replay_error_share is None:
        return f"{bound} They are bounds computed from intervals, not replayed."
    return (
        f"{bound} They were replayed on the step's dependency graph. The replay error is "
        f"{quantities.percent(result.combined.replay_error_share)}: the largest of its error without changes, its "
        "error when it predicts each step from the others, and the share of slow calls for which the trace shows "
        "no reason."
    )


def _overhead(result: Result) -> str:
    if result.step.recorded_us is not None:
        recorded = quantities.ms_of_us(result.step.recorded_us)
        return f"All times are corrected for the cost of recording. The recorded steps took {recorded}."
    return (
        "Recording slows the CPU down, and recording stacks slows it most. Steps without the profiler are "
        "usually faster, so shares carry over better than milliseconds."
    )
