"""DL003: input copies from pageable memory are exposed (no compute overlaps them)."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules import (
    AsyncCopy,
    Changes,
    DropSync,
    Effort,
    Facts,
    Findings,
    Fix,
    MoveToStream,
    RemoveHost,
    Risk,
    Rule,
    ScaleWork,
    SetArguments,
    area_of,
    by_site,
    calls_in,
    each_step,
    intersect,
    megabytes,
    merge,
    ms,
    named,
    per_second,
    per_step,
    percent,
    priced,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.pinned_copies import pageable_copies


class PageableCopy(Rule):
    """Measures copies from pageable host memory to the device during which the GPU computes nothing, and its waits
    between them.

    Why it costs: the driver stages pageable memory through a pinned buffer, so the copy runs at a fraction of the
    link's bandwidth and blocks the calling thread most of the time. It cannot overlap the work that follows.

    How to fix: pin the batches and copy them without blocking. You need both: pinned memory alone still blocks the
    thread, and `non_blocking=True` alone still copies from pageable memory.

        loader = DataLoader(dataset, num_workers=8, pin_memory=True)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
            labels = labels.to("cuda", non_blocking=True)

    If a step copies many small tensors, the GPU waits for the host between them. Pack them into one when the batch is
    collated, and split it on the GPU.

        boxes = torch.cat(boxes).pin_memory().to("cuda", non_blocking=True).split(counts)

    The saving takes the rate of pinned copies in the same trace, if some are as large. Otherwise it takes the device's
    link to the host, which a slow host does not reach.

    When it is wrong: HIP traces do not show whether host memory was pinned, so the rule stays silent there. A copy that
    happens once (weights moved to the device) does not affect the typical step.

    Sources: NVIDIA, "How to Optimize Data Transfers in CUDA C/C++"; PyTorch, "A guide on good usage of non_blocking and
    pin_memory".
    """

    code = "DL003"
    name = "pageable-copy"
    title = "Copy batches from pinned memory without blocking"
    family = "input pipeline"
    effort = Effort.ONE_LINE
    risk = Risk.MEMORY
    risk_note = "More locked memory"
    requires = ("gpu",)

    min_share: float = threshold(0.01, "smallest exposed copy time and wait, as a share of the step, to report")
    pinned_gb_per_s: float = threshold(0.0, "bandwidth to expect from pinned memory, in GB/s; 0: by trace or device")

    def applies(self, facts: Facts) -> str | None:
        if any(copy.kind.startswith("HtoD") for copy in facts.copies):
            return None
        return "Nothing is copied from the host to the device."

    def check(self, facts: Facts) -> Findings:
        copies = pageable_copies(facts, self.pinned_gb_per_s)
        if copies is None:
            return
        copy, typical, faster = copies.calls, copies.exposed_ns, copies.factor
        launch = facts.links.launch_slice[copy.rows]
        known = launch >= 0
        between = facts.gaps.between(copies.work, facts.gpu.work.start)
        calling = intersect(facts.gaps.starved, area_of(facts, launch[known]))
        blocked = facts.steps.mean_ns(merge(calling, between))
        small = facts.steps.mean_ns(between) > typical
        if typical + blocked < self.min_share * facts.step_ns:
            return
        sites = by_site(facts, launch[known], facts.gpu.work.duration[copy.rows][known])
        copying = facts.links.op_slice[copy.rows]  # each of these operators ends with a sync
        asynchronous: Changes = [
            RemoveHost(area_of(facts, launch[known])),
            AsyncCopy(copies.work),
            DropSync(calls_in(facts, copying[copying >= 0])),
        ]
        size = f"{megabytes(copy.bytes / facts.steps.count)} {per_step(facts)}" if copy.bytes else "The input"
        at = f" at {per_second(copy.gb_per_s, 'GB')}" if copy.gb_per_s else ""
        yield self.finding(
            title="Pack small input copies into one, from pinned memory without blocking" if small else None,
            effort=Effort.FEW_LINES if small else None,
            why=(
                f"{size} is copied from pageable memory{at}. In {each_step(facts)}, {ms(typical)} of copy "
                f"time is exposed, and the GPU waits another {ms(blocked)} for the blocked host."
            ),
            saving=priced(
                facts,
                (typical * (1 - faster) + 0.5 * blocked, typical + blocked, typical + blocked),
                [*asynchronous, ScaleWork(copies.work, faster)],
                f"From a copy at {per_second(copies.pinned_gb_per_s, 'GB')} ({copies.source}) to a copy fully hidden "
                "by compute.",
                low=[ScaleWork(copies.work, faster)],
                high=[*asynchronous, ScaleWork(copies.work, faster), MoveToStream(copies.work)],
                without_replay_ns=typical * (1 - 0.5 * faster) + blocked,
            ),
            evidence=site_evidence(facts, sites, named("Memcpy HtoD (Pageable -> Device)")),
            fix=_fix(facts, small=small),
        )

    def passed(self, facts: Facts) -> str:
        copy = next((c for c in facts.copies if c.kind == "HtoD pageable"), None)
        if copy is None:
            return "No copy comes from memory known to be pageable."
        share = copy.exposed_ns / facts.steps.window_ns
        return f"Exposed copies from pageable memory take {percent(share)} of {the_step(facts)}."


def _fix(facts: Facts, *, small: bool) -> Fix:
    pack = " Pack many small tensors into one (torch.cat) before, and split it on the GPU." if small else ""
    if facts.trains or len(facts.host.rows_of(DATA_LOADING)):
        return Fix(
            f"Pin the batches (pin_memory=True in the DataLoader) and copy them with non_blocking=True.{pack}",
            edits=[
                SetArguments("images.to", {"non_blocking": "True"}),
                SetArguments("DataLoader", {"pin_memory": "True"}),
            ],
        )
    return Fix(
        "Write inputs into pinned memory that you reuse, and copy them with non_blocking=True. Write the next input "
        f"when the copy of the last one is done.{pack}",
        "host, copied = torch.empty(shape, pin_memory=True), torch.cuda.Event()   # once\n"
        "copied.synchronize()   # the copy of the last input is done\nhost.copy_(batch)\n"
        'images = host.to("cuda", non_blocking=True)\ncopied.record()',
    )
