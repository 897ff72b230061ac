"""CM010: DDP looks for unused parameters in every iteration, and there are none."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveHost,
    Risk,
    Rule,
    SetArguments,
    area_of,
    by_calling_site,
    each_step,
    host_bounds,
    merge,
    ms,
    percent,
    places,
    priced,
    site_evidence,
    the_step,
    threshold,
)

EXPECTED = 0.95  # of the search


class SearchForUnusedParameters(Rule):
    """Measures the time in which DistributedDataParallel follows the autograd graph after each forward pass, if it was
    told to look for unused parameters (`find_unused_parameters=True`) and never found one in the run.

    Why it costs: DDP visits each node of the graph, and the backward pass waits for it. It also sends which parameters
    were used to all ranks, with a collective of its own in each iteration. In a CPU-only run, the wait for it after the
    backward pass counts; it takes far longer than the search. Without unused parameters all of that is for nothing.

    How to fix: leave the argument out.

        model = DistributedDataParallel(model, device_ids=[rank])

    If parameters are unused in some iterations, keep it. If they are the same in all iterations, `static_graph=True`
    looks for them only once.

    When it is wrong: a branch of the model that has not run yet, or only runs on another rank, may leave parameters
    without a gradient. DDP then raises an error in the next iteration, which names the argument. `traceopt run` reads
    from DDP whether the unused parameters were always the same, up to the end of the recording or of the run.

    Sources: PyTorch documentation of DistributedDataParallel, argument find_unused_parameters.
    """

    code = "CM010"
    name = "search-for-unused-parameters"
    title = "Stop searching for unused parameters"
    family = "communication"
    effort = Effort.ONE_LINE
    risk = Risk.CORRECTNESS
    risk_note = "An error if parameters are unused in a later iteration"
    confidence = "medium"
    requires = ("work", "whole", "ops", "settings")

    min_share: float = threshold(0.01, "smallest expected saving, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        searching = [wrapper for wrapper in facts.captured.ddp if wrapper.looks_for_unused]
        if not searching:
            return "DDP does not look for unused parameters, or that was not recorded."
        if any(wrapper.unused_bytes != 0 for wrapper in searching):
            return "DDP found unused parameters, or it is unknown."
        return None if len(facts.searches_for_unused) else "No search for unused parameters in this trace."

    def check(self, facts: Facts) -> Findings:
        rows = facts.searches_for_unused
        area = _area(facts)
        price = priced(
            facts,
            host_bounds(facts, area, EXPECTED),
            [RemoveHost(area, EXPECTED)],
            f"Assumes that {percent(EXPECTED)} of the search goes away, and of the wait after the backward pass until "
            "all ranks know the result.",
        )
        if price.est_ns < self.min_share * facts.step_ns:
            return
        cost_ns = facts.slices.duration_of(rows)
        evidence = site_evidence(facts, by_calling_site(facts, rows, cost_ns), "The search", 3)
        built = [
            wrapper.built.site
            for wrapper in facts.captured.ddp
            if wrapper.looks_for_unused and wrapper.built is not None
        ]
        yield self.finding(
            why=(
                "DDP looks for unused parameters after each forward pass, and found none in this run. That blocks the "
                f"host for {ms(facts.steps.host_mean_ns(area))} of {each_step(facts)}{_exchange(facts)}."
            ),
            saving=price,
            evidence=evidence,
            locations=[*built, *places(evidence)],
            fix=Fix(
                "Do not set find_unused_parameters. Keep it if parameters may be unused in some iterations, or on some "
                "ranks.",
                edits=[SetArguments("DistributedDataParallel", {"find_unused_parameters": "False"})],
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = facts.steps.host_mean_ns(_area(facts)) / facts.step_ns
        return f"The search for unused parameters takes {percent(share)} of {the_step(facts)}."


def _area(facts: Facts) -> Intervals:
    """The searches, and the waits for their result from the other ranks, as far as they are known."""
    return merge(area_of(facts, facts.searches_for_unused), facts.waits_for_used_parameters)


def _exchange(facts: Facts) -> str:
    waited_ns = facts.steps.host_mean_ns(facts.waits_for_used_parameters)
    return f", {ms(waited_ns)} of it until all ranks know the result" if waited_ns else ""
