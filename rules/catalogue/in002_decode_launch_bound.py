"""IN002: token-by-token generation waits for launches."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.result.finding import Evidence, Fix
from traceopt.result.quantities import ms, percent
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.merged_gemms import place
from traceopt.rules.savings.pricing import priced
from traceopt.rules.savings.starvation import dispatch_area, dispatch_ns


class DecodeLaunchBound(Rule):
    """Measures the starvation for launches in inference whose products have a row or a few: a decoder that makes one
    token of each sequence at a time.

    Why it costs: one token is microseconds of work for each kernel, and the same hundreds of launches come again for
    every token. The host's pace sets the rate of tokens.

    How to fix: record the decoding step once, which needs a cache of fixed size; or leave generation to an engine.

        model.generation_config.cache_implementation = "static"        # Hugging Face
        model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)

        vllm serve MODEL      # also: TGI, SGLang, TensorRT-LLM, llama.cpp

    Batching requests makes each launch worth more. With the launches gone, reading the weights is the limit: then 8-bit
    or 4-bit weights help.

    When it is wrong: prompts (prefill) have many rows and are not meant. LB001 prices the same starvation.

    Sources: PyTorch blog, "Accelerating Generative AI with PyTorch II: GPT, Fast" (2023); Hugging Face documentation,
    "LLM inference optimization".
    """

    code: ClassVar[str] = "IN002"
    name: ClassVar[str] = "decode-launch-bound"
    title: ClassVar[str] = "Replay the decoding step as a graph, or use an engine"
    family: ClassVar[str] = "inference"
    effort: ClassVar[str] = "A few lines, or another program"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "whole", "launches", "shapes")

    min_share: float = threshold(0.20, "smallest starvation for launches, as a share of the median step, to report")
    max_rows: int = threshold(16, "most rows of a product that count as single tokens")
    min_few_rows: float = threshold(0.80, "share of the products that have so few rows")
    min_products: int = threshold(20, "products a step, fewer are no decoder")
    removable: float = threshold(0.85, "share of the starvation that graphs remove, expected")

    def applies(self, facts: Facts) -> str | None:
        if facts.trains:
            return "This run trains."
        return None if len(facts.gemm_calls) else "No matrix product of known shape in this trace."

    def check(self, facts: Facts) -> Findings:
        starved, few = dispatch_ns(facts), self._few(facts)
        products = len(facts.gemm_calls) / facts.steps.count
        if starved < self.min_share * facts.step_ns or few < self.min_few_rows or products < self.min_products:
            return
        location, dispatch = place(facts, 0), dispatch_area(facts)
        yield self.finding(
            why=(
                f"{few:.0%} of the {products:,.0f} products a step have {self.max_rows} rows or fewer, as a decoder's "
                f"have, and the GPU waits {ms(starved)} of each {ms(facts.step_ns)} step for launches."
            ),
            saving=priced(
                facts,
                (0.5 * self.removable * starved, self.removable * starved, starved),
                [RemoveHost(dispatch, self.removable)],
                f"The step without {self.removable:.0%} of the time of dispatch; a graph is one launch.",
                low=[RemoveHost(dispatch, 0.5 * self.removable)],
                high=[RemoveHost(dispatch)],
            ),
            evidence=[
                Evidence("Products of few rows", calls_per_step=round(few * products, 3), location=location),
                Evidence("Kernels", calls_per_step=round(facts.repetition.kernels, 3)),
            ],
            locations=[location] if location else [],
            fix=Fix(
                "Compile the decoding step with a static cache and CUDA graphs, or serve the model with vLLM, TGI, "
                "SGLang, TensorRT-LLM or llama.cpp.",
                'model.generation_config.cache_implementation = "static"\n'
                'model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)',
            ),
            shares_cause_with=["LB001", "LB002"],
        )

    def _few(self, facts: Facts) -> float:
        """Share of the plain products that have few rows."""
        sizes = facts.gemm_calls.sizes
        plain = sizes[sizes[:, 3] == 1]
        return float(np.mean(plain[:, 0] <= self.max_rows)) if len(plain) else 0.0

    def passed(self, facts: Facts) -> str:
        starved = percent(dispatch_ns(facts) / facts.step_ns)
        return f"{self._few(facts):.0%} of the products have few rows; launching starves the GPU for {starved}."
