"""What is left to advise where the model is compiled, replayed by graphs, or served by an engine."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.result.edits import Compile, Edit
from traceopt.result.finding import Fix
from traceopt.result.words.message import percent
from traceopt.rules.savings.price import Priced

MOSTLY = 0.5  # of the kernels

# How each serving engine turns its CUDA graphs off; without that they are on.
_EAGER = {
    "vLLM": "Start vLLM without --enforce-eager, and capture the batch sizes you serve (cudagraph_capture_sizes)",
    "SGLang": "Start SGLang without --disable-cuda-graph, and capture the batch sizes you serve (--cuda-graph-max-bs)",
    "TensorRT-LLM": "Turn on TensorRT-LLM's CUDA graphs (cuda_graph_config), with the batch sizes you serve",
    "TGI": "Let TGI capture the batch sizes you serve (--cuda-graphs)",
}
# Each prepares the next step while the GPU runs this one, unless that is turned off.
_OVERLAP = {
    "vLLM": "Start vLLM with --async-scheduling (the default since 0.14)",
    "SGLang": "Start SGLang without --disable-overlap-schedule",
    "TensorRT-LLM": "Start TensorRT-LLM without disable_overlap_scheduler",
}
_FUSION = {
    "vLLM": "Let vLLM compile the model (without --enforce-eager; -O3), or use a model with its fused layers",
    "SGLang": "Start SGLang with --enable-torch-compile, or use a model with its fused layers",
}


def within_compiler_limits(one: Priced, facts: Facts) -> Priced:
    """The finding, without torch.compile where that ends in an error: in code that is differentiated twice, and on GPUs
    that are too old.
    """
    fix, refusal = one.finding.fix, _refusal(facts)
    edits: list[Edit] = [edit for edit in fix.edits if not isinstance(edit, Compile)]
    if len(edits) == len(fix.edits) or refusal is None:
        return one
    text = f"{fix.text} torch.compile cannot be used here: {refusal}."
    return replace(one, finding=replace(one.finding, fix=Fix(text, edits=edits))).without_saving()


def _refusal(facts: Facts) -> str | None:
    """Why torch.compile would end in an error; None if it would not."""
    if facts.differentiates_twice:
        return "it refuses code that is differentiated twice (create_graph=True)"
    if not facts.device.compiles:
        return f"it needs compute capability 7.0, which the {facts.device.label} has not"
    return None


def compiled(facts: Facts) -> bool:
    """Whether torch.compile made or launched most kernels."""
    return facts.compiled_share >= MOSTLY


def replayed(facts: Facts) -> str | None:
    """ "Graphs already launch 80% of the kernels.", if graphs launch most of them."""
    share = facts.repetition.replayed_share
    return f"Graphs already launch {percent(share)} of the kernels." if share > MOSTLY else None


def engine_graphs(facts: Facts) -> str | None:
    """How to turn on the CUDA graphs of the serving engine; None if there is no engine."""
    return _EAGER.get(facts.serving_engine or "")


def engine_overlap(facts: Facts) -> str | None:
    """How to let the engine schedule while the GPU works; None if there is no engine, or no way."""
    return _OVERLAP.get(facts.serving_engine or "")


def engine_fusion(facts: Facts) -> str | None:
    """How to fuse more kernels in the serving engine; None if there is no engine, or no way."""
    return _FUSION.get(facts.serving_engine or "")
