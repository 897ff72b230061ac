"""DL002: the GPU is idle while Python outside the DataLoader prepares the input."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING, INPUT_WORK
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    Risk,
    Rule,
    SiteCost,
    by_calling_site,
    by_site,
    each_step,
    frames_inside,
    ms,
    per_step,
    percent,
    places,
    priced_host,
    site_evidence,
    site_locations,
    the_step,
    threshold,
    typical_ns,
    union,
)
from traceopt.rules.fixes.advice.loading.loader_plans import plan_moved_work
from traceopt.rules.fixes.advice.loading.loader_workers import EXPECTED, WORST, Left, LoaderPlan

MOVED_LOW, MOVED = 0.7, 0.95  # of the wait: receiving the prepared batch takes the rest
RECEIVED_NS = 1_000_000  # but no longer than this, as expected, however long it takes to prepare
FEWER_KERNELS = "Prepare the input with fewer kernels"
IN_BATCHES = Fix(
    "If it prepares items one by one, run it on the tensor of the whole batch, so that a few kernels are left. "
    "Transforms of Kornia take a batch and draw random numbers for each item; those of torchvision draw them once for "
    "the batch.",
    "images = augment(images.to(device))  # (batch, channels, height, width), not one picture at a time",
)


class InputWorkOnMainThread(Rule):
    """Measures the time in which the GPU waits while the main thread decodes, tokenizes, resizes, collates or
    augments outside the DataLoader (or converts results back to images and text after the step).

    Why it costs: the thread that does this work also launches the model's kernels, so the GPU waits for it in every
    step, however many loader workers there are.

    How to fix: move the work into the dataset or the collate function, where worker processes run it ahead of the step.

        class Images(Dataset):
            def __getitem__(self, i):
                return processor(Image.open(self.paths[i]), return_tensors="pt")

        loader = DataLoader(Images(paths), num_workers=8)

    In inference without a DataLoader, prepare the next input and convert finished outputs in another thread or process
    while the GPU works. If the data does not change, prepare it once and store it. Resizing and normalizing also run
    well on the GPU.

    The saving assumes as many workers as the cores can run. On a CPU, they also slow the model down, as in DL001. At
    most, all of the wait goes away: prepared data that is stored needs no workers.

    When it is wrong: the rule recognizes the work by the names of frames (image processors, tokenizers, `preprocess`,
    `collate_fn`, decoders). It blames a function with such a name even if the function does something else. Work
    without a recognizable name counts as Python between launches.

    Sources: XProf documentation, input-pipeline analyzer, which draws the same line.
    """

    code = "DL002"
    name = "input-work-on-main-thread"
    title = "Move input preparation off the main thread"
    family = "input pipeline"
    effort = Effort.REFACTORING
    requires = ("stacks",)

    min_share: float = threshold(0.01, "smallest wait for input work, as a share of the step, to report")

    min_kernels: int = threshold(
        200, "kernels that the work launches per step: with as many, it may prepare items one by one on the GPU"
    )

    def check(self, facts: Facts) -> Findings:
        stall = facts.stalls.typical_ns(INPUT_WORK)
        if stall < self.min_share * facts.step_ns:
            return
        rows = facts.host.rows_of(INPUT_WORK)
        rows = rows[facts.slices.thread[rows] == facts.steps.thread]
        start, end = facts.slices.start[rows], facts.host.freed(rows)
        preparing_ns = typical_ns(facts, start, end - start)
        plan = plan_moved_work(facts, preparing_ns, facts.step_ns - stall)
        cost = facts.stalled_within(start, end)
        work, rows, cost = union(start[cost > 0], end[cost > 0]), rows[cost > 0], cost[cost > 0]
        sites = by_calling_site(facts, rows, cost)
        inside = frames_inside(facts, rows)
        who, on = ("The GPU waits", "for") if facts.has_gpu else ("The main thread spends", "on")
        worst, expected = plan.left(0.0, WORST), plan.left(0.0, EXPECTED)
        ahead, least_ns, alone = _ahead(facts, plan), 0.0, ""
        if ahead is not None:
            more_ns = preparing_ns - (facts.step_ns - stall)
            one = Left(min(stall, more_ns), f"one thread takes {ms(preparing_ns)} to prepare an input")
            worst, least_ns = max(worst, one, key=_left_ns), preparing_ns / ahead
            if ahead == 1:
                expected = max(expected, one, key=_left_ns)
            else:
                alone = f" If only one input is prepared at a time, {ms(one.ns)} remains."
        received = max(MOVED, 1 - RECEIVED_NS / stall)
        kernels = _kernels(facts, work)
        in_batches = kernels >= self.min_kernels
        low, share = (
            moved * max(0.0, 1 - left.ns / stall) for moved, left in ((MOVED_LOW, worst), (received, expected))
        )
        remains = f" {ms(expected.ns)} of it remains, because {expected.why}." if expected.ns else ""
        basis = (
            f"Assumes 70%, {percent(received)} or 100% of the wait goes away; receiving the prepared batch takes the "
            f"rest.{remains}{alone}"
        )
        if in_batches:  # how much of the work fewer kernels can do is unknown
            low, basis = 0.0, f"Assumes none, {percent(share)} or all of the wait goes away."
        yield self.finding(
            title=FEWER_KERNELS if in_batches else None,
            risk=Risk.CORRECTNESS if in_batches else None,
            risk_note="Each item of the batch still needs its own random numbers" if in_batches else None,
            why=f"{who} {ms(stall)} of {each_step(facts)} {on} input work outside the data loader."
            + (f" It launches {kernels:,.0f} kernels {per_step(facts)}." if in_batches else ""),
            saving=priced_host(facts, work, stall, (low, share, 1.0), basis, least_step_ns=least_ns)
            if share * stall >= self.min_share * facts.step_ns
            else None,
            evidence=[*_functions(facts, by_site(facts, rows, cost)), *inside],
            locations=[*places(inside, 1), *site_locations(sites)],
            fix=IN_BATCHES if in_batches else _fix(facts, plan),
        )

    def passed(self, facts: Facts) -> str:
        share = facts.stalls.typical_ns(INPUT_WORK) / facts.step_ns
        return f"Waiting for input work outside the data loader takes {percent(share)} of {the_step(facts)}."


def _kernels(facts: Facts, work: Intervals) -> float:
    """How many kernels the work launches per step."""
    launch = facts.links.launch_slice
    at = launch[facts.gpu.is_kernel & (launch >= 0)]
    return float(np.count_nonzero(work.contains(facts.slices.start[at]))) / facts.steps.count


def _reads_ahead(facts: Facts) -> bool:
    """Whether DataLoader workers can do the work: a serving program has no dataset that they could read ahead."""
    return facts.trains or len(facts.host.rows_of(DATA_LOADING)) > 0


def _ahead(facts: Facts, plan: LoaderPlan) -> int | None:
    """How many inputs threads or processes prepare at a time, so that one is ready for each step; None if DataLoader
    workers can do it.
    """
    if _reads_ahead(facts):
        return None
    return 1 if plan.wait_ns <= plan.rest_ns else max(1, plan.wanted or 1)


def _left_ns(left: Left) -> float:
    return left.ns


def _functions(facts: Facts, sites: list[SiteCost]) -> list[Evidence]:
    """For each line, the function that takes most of the time there, with its own calls."""
    out = []
    for site in sites[:5]:
        start, end = facts.slices.start[site.rows], facts.slices.end[site.rows]
        longest = facts.slices_by_name(site.rows, facts.stalled_within(start, end))[0]
        one = SiteCost(site.location, longest.total, len(longest.rows), longest.rows)
        out += site_evidence(facts, [one])
    return out


def _fix(facts: Facts, plan: LoaderPlan) -> Fix:
    if _reads_ahead(facts):
        loader = facts.captured.training_loader
        workers = max(plan.wanted or 0, (loader.num_workers or 0) if loader is not None else 0)
        return Fix(
            "Do this work in the dataset or the collate function, so that DataLoader workers run it ahead of the step. "
            "Or prepare the data once and store it.",
            f"loader = DataLoader(dataset, collate_fn=prepare, num_workers={workers}, persistent_workers=True)",
        )
    ahead = _ahead(facts, plan) or 1
    if ahead == 1:
        return Fix(
            "Prepare the next input, and convert finished outputs, in another thread or process while the GPU works. "
            "Resizing and normalizing can run on the GPU.",
            "with ThreadPoolExecutor() as pool:\n    following = pool.submit(processor, images[i + 1])",
        )
    return Fix(
        f"Prepare {ahead} inputs at a time in other processes while the GPU works, because one takes "
        f"{ms(plan.wait_ns)} and the step {ms(plan.rest_ns)} without it. Convert finished outputs there, too. "
        "Resizing and normalizing can run on the GPU.",
        f"with ProcessPoolExecutor({ahead}) as pool:\n"
        "    for inputs in pool.map(processor, images):  # prepared ahead\n"
        "        outputs = model(inputs)",
    )
