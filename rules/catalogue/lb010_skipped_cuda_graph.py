"""LB010: compiled code that should run as CUDA graphs runs without, or is recorded again."""

from __future__ import annotations

from traceopt.rules import (
    CUDA_GRAPH,
    Evidence,
    Facts,
    Findings,
    Fix,
    GraphSkip,
    Rule,
    counted,
    required,
    threshold,
)

MOST_ROWS = 6
_FIXES = {
    "mutated inputs": Fix(
        "Do not change inputs of the compiled function in place, or mark them as static.",
        "torch._dynamo.mark_static_address(buffer)\nx = x + 1  # instead of x += 1 on an input",
    ),
    "cpu device": Fix("Keep all tensors of the compiled function on the GPU.", "index = index.to(x.device)"),
    "dynamic shape": Fix("Pad the inputs to a few fixed sizes.", "batch = pad(batch, to=sizes)"),
    "re-record": Fix(
        "Pass the same tensors in each call: copy new values into static input tensors.", "static_input.copy_(batch)"
    ),
}


class GraphSkipped(Rule):
    """Measures how many CUDA graphs Inductor skipped although they were asked for (`mode="reduce-overhead"`), with its
    reason and line, and how often it recorded a graph again for code that had one.

    Why it costs: code without a graph launches each kernel from the host, as before. Recording takes as long as several
    steps, and each recording keeps its own memory.

    How to fix: this depends on the reason.

        x = x + 1                                      # not x += 1 on an input: mutated inputs cannot be replayed
        index = index.to(x.device)                     # no CPU tensors in the compiled function
        torch.compiler.cudagraph_mark_step_begin()     # before each step, if outputs of the last one are kept

    When it is wrong: a skip in code that runs once, such as a warm-up, does not matter.

    Sources: PyTorch documentation, "CUDAGraph Trees".
    """

    code = "LB010"
    name = "skipped-cuda-graph"
    title = f"Let compiled code run as {CUDA_GRAPH}s"
    family = "launch and dispatch"
    confidence = "medium"
    requires = ("compilation",)
    needs_trace = False

    max_rerecordings: int = threshold(3, "most recordings of code that already had a graph")

    def check(self, facts: Facts) -> Findings:
        compilation = required(facts.compilation)
        again = compilation.graph_rerecordings or 0
        said = []
        if compilation.graph_skips:
            first = compilation.graph_skips[0]
            count = counted(sum(skip.count for skip in compilation.graph_skips), "compilation")
            said.append(f"Inductor skipped {CUDA_GRAPH}s for {count}: {first.reason}.")
        if again > self.max_rerecordings:
            said.append(
                f"Of {compilation.graph_recordings or again:,} recorded {CUDA_GRAPH}s, {again:,} repeat a recording of "
                "the same compiled code."
            )
        if not said:
            return
        yield self.finding(
            why=" ".join(said),
            fix=_fix(compilation.graph_skips),
            evidence=[
                Evidence(
                    f"No {CUDA_GRAPH}: {skip.reason}",
                    detail=counted(skip.count, "compilation"),
                    location=skip.site,
                )
                for skip in compilation.graph_skips[:MOST_ROWS]
            ],
        )

    def passed(self, facts: Facts) -> str:
        recorded = required(facts.compilation).graph_recordings
        return (
            f"{counted(recorded, CUDA_GRAPH)} recorded, none skipped." if recorded else f"No {CUDA_GRAPH} was skipped."
        )


def _fix(skips: tuple[GraphSkip, ...]) -> Fix:
    text = skips[0].reason.lower() if skips else "re-record"
    for mark, fix in _FIXES.items():
        if mark in text:
            return fix
    return Fix(
        f"Read torch.compile's messages about {CUDA_GRAPH}s.", "TORCH_LOGS=perf_hints,cudagraphs python script.py"
    )
