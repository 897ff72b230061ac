"""LB008: graph breaks split the compiled step into pieces."""

from __future__ import annotations

from traceopt.rules import (
    Compile,
    Evidence,
    Facts,
    Findings,
    Fix,
    GraphBreak,
    Price,
    RemoveHost,
    Rule,
    area_of,
    counted,
    host_bounds,
    priced,
    threshold,
)

MOST_ROWS = 8


class GraphBreakInStep(Rule):
    """Measures how long the host takes to enter compiled code again after each graph break, and lists the lines that
    break the graph with TorchDynamo's reason. Lines and reasons come from `traceopt run` or from a TORCH_TRACE log.
    Without them, lines come from the Python frames in which Dynamo resumes a function after a break.

    Why it costs: the code after a break is a graph of its own. Every call checks guards again and enters compiled code
    again, in the forward and the backward pass. Inductor cannot fuse kernels across a break, and CUDA graphs end there.

    How to fix: move what Dynamo cannot trace out of the compiled function, and make sure that it stays out.

        loss = train_step(model, batch)          # compiled; returns tensors only
        if step % 50 == 0:
            print(loss.item())                   # outside of the compiled function

        model = torch.compile(model, fullgraph=True)   # an error instead of a graph break

    For `.item()` in a computation, use `torch._dynamo.config.capture_scalar_outputs = True`. For a condition on a
    tensor, use `torch.where` or `torch.cond`.

    When it is wrong: the saving counts only the host time to enter the pieces. What fusion would save is not known, so
    a step that waits for the GPU shows none. A break around code that must stay in Python, such as a collective of a
    library, cannot be avoided.

    Sources: PyTorch documentation, "Working with graph breaks" and "Common graph breaks".
    """

    code = "LB008"
    name = "graph-break"
    title = "Avoid graph breaks in the compiled step"
    family = "launch and dispatch"
    requires = ("compilation",)
    needs_trace = False

    min_share: float = threshold(0.01, "smallest host time to enter the pieces, as a share of the step, to price")

    def needs(self, facts: Facts) -> tuple[str, ...]:
        return () if facts.graph_breaks else self.requires

    def check(self, facts: Facts) -> Findings:
        breaks = facts.graph_breaks
        if not breaks:
            return
        first = breaks[0]
        yield self.finding(
            why=f"{_what(breaks)} {_pieces(facts)}{_reason(first)}",
            fix=_fix(first),
            saving=self._saving(facts),
            evidence=[
                Evidence(f"Graph break: {one.text.title}", detail=_detail(one), location=one.site)
                for one in breaks[:MOST_ROWS]
            ],
            locations=[one.site for one in breaks[:3] if one.site is not None],
        )

    def _saving(self, facts: Facts) -> Price | None:
        """The host time to enter the pieces; None without a trace, or if it is too small to matter."""
        if not facts.has_trace:
            return None
        area = area_of(facts, facts.compiled_pieces.entries)
        bounds = host_bounds(facts, area, 1.0)
        if bounds[1] < self.min_share * facts.step_ns:
            return None
        basis = "Host time to enter the compiled code after the breaks. What fusion across them saves is not counted."
        return priced(facts, bounds, [RemoveHost(area)], basis)

    def passed(self, facts: Facts) -> str:
        if facts.compilation is not None and facts.compilation.breaks:
            return "The code that graph breaks split does not run in the recorded steps."
        return "torch.compile broke no graph."


def _detail(one: GraphBreak) -> str:
    seen = f"{counted(one.count, 'time')} in the run"
    return f"{seen}. {one.text.explanation}" if one.text.explanation is not None else seen


def _what(breaks: tuple[GraphBreak, ...]) -> str:
    return f"torch.compile breaks the graph at {counted(len(breaks), 'place')}."


def _pieces(facts: Facts) -> str:
    if not facts.has_trace or not facts.compiled_pieces.resumed_per_step:
        return ""
    pieces = facts.compiled_pieces
    return (
        f"Each step runs {pieces.per_step:.3g} pieces of compiled code, {pieces.resumed_per_step:.3g} of them only "
        "because of a break. "
    )


def _reason(first: GraphBreak) -> str:
    where = f" in {first.site.function}()" if first.site is not None and first.site.function != "?" else ""
    return f"The most frequent one{where}: {first.text.title.rstrip('.')}."


def _fix(first: GraphBreak) -> Fix:
    hints = [hint for hint in first.text.hints if "report an issue" not in hint]
    advice = f" PyTorch's hint: {hints[0]}" if hints else ""
    return Fix(
        f"Move the line out of the compiled function, or write it in a way that Dynamo can trace. While you look for "
        f"breaks, fullgraph=True makes each of them an error.{advice}",
        edits=[Compile(arguments={"fullgraph": "True"})],
        code="model = torch.compile(model, fullgraph=True)  # an error names each graph break",
    )
