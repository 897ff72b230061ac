"""DL010: batches are padded beyond their longest sample, and the model computes all of it."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.run_log.padding import Padding
from traceopt.rules import (
    I8,
    Change,
    Facts,
    Findings,
    Fix,
    Location,
    Price,
    RemoveHost,
    Risk,
    Rule,
    area_of,
    by_calling_site,
    each_step,
    ms,
    percent,
    places,
    priced,
    scaled,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.constructed import loader_places
from traceopt.rules.savings.work.backward_nodes import held_ns, node_ns

LOW = 0.6  # of the expected saving: small operators have a cost of their own, and lengths vary from batch to batch
MULTIPLE = 8  # of positions that a batch is rounded up to


class PaddingWaste(Rule):
    """Measures the operators that work on padded positions. `traceopt run` looks at a few batches: token ids, masks,
    labels and frames that end (or begin) with the same value in all samples, beyond the longest sample of the batch.

    Why it costs: the model computes a padded position like any other, and masks it afterwards. Attention even compares
    each position with each. If all texts are padded to 512 tokens and the longest of a batch has 60, most of the step
    is for nothing.

    How to fix: pad to the longest sample of the batch, in the function that joins the items.

        def collate(items):
            return pad_sequence([text for text, _ in items], batch_first=True), ...

    With a tokenizer of Hugging Face: `padding="longest"` and a `DataCollatorWithPadding`, instead of
    `padding="max_length"`. Data that is stored with padding can be cut: `ids = ids[:, : mask.sum(1).max()]`, or
    `ids[:, -mask.sum(1).max() :]` if the padding comes first, and the same for masks and labels. Cut on the CPU,
    because reading the length from the GPU waits for it. Batches of samples of similar length have even less
    padding.

    Shapes then change from batch to batch. With torch.compile, round the length up to a few sizes. If the model adds a
    table of positions, take as many rows of it as there are positions.

    When it is wrong: a model that reads padded positions, such as an average or a batch norm without a mask, gives
    other results. The rule is silent if a layer takes all positions of a sample as one vector, because its weights need
    the full length. Zeros at the end of all samples may be data.

    Sources: PyTorch documentation, "torch.nn.utils.rnn.pad_sequence"; Hugging Face documentation, "Dynamic padding".
    """

    code = "DL010"
    name = "padding-waste"
    title = "Pad batches only to their longest sample"
    family = "input pipeline"
    risk = Risk.NUMERICS
    risk_note = "Other results if the model reads padding"
    confidence = "medium"
    requires = ("work", "whole", "shapes")

    min_share: float = threshold(0.05, "smallest expected saving, as a share of the step, to report")
    min_padding: float = threshold(0.2, "smallest share of the positions beyond the longest sample")
    min_batches: int = threshold(2, "fewest batches that must have been looked at")

    def applies(self, facts: Facts) -> str | None:
        padding = next(iter(facts.captured.padding), None)
        if padding is None or padding.batches < self.min_batches:
            return "No batches with padding were seen."
        work = facts.padded_work
        return "A layer takes all positions of a sample as one vector." if work is not None and work.fixed else None

    def check(self, facts: Facts) -> Findings:
        padding, work = facts.captured.padding[0], facts.padded_work
        if work is None or not len(work.rows) or 1 - padding.used_share < self.min_padding:
            return
        price = _price(facts, padding)
        if price.est_ns < self.min_share * facts.step_ns:
            return
        evidence = site_evidence(
            facts, by_calling_site(facts, work.rows, held_ns(facts, work.rows)), "Operators on all positions", 4
        )
        compiled = facts.compilation is not None
        yield self.finding(
            why=(
                f"Batches are padded to {padding.size:,} positions. Of the {padding.batches} that were looked at, the "
                f"longest sample has {padding.longest:,.0f} on average, so {percent(1 - padding.used_share)} of the "
                f"positions are for nothing. Operators on them take {ms(_time_ns(facts, work.rows))} of "
                f"{each_step(facts)}."
            ),
            confidence="low" if compiled else None,
            saving=price,
            evidence=evidence,
            locations=[*_collate(padding), *loader_places(facts), *places(evidence)],
            fix=Fix(
                "Pad to the longest sample of the batch, in the function that joins the items (collate_fn). Cut masks "
                "and labels to the same length."
                + (" Round the length up to a few sizes, because each is compiled anew." if compiled else ""),
                "ids = pad_sequence(texts, batch_first=True, padding_value=pad)  # or cut what is stored with padding",
            ),
        )

    def passed(self, facts: Facts) -> str:
        padding, work = facts.captured.padding[0], facts.padded_work
        share = percent(_time_ns(facts, work.rows) / facts.step_ns if work is not None else 0.0)
        return (
            f"{percent(1 - padding.used_share)} of the positions are beyond the longest sample, and operators on them "
            f"take {share} of {the_step(facts)}."
        )


def _collate(padding: Padding) -> list[Location]:
    return [padding.collate.site] if padding.collate is not None else []


def _time_ns(facts: Facts, rows: I8) -> float:
    if facts.has_gpu:
        return float(node_ns(facts, rows).sum()) / facts.steps.count
    return facts.steps.mean_ns(area_of(facts, rows))


def _price(facts: Facts, padding: Padding) -> Price:
    left = min(1.0, -(-padding.longest // MULTIPLE) * MULTIPLE / padding.size)
    work = facts.padded_work
    parts = [(work.rows[work.power == power], 1 - left**power) for power in (1, 2)] if work is not None else []
    saved_ns = sum(share * _time_ns(facts, rows) for rows, share in parts)

    def changes(part: float) -> list[Change]:
        return [one for rows, share in parts for one in _shorter(facts, rows, part * share)]

    return priced(
        facts,
        (LOW * saved_ns, saved_ns, saved_ns),
        changes(1.0),
        f"Assumes that these operators work on {percent(left)} of the positions, attention on the square of that; at "
        f"least {percent(LOW)} of the gain.",
        low=changes(LOW),
        high=changes(1.0),
    )


def _shorter(facts: Facts, rows: I8, share: float) -> Sequence[Change]:
    if facts.has_gpu:
        return scaled(facts, facts.regions.work_under(facts.slices.mask(rows)), 1 - share)
    return [RemoveHost(area_of(facts, rows), share, faster=True)] if len(rows) else []
