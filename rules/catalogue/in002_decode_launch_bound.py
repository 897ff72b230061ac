"""IN002: token-by-token decoding is launch-bound."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    CUDA_GRAPH,
    SERVING_ENGINES,
    Evidence,
    Facts,
    Findings,
    Fix,
    RemoveHost,
    Rule,
    dispatch_area,
    dispatch_ns,
    each_step,
    launch_confidence,
    ms,
    per_step,
    percent,
    priced,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.compilation import engine_graphs, replayed
from traceopt.rules.savings.merged_gemms import place


class DecodeLaunchBound(Rule):
    """Measures how long the GPU waits for launches in inference whose matmuls have one or a few rows: a decoder that
    generates one token per sequence at a time.

    Why it costs: one token is microseconds of work for each kernel, and every token repeats the same hundreds of
    launches. The host limits the token rate.

    How to fix: capture the decoding step once, which needs a fixed-size KV cache. Or use an inference engine.

        model.generation_config.cache_implementation = "static"        # Hugging Face
        model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)

        vllm serve MODEL      # also: TGI, SGLang, TensorRT-LLM, llama.cpp

    Batching requests gives each launch more work. With the launches gone, reading the weights is the limit. Then 8-bit
    or 4-bit weights help.

    When it is wrong: the rule does not apply if graphs already launch most kernels. If it finds a serving engine, it
    names the engine's own switches; kernels that the engine cannot capture stay. Prompts (prefill) have many rows, and
    the rule does not cover them. LB001 prices the same idle time.

    Sources: PyTorch blog, "Accelerating Generative AI with PyTorch II: GPT, Fast" (2023); Hugging Face documentation,
    "LLM inference optimization".
    """

    code = "IN002"
    name = "decode-launch-bound"
    title = f"Use {CUDA_GRAPH}s for decoding, or an inference engine"
    family = "inference"
    effort = "A few lines, or another inference engine"
    requires = ("gpu", "whole", "launches", "shapes")

    min_share: float = threshold(0.20, "smallest GPU wait for launches, as a share of the step, to report")
    max_rows: int = threshold(16, "most rows of a matmul that count as token-by-token decoding")
    min_few_rows: float = threshold(0.80, "smallest share of matmuls with so few rows")
    min_products: int = threshold(20, "fewest matmuls per step that count as a decoder")
    removable: float = threshold(0.85, "share of the launch time that graphs remove, expected")

    def applies(self, facts: Facts) -> str | None:
        if facts.trains:
            return "This run trains."
        if (graphs := replayed(facts)) is not None:
            return graphs
        return None if len(facts.gemm_calls) else "No matmul of known shape in this trace."

    def check(self, facts: Facts) -> Findings:
        starved, few = dispatch_ns(facts), self._few(facts)
        products = len(facts.gemm_calls) / facts.steps.count
        if starved < self.min_share * facts.step_ns or few < self.min_few_rows or products < self.min_products:
            return
        location, dispatch = place(facts, 0), dispatch_area(facts)
        engine = engine_graphs(facts)
        yield self.finding(
            why=(
                f"{percent(few)} of the {products:,.0f} matmuls {per_step(facts)} have {self.max_rows} rows or fewer, "
                f"which is typical of decoding. The GPU waits {ms(starved)} of {each_step(facts)} for launches."
            ),
            saving=priced(
                facts,
                (0.5 * self.removable * starved, starved, starved),
                [RemoveHost(dispatch, self.removable)],
                f"Assumes launch time drops by {percent(self.removable)}; a graph takes one launch.",
                low=[RemoveHost(dispatch, 0.5 * self.removable)],
                high=[RemoveHost(dispatch)],
            ),
            confidence=launch_confidence(facts),
            evidence=[
                Evidence("Matmuls with few rows", calls_per_step=round(few * products, 3), location=location),
                Evidence("Kernels", calls_per_step=round(facts.repetition.kernels, 3)),
            ],
            locations=[location] if location else [],
            title=None if engine is None else f"Use the engine's {CUDA_GRAPH}s for decoding",
            fix=Fix(f"{engine}.")
            if engine is not None
            else Fix(
                f"Compile the decoding step with a static cache and {CUDA_GRAPH}s, or serve the model with "
                f"{SERVING_ENGINES}.",
                'model.generation_config.cache_implementation = "static"\n'
                'model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)',
            ),
            shares_cause_with=["LB001", "LB002"],
        )

    def _few(self, facts: Facts) -> float:
        """Share of the non-batched matmuls that have few rows."""
        sizes = facts.gemm_calls.sizes
        plain = sizes[sizes[:, 3] == 1]
        return float(np.mean(plain[:, 0] <= self.max_rows)) if len(plain) else 0.0

    def passed(self, facts: Facts) -> str:
        starved = percent(dispatch_ns(facts) / facts.step_ns)
        few = f"{percent(self._few(facts))} of the matmuls have few rows"
        return f"{few}; the GPU waits for launches for {starved} of {the_step(facts)}."
