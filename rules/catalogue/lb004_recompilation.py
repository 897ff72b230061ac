"""LB004: code is compiled again in steady-state steps, or so often that torch.compile gave up."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.table import COMPILE
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Fallback,
    Findings,
    Fix,
    Former,
    Priced,
    Recompiled,
    counted,
    lacks,
    threshold,
)
from traceopt.rules.bases.once_only_rule import SteadyRule
from traceopt.rules.fixes.advice.recompilation import fix_for, guard_evidence

MOST_GUARDS = 3
MOST_ROWS = 6


class Recompilation(SteadyRule):
    """Measures how long the GPU is idle while TorchDynamo, Inductor or Triton compile, in steps after the first. The
    names of the compiled regions tell how often each part of the model was compiled before. `traceopt run`, or a
    TORCH_TRACE log beside the trace, adds the guards that failed, with the line. They also tell of functions that were
    compiled again and again because the same guard failed, and of those that TorchDynamo gave up on: after 8
    compilations (`recompile_limit`), a call that no compiled code fits runs in eager mode.

    Why it costs: a compilation takes seconds. It belongs in the first steps. It returns when something that the
    compiled code assumed to be fixed has changed: a shape, a Python number, the training flag, an attribute. A function
    that reached the limit runs without any of its fused kernels for the rest of the run.

    How to fix: find the guard that failed. Keep what it checks fixed, or mark it as dynamic.

        TORCH_LOGS=recompiles python script.py         # says which guard failed
        torch._dynamo.mark_dynamic(tokens, 1)          # this dimension varies
        model = torch.compile(model, dynamic=True)
        scale = torch.tensor(scale, device=x.device)   # a number that changes in each step

    If dynamic shapes are slower, pad lengths to a few sizes.

    When it is wrong: the first few steps of a run recompile until dynamic shapes are found, and a recording that starts
    too early shows them. If only one step compiles, the finding has no saving. A few sizes that are all seen in the
    first steps cost nothing later. Raise `torch._dynamo.config.recompile_limit` if there are more than 8.

    Sources: PyTorch documentation, "torch.compile: dealing with recompilations" and "Dynamic shapes".
    """

    code = "LB004"
    name = "recompilation"
    title = "Avoid recompilation in steady-state steps"
    needs_trace = False
    former = (Former("LB009", "repeated-recompilation"),)
    cause = COMPILE
    does = "The model is recompiled"
    fix = Fix(
        "Find the guard that fails with TORCH_LOGS=recompiles. Mark what varies as dynamic, or pad it to a few sizes.",
        "TORCH_LOGS=recompiles python script.py\ntorch._dynamo.mark_dynamic(tokens, 1)",
    )

    min_recompilations: int = threshold(3, "fewest recompilations of one function for one guard to report")

    def needs(self, facts: Facts) -> tuple[str, ...]:
        """What torch.compile did is enough, also without steps."""
        return () if facts.compilation is not None else self.requires

    def applies(self, facts: Facts) -> str | None:
        if facts.compilation is not None:
            return None
        if not len(facts.host.rows_of(COMPILE)) and not facts.regions.compiled:
            return "Nothing is compiled in this trace."
        return super().applies(facts)

    def check(self, facts: Facts) -> Findings:
        in_steps = [*super().check(facts)] if self._judges_steps(facts) else []
        yield from in_steps
        repeated, given_up = self._repeated(facts), _given_up(facts)
        if given_up or (repeated and not in_steps):
            yield self._over_the_run(repeated, given_up)

    def _judges_steps(self, facts: Facts) -> bool:
        return all(lacks(facts, need) is None for need in self.requires) and super().applies(facts) is None

    def _repeated(self, facts: Facts) -> list[Recompiled]:
        """Functions that were compiled again and again because the same guard failed."""
        every = facts.compilation.recompilations if facts.compilation is not None else []
        return [recompiled for recompiled in every if recompiled.count >= self.min_recompilations]

    def _over_the_run(self, repeated: list[Recompiled], given_up: list[Fallback]) -> Priced:
        return self.finding(
            title="Stop recompiling the same function",
            effort=Effort.FEW_LINES,
            why=" ".join([*map(_gave_up, given_up[:1]), *map(_again, repeated[:1])]),
            fix=_fix(repeated, given_up),
            evidence=[*map(_fallback_evidence, given_up), *map(guard_evidence, repeated)][:MOST_ROWS],
        )

    def advice(self, facts: Facts) -> Fix:
        """By the guard that failed most often in code that the steps run."""
        first = next(iter(_in_steps(facts)), None)
        return self.fix if first is None else fix_for(first.guards[0])

    def more(self, facts: Facts) -> list[Evidence]:
        most = sorted(facts.regions.compiled.items(), key=lambda item: -item[1])[:3]
        rows = [
            Evidence(f"Region {frame}", detail=f"compiled {count + 1} times so far") for frame, count in most if count
        ]
        return [*rows, *map(guard_evidence, _in_steps(facts)[:MOST_GUARDS])]

    def passed(self, facts: Facts) -> str:
        in_steps = super().passed(facts) if self._judges_steps(facts) else ""
        if facts.compilation is None:
            return in_steps
        again = sum(recompiled.count for recompiled in facts.compilation.recompilations)
        compiled = (
            f"torch.compile recompiled {counted(again, 'time')}, and gave up on no function."
            if again
            else "torch.compile compiled each function once."
        )
        return f"{compiled} {in_steps}".strip()


def _in_steps(facts: Facts) -> list[Recompiled]:
    """Recompilations of code that the recorded steps run; all of them if the trace does not name compiled code."""
    if facts.compilation is None:
        return []
    frames = facts.regions.compiled.keys()
    return [
        recompilation
        for recompilation in facts.compilation.recompilations
        if not frames or not recompilation.frames or frames & set(recompilation.frames)
    ]


def _given_up(facts: Facts) -> list[Fallback]:
    """Functions that run in eager mode because they were compiled too often."""
    return list(facts.compilation.fallbacks) if facts.compilation is not None else []


def _again(recompiled: Recompiled) -> str:
    seconds = f", which took {recompiled.total_ns / 1e9:.3g} s" if recompiled.total_ns is not None else ""
    return (
        f"{recompiled.function or 'A function'}() was compiled again {counted(recompiled.count, 'time')} because the "
        f"same guard failed{seconds}: {recompiled.guards[0].guard.rstrip('.')}."
    )


def _gave_up(fallback: Fallback) -> str:
    guard = f" The last guard that failed: {fallback.guard.guard.rstrip('.')}." if fallback.guard is not None else ""
    return (
        f"torch.compile gave up on {fallback.function or 'a function'}(), which runs in eager mode: "
        f"{fallback.text.title}.{guard}"
    )


def _fallback_evidence(fallback: Fallback) -> Evidence:
    return Evidence(
        f"Runs in eager mode: {fallback.function or 'a function'}()",
        detail=fallback.text.title,
        location=fallback.cause,
    )


def _fix(repeated: list[Recompiled], given_up: list[Fallback]) -> Fix:
    if repeated:
        return fix_for(repeated[0].guards[0])
    guard = next((fallback.guard for fallback in given_up if fallback.guard is not None), None)
    if guard is not None:
        return fix_for(guard)
    hints = given_up[0].text.hints
    return Fix(hints[0] if hints else "Change the function so that Dynamo can compile it, or do not compile it.")
