"""LG001: logging blocks the main thread while the GPU is idle."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.host_names import IMAGE_WRITER
from traceopt.analyzer.vocabulary.causes.table import LOGGING
from traceopt.rules import (
    PYTHON,
    CallEvery,
    Facts,
    Findings,
    Fix,
    RemoveHost,
    Risk,
    Rule,
    area_of,
    by_site,
    each_step,
    intersect,
    ms,
    percent,
    priced,
    site_evidence,
    the_step,
    threshold,
    union,
)

LINES = Fix(
    "Log every N steps, and write the output in a queue handler or the writer's own thread.",
    edits=[CallEvery("log", 50)],
    code='if step % 50 == 0:\n    logger.info("step %d loss %.4f", step, loss.item())',
)
LINES_WITHOUT_LOSS = Fix(LINES.text, 'if batch % 50 == 0:\n    logger.info("batch %d", batch)')
IMAGES = Fix(
    "Save images every N steps, or hand them to a thread that writes them.",
    edits=[CallEvery("image.save", 500, "path")],
)


class LoggingInStep(Rule):
    """Measures `print`, logging handlers, progress bars, writers (TensorBoard, W&B, MLflow, CSV, ...), and images and
    plots that are written to files, if they block the launching thread while the GPU is idle. LG002 counts syncs inside
    such calls.

    Why it costs: formatting, locks, files, sockets and terminals take milliseconds, encoding an image takes tens of
    milliseconds, and nothing is launched meanwhile.

    How to fix: log every N steps, or hand the record to another thread.

        if step % 50 == 0:
            logger.info("step %d loss %.4f", step, loss.item())

        from logging.handlers import QueueHandler, QueueListener   # handlers run in a thread of their own

    When it is wrong: images may be the result of the run, so that all are needed; then write them in another thread.
    Logging while the GPU is busy is free and not counted. If stacks are recorded, the profiler slows
    many small Python calls more than anything else.

    Sources: Python documentation, "Dealing with handlers that block".
    """

    code = "LG001"
    name = "logging-in-step"
    title = "Log every N steps, off the main thread"
    family = "logging"
    risk = Risk.LATER
    risk_note = "Fewer log lines"
    requires = ("stacks",)

    min_share: float = threshold(0.01, "smallest stall, as a share of the step, to report")

    def check(self, facts: Facts) -> Findings:
        stall = facts.stalls.typical_ns(LOGGING) - _sync_ns(facts)
        if stall < self.min_share * facts.step_ns:
            return
        rows = facts.host.rows_of(LOGGING)
        cost = facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
        sites = by_site(facts, rows[cost > 0], cost[cost > 0])
        images = facts.regions.named(IMAGE_WRITER, PYTHON)[rows]
        mostly_images = cost[images].sum() > cost.sum() / 2
        meanwhile = " while the GPU is idle" if facts.has_gpu else ""
        yield self.finding(
            title="Save images every N steps, off the main thread" if mostly_images else None,
            why=f"Logging blocks the main thread for {ms(stall)} of {each_step(facts)}{meanwhile}."
            + (" Most of it writes images or plots." if mostly_images else ""),
            saving=priced(
                facts,
                (0.8 * stall, stall, stall),
                [RemoveHost(area_of(facts, rows))],
                "Assumes logging every N steps, which leaves 1/N of the measured stall.",
            ),
            evidence=site_evidence(facts, sites),
            fix=IMAGES if mostly_images else LINES if facts.trains else LINES_WITHOUT_LOSS,
        )

    def passed(self, facts: Facts) -> str:
        share = max(0.0, facts.stalls.typical_ns(LOGGING) - _sync_ns(facts)) / facts.step_ns
        return f"Logging stalls take {percent(share)} of {the_step(facts)}."


def _sync_ns(facts: Facts) -> float:
    """GPU starvation during syncs inside logging calls, in the typical step."""
    if not facts.has_gpu:
        return 0.0
    rows = facts.host.rows_of(LOGGING)
    area = facts.slices.area_of(rows)
    syncs = facts.syncs
    inside = area.contains(syncs.start)
    calls = intersect(union(syncs.start[inside], syncs.end[inside]), facts.gaps.starved)
    return facts.steps.mean_ns(calls)
