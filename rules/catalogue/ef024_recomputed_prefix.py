"""EF024: a generation computes all tokens so far again for each new token."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.work.sizes.growing_prefix import GrowingPrefix
from traceopt.rules import (
    F8,
    Changes,
    Effort,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveHost,
    Risk,
    Rule,
    by_calling_site,
    each_step,
    ms,
    per_step,
    percent,
    priced,
    scaled,
    site_evidence,
    the_step,
    threshold,
    union,
)


class RecomputedPrefix(Rule):
    """Measures rounds of a generation in which the input of each layer is one token longer than in the round before, as
    the shapes of its operators show: the model computes the whole sequence again for each token.

    Why it costs: with causal attention, the keys and values of earlier tokens do not change. A sequence of n tokens
    computes n (n + 1) / 2 of them instead of n.

    How to fix: keep keys and values (a KV cache), and give the model only the new token.

        out = model(tokens[:, -1:], past_key_values=cache, use_cache=True)   # transformers: the default of generate()

        keys[:, :, n], values[:, :, n] = k, v                                # attention of your own
        F.scaled_dot_product_attention(q, keys[:, :, : n + 1], values[:, :, : n + 1])

    In an encoder-decoder model, the keys and values of the encoder's output are the same in all rounds, too.
    torch.compile does not help: each length is another shape.

    The saving: at least, each round takes as long as the shortest. At most, it computes one token in the time that
    one of its tokens takes now.

    When it is wrong: without a causal mask, earlier tokens depend on later ones. A model whose state is not attention
    has another state to keep.

    Sources: Pope et al., "Efficiently Scaling Transformer Inference" (2022); Hugging Face documentation, "Caching".
    """

    code = "EF024"
    name = "recomputed-prefix"
    title = "Keep the keys and values of earlier tokens"
    family = "efficiency"
    effort = Effort.REFACTORING
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("work", "whole", "ops", "shapes")

    min_share: float = threshold(0.05, "smallest saving, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        if not facts.infers:
            return "This run is not known to be inference."
        return None if facts.growing_prefix is not None else "No input grows by one token in each round."

    def check(self, facts: Facts) -> Findings:
        prefix = facts.growing_prefix
        if prefix is None:
            return
        took = _round_ns(facts, prefix)
        shortest = float(np.median(took[prefix.tokens == prefix.tokens.min()]))
        low = float(np.maximum(took - shortest, 0).sum()) / facts.steps.count
        high = max(low, float((took * (1 - 1 / prefix.tokens)).sum()) / facts.steps.count)
        expected, whole = (low + high) / 2, float(took.sum()) / facts.steps.count
        if expected < self.min_share * facts.step_ns:
            return
        sites = by_calling_site(facts, prefix.first, took.astype(np.int64))
        yield self.finding(
            why=(
                f"{len(prefix.first) / facts.steps.count:,.0f} rounds {per_step(facts)} compute all tokens so far "
                f"again, {prefix.tokens.min():,} to {prefix.tokens.max():,} of them, instead of the new one. They take "
                f"{ms(whole)} of {each_step(facts)}."
            ),
            saving=priced(
                facts,
                (low, expected, high),
                _shorter(facts, prefix, expected / whole),
                f"At least each round takes as long as the shortest ({percent(low / whole)} less), at most as long as "
                f"one of its tokens now ({percent(high / whole)} less).",
                low=_shorter(facts, prefix, low / whole),
                high=_shorter(facts, prefix, high / whole),
            ),
            evidence=site_evidence(facts, sites, "Rounds over all tokens"),
            fix=Fix(
                "With causal attention, keep the keys and values of earlier tokens, and give the model only the new "
                "token (use_cache=True of transformers).",
                "keys[:, :, n], values[:, :, n] = k, v  # of the new token, of shape (batch, heads, width)\n"
                "out = F.scaled_dot_product_attention(q, keys[:, :, : n + 1], values[:, :, : n + 1])",
            ),
            shares_cause_with=["LB002"],
        )

    def passed(self, facts: Facts) -> str:
        prefix = facts.growing_prefix
        share = 0.0 if prefix is None else float(_round_ns(facts, prefix).sum()) / facts.steps.window_ns
        return f"Rounds that compute earlier tokens again take {percent(share)} of {the_step(facts)}."


def _round_ns(facts: Facts, prefix: GrowingPrefix) -> F8:
    """What each round takes: of the device's work that it launches, or of the host in a CPU-only run."""
    return prefix.took_ns(facts.regions, on_gpu=facts.has_gpu)


def _shorter(facts: Facts, prefix: GrowingPrefix, share: float) -> Changes:
    """Rounds that take this share less time; on a GPU the host launches as much as before."""
    area = _area(facts, prefix)
    if not facts.has_gpu:
        return [RemoveHost(area, share)]
    launch = facts.links.launch_slice
    work = (launch >= 0) & area.contains(facts.slices.start[np.maximum(launch, 0)])
    return scaled(facts, work, 1 - share)


def _area(facts: Facts, prefix: GrowingPrefix) -> Intervals:
    return union(facts.slices.start[prefix.first], facts.slices.start[prefix.next])
