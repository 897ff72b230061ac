"""CM006: gradient accumulation reduces the gradients in every micro-step."""

from __future__ import annotations

from textwrap import indent

from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION
from traceopt.rules import (
    ANNOTATION,
    I8,
    OP,
    Changes,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveHost,
    Rule,
    area_of,
    by_site,
    each_step,
    hide_collectives,
    host_bounds,
    intersect,
    ms,
    priced,
    site_locations,
    subtract,
    threshold,
    typical_ns,
)
from traceopt.rules.fixes.advice.overlap import NO_SYNC

SHOWN_SHARE = 0.05  # of the exposed time: less host time is not mentioned
FORWARD = "DistributedDataParallel.forward"


class SyncEveryMicroStep(Rule):
    """Measures the exposed time of gradient reductions in all backward passes but the last before an optimizer step,
    and the host time of these reductions: launching them, copying gradients into buckets and back. A reduction counts
    only if the last pass reduces about as many bytes again.

    Why it costs: with gradient accumulation only the sum of the gradients matters. DistributedDataParallel reduces
    after every backward pass unless you turn that off, so N micro-steps send N times the bytes.

    How to fix: skip the reduction in all micro-steps but the last.

        for index, micro in enumerate(micros):
            last = index == len(micros) - 1
            with contextlib.nullcontext() if last else model.no_sync():
                (model(micro) / len(micros)).backward()
        optimizer.step()

    Accelerate does this with `accelerator.accumulate(model)`. The Hugging Face Trainer does it by itself.

    On a CPU the reductions run on cores that the model could use. How much they slow it down is unknown, so the range
    includes all of their time.

    When it is wrong: two networks that are trained alternately also have two backward passes. They count only if the
    same bytes are reduced twice before one update. `no_sync` keeps unreduced gradients in memory, which is expensive
    with FSDP.

    Sources: PyTorch documentation of DistributedDataParallel.no_sync.
    """

    code = "CM006"
    name = "sync-every-micro-step"
    title = "Reduce gradients in the last micro-step only"
    family = "communication"
    effort = Effort.ONE_LINE
    requires = ("work", "launches", "ops")

    min_share: float = threshold(
        0.01, "smallest exposed time of redundant reductions, as a share of the step, to report"
    )
    same_bytes: float = threshold(0.8, "smallest ratio of bytes in two passes that counts as the same gradients")

    def applies(self, facts: Facts) -> str | None:
        if not facts.regions.named(lambda name: name == FORWARD, ANNOTATION, OP).any():
            return "No DistributedDataParallel in this trace."
        if not facts.regions.optimizer.any():
            return "No Optimizer.step in this trace."
        return None

    def check(self, facts: Facts) -> Findings:
        found = facts.gradient_reductions
        redundant = found.repeated(self.same_bytes)
        passes, count = found.passes_per_update, facts.steps.count
        launch, exposed = found.launch[redundant], found.exposed[redundant]
        cost = typical_ns(facts, facts.slices.start[launch], exposed)
        if cost < self.min_share * facts.step_ns:
            return
        host = self._host_time(facts, found.repeated_calls(self.same_bytes))
        starved, host_ns, _ = host_bounds(facts, host, 1.0)
        beside = [] if facts.has_gpu else [self._beside_the_model(facts, found.rows[redundant], host)]
        beside_ns = sum(map(facts.steps.mean_ns, beside))
        expected = [*self._without(facts, found.rows[redundant], exposed), RemoveHost(host)]
        yield self.finding(
            why=(
                f"Gradients are reduced in each of {passes:.3g} backward passes per update. The reductions before the "
                f"last pass add {ms(cost)} of exposed communication to {each_step(facts)}."
                + (f" The host spends another {ms(host_ns)} on them." if host_ns >= SHOWN_SHARE * cost else "")
            ),
            saving=priced(
                facts,
                (0.6 * (cost + starved), 0.95 * (cost + host_ns), cost + host_ns + beside_ns),
                expected,
                "Assumes only the last micro-step reduces gradients: no exposed time of the other reductions, and no "
                "host time to launch them and to copy gradients into buckets and back."
                + (
                    f" At most also the {ms(beside_ns)} in which they run beside the model and share its cores."
                    if beside_ns
                    else ""
                ),
                high=[*expected, *map(RemoveHost, beside)],
            ),
            evidence=[
                Evidence(
                    "Reductions before the last micro-step",
                    us_per_step=round(float(exposed.sum()) / count / 1e3, 3),
                    calls_per_step=round(int(redundant.sum()) / count, 3),
                ),
                Evidence(
                    "All reductions", round(float(found.exposed.sum()) / count / 1e3, 3), round(len(found) / count, 3)
                ),
            ],
            locations=site_locations(by_site(facts, launch, exposed)),
            fix=Fix(
                "Wrap all micro-steps but the last in model.no_sync(): the forward pass, too.",
                edits=[NO_SYNC],
                code="with contextlib.nullcontext() if last else model.no_sync():\n" + indent(NO_SYNC.body, "    "),
            ),
            shares_cause_with=["CM001"],
        )

    def _host_time(self, facts: Facts, calls: I8) -> Intervals:
        """When the host serves these reductions. On a CPU-only run without the part that counts as exposed."""
        area = area_of(facts, calls)
        return area if facts.has_gpu else subtract(area, facts.cpu_phases.areas[COMMUNICATION])

    def _beside_the_model(self, facts: Facts, rows: I8, host: Intervals) -> Intervals:
        """When reductions of a CPU-only run overlap the model's work. How much they slow it down is unknown."""
        return subtract(intersect(area_of(facts, rows), facts.cpu_phases.model_work), host)

    def _without(self, facts: Facts, rows: I8, exposed: I8) -> Changes:
        """On a GPU the overlapped part goes too, because it may be exposed once other work is shorter."""
        return hide_collectives(facts, rows, facts.gpu.work.duration[rows] if facts.has_gpu else exposed)

    def passed(self, facts: Facts) -> str:
        return f"The number of backward passes per update is {facts.gradient_reductions.passes_per_update:.3g}."
