"""TQ002: the trace does not show several steps, so a one-off looks like a cost of every step."""

from __future__ import annotations

from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule, percent, threshold

SCHEDULE = """with profile(schedule=schedule(wait=1, warmup=2, active=6)) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()"""


class NoSteps(Rule):
    """Looks for the `ProfilerStep#N` annotations that `prof.step()` writes, and for the annotated steps of a serving
    engine (vLLM, SGLang).

    Why it matters: a saving is time saved in every step, judged by the mean of several. Without these marks, traceopt
    uses what repeats over the trace with the longest regular period: an annotation, the calls of a data loader, the
    updates of an optimizer, or else the regions of torch.compile or the backward passes. If nothing does, the whole
    file is one window. Start-up, evaluation and the end of the run then count as part of a step. With only one step, a
    stall that happens once looks like one that always happens.

    The note is omitted if the GPU is busy for almost the whole window. Its work is then the cost, wherever the steps
    begin and end.

    How to fix:

        with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=2, active=6)) as prof:
            for batch in loader:
                train_step(batch)
                prof.step()

    When it is wrong: one long step may hold many equal iterations (a generation loop), which is enough.

    Sources: PyTorch documentation, "torch.profiler.schedule".
    """

    code = "TQ002"
    name = "no-steps"
    title = "Mark several steps with prof.step()"
    family = TRACE_QUALITY

    min_idle_share: float = threshold(0.10, "GPU idle share of the window above which missing steps matter")

    def check(self, facts: Facts) -> Findings:
        steps = facts.steps
        if _marked(facts) and steps.count > 1:
            return
        if facts.has_gpu and _idle_share(facts) < self.min_idle_share and not _without_launches(facts):
            return
        yield self.finding(title=_title(facts), why=_what_is_known(facts), fix=_fix(facts))

    def passed(self, facts: Facts) -> str:
        if _marked(facts) and facts.steps.count > 1:
            return f"{facts.steps.count} {'profiler' if facts.serving is None else 'serving'} steps were recorded."
        idle = percent(_idle_share(facts))
        return f"The GPU is idle for only {idle} of the window, so step boundaries matter little."


def _marked(facts: Facts) -> bool:
    """Whether the profiler's schedule or a serving engine says where steps begin."""
    return facts.steps.source == "profiler_step" or facts.serving is not None


def _without_launches(facts: Facts) -> bool:
    """Whether steps are marked, and it is not known which work is theirs."""
    return facts.steps.source == "window" != facts.marks.source


def _title(facts: Facts) -> str | None:
    """None: the rule's."""
    if _without_launches(facts):
        return "Record the launches of GPU work"
    return "Record several steps" if facts.serving is not None else None


def _fix(facts: Facts) -> Fix:
    if _without_launches(facts):
        return Fix(
            "Record the host as well (ProfilerActivity.CPU), and keep the runtime events in the file.",
            "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        )
    if facts.serving is not None:
        return Fix("Stop the engine's profiler only after at least five steps of each phase.")
    call = "train_step(batch)" if facts.trains else "model(batch)"
    text = "Call prof.step() at the end of each iteration, and record several steps."
    return Fix(text, SCHEDULE.replace("train_step(batch)", call))


def _idle_share(facts: Facts) -> float:
    return facts.gpu.idle.total / facts.steps.window_ns


def _what_is_known(facts: Facts) -> str:
    steps = facts.steps
    if _without_launches(facts):
        return (
            "The file holds no launch of its GPU work, and the GPU works on long after the last marked step. Nothing "
            "shows to which step the work belongs, so the whole file counts as one step."
        )
    if facts.serving is not None:
        only = f"Only one step of {facts.serving.engine} was recorded"
        return f"{only}, so a one-off looks like a cost of every step. Record five or more."
    advice = "Call prof.step() in the loop and record at least five steps."
    if steps.source == "profiler_step":
        return f"Only one step was recorded, so a one-off looks like a cost of every step. {advice}"
    return f"No profiler step was recorded, so {_guess(facts)}. {advice}"


def _guess(facts: Facts) -> str:
    """What stands for a step: "a step probably begins with each backward pass"."""
    loop = facts.marks.loop
    if loop is None:
        return "the whole file counts as one step, including any start-up"
    if loop.source == "annotation":
        return f"the {facts.recorded_steps.count} ranges named {loop.call!r} are used as steps"
    if loop.every > 1:
        return f"a step probably holds {loop.every} times {loop.call!r}"
    return f"a step probably {'ends' if loop.source == 'optimizer' else 'begins'} with each {loop.call}"
