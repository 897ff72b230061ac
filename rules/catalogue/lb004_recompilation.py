"""LB004: the model still compiles in steady-state steps."""

from __future__ import annotations

from traceopt.rules import Evidence, Facts, Fix, Recompiled
from traceopt.rules.bases.once_only_rule import SteadyRule
from traceopt.rules.fixes.advice.recompilation import fix_for, guard_evidence

MOST_GUARDS = 3


class Recompilation(SteadyRule):
    """Measures how long the GPU is idle while TorchDynamo, Inductor or Triton compile, in steps after the first. The
    names of the compiled regions tell how often each part of the model was compiled before. `traceopt run`, or a
    TORCH_TRACE log beside the trace, adds the guards that failed, with the line.

    Why it costs: a compilation takes seconds. It belongs in the first steps. It returns when something that the
    compiled code assumed to be fixed has changed: a shape, a Python number, the training flag, an attribute.

    How to fix: find the guard that failed, then mark what varies.

        TORCH_LOGS=recompiles python script.py               # says which guard failed
        torch._dynamo.mark_dynamic(tokens, 1)               # this dimension varies
        model = torch.compile(model, dynamic=True)

    If dynamic shapes are slower, pad lengths to a few sizes.

    When it is wrong: the first few steps of a run recompile until dynamic shapes are found, and a recording that starts
    too early shows them. If only one step compiles, the finding has no saving.

    Sources: PyTorch documentation, "torch.compile: dealing with recompilations" and "Dynamic shapes".
    """

    code = "LB004"
    name = "recompilation"
    title = "Avoid recompilation in steady-state steps"
    effort = "A few lines, once you know the reason"
    cause = "compile"
    does = "The model is recompiled"
    fix = Fix(
        "Find the guard that fails with TORCH_LOGS=recompiles. Mark what varies as dynamic, or pad it to a few sizes.",
        "TORCH_LOGS=recompiles python script.py\ntorch._dynamo.mark_dynamic(tokens, 1)",
    )

    def applies(self, facts: Facts) -> str | None:
        if not len(facts.host.rows_of("compile")) and not facts.regions.compiled:
            return "Nothing is compiled in this trace."
        return super().applies(facts)

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


def _in_steps(facts: Facts) -> list[Recompiled]:
    """Recompilations of code that the recorded steps run; all of them if the trace does not name compiled code."""
    if facts.compilation is None:
        return []
    frames = facts.regions.compiled.keys()
    return [one for one in facts.compilation.recompilations if not frames or not one.frames or frames & set(one.frames)]
