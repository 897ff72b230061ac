"""EF025: each round appends to a tensor with torch.cat, which copies all rows so far again."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.rules import (
    I8,
    Facts,
    Findings,
    Fix,
    Price,
    Rule,
    each_step,
    ms,
    named,
    percent,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import (
    node_evidence,
    nodes_per_step_ns,
    without_nodes,
    without_part_of,
)

LOW, EXPECTED = 0.5, 0.9  # of the time: one concatenation at the end copies each row once


class Growth(Struct, frozen=True):
    """What grows, and what to do instead."""

    what: str  # before ": up to 960 rows to add 64"
    fix: Fix
    title: str | None = None
    rows: str = "rows"


RESULT = Growth(
    "torch.cat appends to the result of the call before, and copies it again",
    Fix(
        "Append each part to a list, and concatenate once after the loop. If each round needs all rows so far, write "
        "them into a tensor that is large enough from the start.",
        "parts.append(features)      # not result = torch.cat([result, features])\n"
        "result = torch.cat(parts)   # once, after the loop",
    ),
)
CACHE = Growth(
    "torch.cat appends the keys or values of one token to a cache, and copies the whole cache again",
    Fix(
        "Allocate the cache once for the longest sequence, and write each token into it. transformers: "
        'generate(..., cache_implementation="static").',
        "keys[:, :, n] = k                       # keys = torch.empty(batch, heads, longest, width), once\n"
        "attention(q, keys[:, :, : n + 1], ...)  # the part that is filled",
    ),
    title="Allocate the cache of keys and values once",
    rows="tokens",
)


class GrowingResult(Rule):
    """Measures calls of `torch.cat` that append rows to the result of the call before, as the shapes show: the first
    tensor has as many rows as that call returned. Of tensors like the keys and values of a decoder, with four
    dimensions, it also measures calls that append one token.

    Why it costs: each call allocates a new tensor and copies all rows so far. For n rounds this is n (n + 1) / 2 copies
    of the rows of a round instead of n, so the loop gets slower with each round.

    How to fix: append to a list, and concatenate once after the loop.

        parts.append(features)                      # not result = torch.cat([result, features])
        result = torch.cat(parts)                   # after the loop

    If each round needs all rows so far, write them into a tensor that is large enough from the start, and use the part
    that is filled. A cache of keys and values is such a tensor.

        result[n : n + len(features)] = features
        model.generate(**inputs, cache_implementation="static")  # transformers

    When it is wrong: tensors that grow along another dimension, as in a dense block, or that have a backward pass, do
    not count. The shapes of inputs of several lengths may fit by chance. A cache that is allocated for the longest
    sequence takes its memory from the start.

    Sources: PyTorch documentation, "torch.cat"; Hugging Face documentation, "Cache strategies".
    """

    code = "EF025"
    name = "growing-result"
    title = "Append to a list and concatenate once"
    family = "efficiency"
    confidence = "medium"
    requires = ("whole", "ops", "shapes")

    min_share: float = threshold(0.03, "smallest time of these calls, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        if len(facts.growing_results) or len(facts.growing_caches):
            return None
        return "No tensor grows by concatenation."

    def check(self, facts: Facts) -> Findings:
        for growth, calls in ((RESULT, facts.growing_results), (CACHE, facts.growing_caches)):
            time_ns = nodes_per_step_ns(facts, calls.rows)
            if len(calls) == 0 or time_ns < self.min_share * facts.step_ns:
                continue
            yield self.finding(
                title=growth.title,
                why=(
                    f"{growth.what}: up to {int(calls.copied.max()):,} {growth.rows} to add "
                    f"{int(calls.added[calls.copied.argmax()]):,}. This takes {ms(time_ns)} of {each_step(facts)}, and "
                    "more with each round."
                ),
                saving=_price(facts, calls.rows),
                evidence=node_evidence(facts, calls.rows, named("aten::cat")),
                fix=growth.fix,
            )

    def passed(self, facts: Facts) -> str:
        rows = np.concatenate([facts.growing_results.rows, facts.growing_caches.rows])
        share = percent(nodes_per_step_ns(facts, rows) / facts.step_ns)
        return f"Copies of tensors that grow take {share} of {the_step(facts)}."


def _price(facts: Facts, rows: I8) -> Price:
    basis = f"Assumes the fix removes {percent(LOW)}, {percent(EXPECTED)} or 100% of these calls' time."
    if not facts.has_gpu:
        return without_nodes(facts, rows, LOW, EXPECTED, basis)
    return without_part_of(facts, rows, (LOW, EXPECTED, 1.0), basis)
