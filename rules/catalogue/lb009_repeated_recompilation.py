"""LB009: a compiled function is compiled again and again, or not at all because of that."""

from __future__ import annotations

from traceopt.rules import (
    Evidence,
    Facts,
    Fallback,
    Findings,
    Fix,
    Recompiled,
    Rule,
    counted,
    places,
    required,
    threshold,
    to_location,
)
from traceopt.rules.fixes.advice.recompilation import fix_for, guard_evidence

MOST_ROWS = 6


class RepeatedRecompilation(Rule):
    """Measures how often TorchDynamo compiled the same function again because the same guard failed, and finds
    functions that it gave up on. After 8 compilations (`recompile_limit`), a call that no compiled code fits runs in
    eager mode.

    Why it costs: each compilation takes seconds, in which the step stands still. A function that reached the limit runs
    without any of its fused kernels from then on, for the rest of the run.

    How to fix: the finding names the guard that failed. Keep what it checks fixed, or mark it as dynamic.

        torch._dynamo.mark_dynamic(tokens, 1)          # this dimension varies
        scale = torch.tensor(scale, device=x.device)   # a number that changes in each step

    When it is wrong: a few sizes that are all seen in the first steps cost nothing later. Raise
    `torch._dynamo.config.recompile_limit` if there are more than 8.

    Sources: PyTorch documentation, "torch.compile: dealing with recompilations" and "Dynamic shapes".
    """

    code = "LB009"
    name = "repeated-recompilation"
    title = "Stop recompiling the same function"
    family = "launch and dispatch"
    effort = "A few lines"
    confidence = "high"
    requires = ("compilation",)
    needs_trace = False

    min_recompilations: int = threshold(3, "fewest recompilations of one function for one guard to report")

    def check(self, facts: Facts) -> Findings:
        compilation = required(facts.compilation)
        repeated = [one for one in compilation.recompilations if one.count >= self.min_recompilations]
        given_up = list(compilation.fallbacks)
        if not repeated and not given_up:
            return
        evidence = [*map(_fallback_evidence, given_up), *map(guard_evidence, repeated)][:MOST_ROWS]
        yield self.finding(
            why=" ".join([*map(_gave_up, given_up[:1]), *map(_again, repeated[:1])]),
            fix=_fix(repeated, given_up),
            saving=None,
            evidence=evidence,
            locations=places(evidence),
            shares_cause_with=["LB004"],
        )

    def passed(self, facts: Facts) -> str:
        again = sum(one.count for one in required(facts.compilation).recompilations)
        if not again:
            return "torch.compile compiled each function once."
        return f"torch.compile recompiled {counted(again, 'time')}, and gave up on no function."


def _again(one: Recompiled) -> str:
    seconds = f", which took {one.total_ns / 1e9:.3g} s" if one.total_ns is not None else ""
    return (
        f"{one.function or 'A function'}() was compiled again {counted(one.count, 'time')} because the same guard "
        f"failed{seconds}: {one.guards[0].guard.rstrip('.')}."
    )


def _gave_up(one: Fallback) -> str:
    guard = f" The last guard that failed: {one.guard.guard.rstrip('.')}." if one.guard is not None else ""
    return (
        f"torch.compile gave up on {one.function or 'a function'}(), which runs in eager mode: {one.text.title}.{guard}"
    )


def _fallback_evidence(one: Fallback) -> Evidence:
    return Evidence(
        f"Runs in eager mode: {one.function or 'a function'}()",
        detail=one.text.title,
        location=to_location(one.cause),
    )


def _fix(repeated: list[Recompiled], given_up: list[Fallback]) -> Fix:
    if repeated:
        return fix_for(repeated[0].guards[0])
    guard = next((one.guard for one in given_up if one.guard is not None), None)
    if guard is not None:
        return fix_for(guard)
    hints = given_up[0].text.hints
    return Fix(hints[0] if hints else "Change the function so that Dynamo can compile it, or do not compile it.")
