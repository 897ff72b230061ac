"""CV004: cudnn.benchmark is on, and cuDNN searches for the fastest algorithm again and again."""

from __future__ import annotations

from traceopt.analyzer.work.convolutions import Searches
from traceopt.rules import (
    CUDNN,
    I8,
    DropSync,
    Effort,
    Facts,
    Findings,
    Fix,
    Price,
    RemoveHost,
    RemoveLaunches,
    Risk,
    Rule,
    SetAttribute,
    area_of,
    by_site,
    calls_in,
    ms,
    percent,
    priced,
    site_evidence,
    the_step,
    threshold,
)

LOW = 0.7  # of the time of the searches: without them, an algorithm may be slower than the one that they find
HOST = 0.9  # of the host's time in a search; the call itself stays


class CudnnSearch(Rule):
    """Measures the convolutions in which cuDNN (MIOpen on AMD) runs several algorithms and waits for each, in other
    steps than the first.

    Why it costs: with `torch.backends.cudnn.benchmark = True`, PyTorch times the algorithms for each shape of a
    convolution that it has not seen, forward and backward. It also empties the memory cache. That pays off once, for
    shapes that come back. Where pictures or sequences have other sizes in each step, it is done again in each step.

    How to fix: switch it off, so that cuDNN chooses by heuristics.

        torch.backends.cudnn.benchmark = False

    Or give it few shapes: pad or crop batches to a few sizes, and put pictures of similar size into a batch
    (`drop_last=True` for a smaller last batch). Then leave it on.

    When it is wrong: the recording covers the first steps of a run, in which the shapes are new only once. With the
    search off, an algorithm may be slower than the one that it finds. The low end of the saving allows for that.

    Sources: PyTorch documentation of torch.backends.cudnn.benchmark; PyTorch performance tuning guide, "Enable cuDNN
    auto-tuner"; PyTorch issue 2759 ("Variable input size training is slow").
    """

    code = "CV004"
    name = "cudnn-search"
    title = "Turn off cudnn.benchmark, or use few shapes"
    family = "convolution"
    effort = Effort.ONE_LINE
    risk = Risk.ROUNDING
    risk_note = "Last bits may differ"
    confidence = "medium"
    requires = ("gpu", "ops", "launches")

    min_share: float = threshold(0.03, "smallest time of the searches, as a share of all recorded steps, to report")
    min_steps: int = threshold(2, "fewest steps with a search, without the first recorded one")

    def applies(self, facts: Facts) -> str | None:
        if not facts.gpu.kind.among("conv").any():
            return "No convolutions in this trace."
        off = facts.captured.environment.cudnn_benchmark is False
        return "torch.backends.cudnn.benchmark is off." if off else None

    def check(self, facts: Facts) -> Findings:
        searches, steps = _later_searches(facts), facts.recorded_steps
        duration, hit = _duration(facts, searches), searches.steps
        spent_ns = float(duration.sum())
        if hit < self.min_steps or spent_ns < self.min_share * steps.window_ns:
            return
        sites = by_site(facts, searches.rows, duration)
        yield self.finding(
            why=(
                f"{CUDNN} searches for the fastest algorithm of a convolution in {hit} of {steps.count} steps, "
                f"{len(searches) / hit:,.0f} times in each. A search runs several algorithms and waits for each, "
                f"which takes {ms(spent_ns / hit)} of such a step. New shapes cause it, with "
                "torch.backends.cudnn.benchmark = True."
            ),
            saving=_price(facts, searches.within(steps.typical_rows)),
            evidence=site_evidence(facts, sites),
            fix=Fix(
                "Switch the search off where shapes vary. Or pad the inputs to a few sizes, and leave it on.",
                edits=[SetAttribute("torch.backends.cudnn.benchmark", "False")],
            ),
            confidence="high" if facts.captured.environment.cudnn_benchmark else None,
            shares_cause_with=["EF002", "MM003"],
        )

    def passed(self, facts: Facts) -> str:
        share = percent(float(_duration(facts, _later_searches(facts)).sum()) / facts.recorded_steps.window_ns)
        return f"Searches for algorithms take {share} of {the_step(facts)}."


def _later_searches(facts: Facts) -> Searches:
    """The searches in recorded steps other than the first."""
    return facts.cudnn_searches.take(facts.cudnn_searches.step > 0)


def _duration(facts: Facts, searches: Searches) -> I8:
    return facts.slices.end[searches.rows] - facts.slices.start[searches.rows]


def _price(facts: Facts, searches: Searches) -> Price | None:
    """What is gone from the typical steps; None if these have no search."""
    if not len(searches):
        return None
    rows = searches.rows
    gone_ns = float(_duration(facts, searches).sum()) / facts.steps.count
    removed = RemoveLaunches(searches.trials(facts.regions), HOST)
    return priced(
        facts,
        (LOW * gone_ns, gone_ns, gone_ns),
        [RemoveHost(area_of(facts, rows), HOST), DropSync(calls_in(facts, rows)), removed],
        "Assumes that each convolution runs once, with the algorithm that was found. The low end leaves 30%.",
    )
