"""How to launch less work: by what the code does already."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.result.edits import Compile
from traceopt.result.finding import Fix
from traceopt.result.words.message import CUDA_GRAPH, SERVING_ENGINES
from traceopt.rules.fixes.advice.batch_size import memory_is_full
from traceopt.rules.fixes.advice.compilation import compiled, engine_graphs, replayed

_BY_HAND = "Capture {} by hand (torch.cuda.graph, torch.cuda.make_graphed_callables)"
GRAPHS = Compile(arguments={"mode": '"reduce-overhead"'})
FEWER_ROUNDS = (
    "Run several rounds as one batch, and read their values together",
    Fix(
        "A line reads values between the launches of the step. If they decide what comes next, each round waits for "
        f"the one before, and neither torch.compile nor {CUDA_GRAPH}s help much: run several such rounds as one batch, "
        "and read their values together. If not, read them every N steps."
    ),
)


def decoding_fix(facts: Facts) -> tuple[str, Fix]:
    """Title and fix for a step that generates a token for each sequence."""
    if (engine := engine_graphs(facts)) is not None:
        return f"Use the engine's {CUDA_GRAPH}s for decoding", Fix(f"{engine}.")
    if not facts.device.compiles:
        return f"Use {CUDA_GRAPH}s for decoding, or an inference engine", Fix(
            f"{_BY_HAND.format('the decoding step')}."
        )
    return f"Use {CUDA_GRAPH}s for decoding, or an inference engine", Fix(
        f"Compile the decoding step with a static cache and {CUDA_GRAPH}s, or serve the model with {SERVING_ENGINES}.",
        edits=[Compile(arguments={"mode": '"reduce-overhead"', "fullgraph": "True"})],
        code='model.generation_config.cache_implementation = "static"\n'
        'model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)',
    )


def graph_fix(facts: Facts) -> tuple[str, Fix]:
    """Title and fix for steps that all launch the same kernels."""
    title = (
        f"Replay the forward and backward passes as {CUDA_GRAPH}s"
        if facts.trains
        else f"Replay the step as a {CUDA_GRAPH}"
    )
    if (engine := engine_graphs(facts)) is not None:
        return title, Fix(f"{engine}.")
    passes = "the forward and backward passes" if facts.trains else "the forward pass"
    if not facts.device.compiles:
        return title, Fix(f"{_BY_HAND.format(passes)}. A larger batch also gives each launch more work.")
    how = "Pass mode='reduce-overhead' to torch.compile" if compiled(facts) else f"Compile with {CUDA_GRAPH}s"
    whole = " A capture by hand can hold the whole step, with a capturable optimizer." if facts.trains else ""
    batch = "" if memory_is_full(facts) else " A larger batch also gives each launch more work."
    return title, Fix(f"{how}, or capture {passes}.{_without_breaks(facts)}{whole}{batch}", edits=[GRAPHS])


def fewer_launches_fix(facts: Facts) -> tuple[str | None, Fix]:
    """Title (None: the rule's) and fix. Code that is compiled, replayed or served already is not told to become so."""
    full = memory_is_full(facts)
    batch, or_batch = ("", "") if full else ("Raise the batch size if memory allows. ", "larger batch or ")
    if (graphs := replayed(facts)) is not None:
        text = f"{graphs} Capture what still runs outside them (see the evidence)"
        text += "." if full else ", or raise the batch size."
        return f"Reduce launch overhead outside the {CUDA_GRAPH}s", Fix(text)
    if (engine := engine_graphs(facts)) is not None:
        return f"Reduce launch overhead: the engine's {CUDA_GRAPH}s", Fix(
            f"{engine}. Larger batches of requests also help."
        )
    if compiled(facts):
        text = (
            f"The model is compiled already. {batch}The compiler can replay its kernels as {CUDA_GRAPH}s "
            f"(mode='reduce-overhead').{_without_breaks(facts)}"
        )
        return f"Reduce launch overhead: {or_batch}{CUDA_GRAPH}s", Fix(text, edits=[GRAPHS])
    if not facts.device.compiles:
        text = f"{batch}{_BY_HAND.format('what repeats')}."
        return f"Reduce launch overhead: {or_batch}{CUDA_GRAPH}s", Fix(text)
    text = (
        f"{batch}{'Use' if full else 'Otherwise use'} torch.compile, which fuses kernels and (with "
        f"mode='reduce-overhead') replays them as {CUDA_GRAPH}s."
    )
    return f"Reduce launch overhead: torch.compile or {CUDA_GRAPH}s" if full else None, Fix(text, edits=[GRAPHS])


def _without_breaks(facts: Facts) -> str:
    """What graphs need first if torch.compile had to break the step."""
    return f" Remove the graph breaks first (LB008): compiled {CUDA_GRAPH}s end at each." if facts.graph_breaks else ""
