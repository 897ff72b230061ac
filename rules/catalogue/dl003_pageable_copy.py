"""DL003: input copies from pageable memory are exposed (no compute overlaps them)."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.vocabulary.architectures import pinned_gb_per_s
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.analyzer.work.copies import CopyCalls
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
    ms,
    named,
    per_second,
    per_step,
    percent,
    priced,
    site_evidence,
    site_locations,
    the_step,
    threshold,
    typical_ns,
    union,
)

UNKNOWN_GB_PER_S = 20.0  # from pinned memory, where the device does not say: between PCIe 3 and 4


class PageableCopy(Rule):
    """Measures copies from pageable host memory to the device during which the GPU computes nothing.

    Why it costs: the driver stages pageable memory through a pinned buffer, so the copy runs at a fraction of the
    link's bandwidth and blocks the calling thread most of the time. It cannot overlap the work that follows.

    How to fix: pin the batches and copy them without blocking. You need both: pinned memory alone still blocks the
    thread, and `non_blocking=True` alone still copies from pageable memory.

        loader = DataLoader(dataset, num_workers=8, pin_memory=True)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
            labels = labels.to("cuda", non_blocking=True)

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
        copy = next((c for c in facts.copies if c.kind == "HtoD pageable"), None)
        if copy is None:
            return
        work = facts.gpu.work.take(copy.rows)
        area = intersect(union(work.start, work.end), facts.gpu.exposed_copies)
        typical = facts.steps.mean_ns(area)
        launch = facts.links.launch_slice[copy.rows]
        known = launch >= 0
        waiting = facts.gaps.starved.within(facts.slices.start[launch[known]], facts.slices.end[launch[known]])
        blocked = typical_ns(facts, facts.slices.start[launch[known]], waiting)
        if typical + blocked < self.min_share * facts.step_ns:
            return
        rate = copy.gb_per_s
        in_trace = _pinned_in_trace(facts, copy)
        pinned = self.pinned_gb_per_s or in_trace or pinned_gb_per_s(facts.device.arch) or UNKNOWN_GB_PER_S
        source = "pinned copies of this trace" if pinned == in_trace else "pinned memory"
        faster = min(1.0, rate / pinned) if rate else 0.5
        sites = by_site(facts, launch[known], work.duration[known])
        copies = np.zeros(len(facts.gpu.work), bool)
        copies[copy.rows] = True
        copying = facts.links.op_slice[copy.rows]  # each of these operators ends with a sync
        asynchronous: Changes = [
            RemoveHost(area_of(facts, launch[known])),
            AsyncCopy(copies),
            DropSync(calls_in(facts, copying[copying >= 0])),
        ]
        size = f"{megabytes(copy.bytes / facts.steps.count)} {per_step(facts)}" if copy.bytes else "The input"
        at = f" at {per_second(rate, 'GB')}" if rate else ""
        yield self.finding(
            why=(
                f"{size} is copied from pageable memory{at}. In {each_step(facts)}, {ms(typical)} of copy "
                f"time is exposed, and the GPU waits another {ms(blocked)} for the blocked host."
            ),
            saving=priced(
                facts,
                (typical * (1 - faster) + 0.5 * blocked, typical + blocked, typical + blocked),
                [*asynchronous, ScaleWork(copies, faster)],
                f"From a copy at {per_second(pinned, 'GB')} ({source}) to a copy fully hidden by compute.",
                low=[ScaleWork(copies, faster)],
                high=[*asynchronous, ScaleWork(copies, faster), MoveToStream(copies)],
                without_replay_ns=typical * (1 - 0.5 * faster) + blocked,
            ),
            evidence=site_evidence(facts, sites, named("Memcpy HtoD (Pageable -> Device)")),
            locations=site_locations(sites),
            fix=_fix(facts),
        )

    def passed(self, facts: Facts) -> str:
        copy = next((c for c in facts.copies if c.kind == "HtoD pageable"), None)
        if copy is None:
            return "No copy comes from memory known to be pageable."
        share = copy.exposed_ns / facts.steps.window_ns
        return f"Exposed copies from pageable memory take {percent(share)} of {the_step(facts)}."


def _pinned_in_trace(facts: Facts, pageable: CopyCalls) -> float | None:
    """GB/s of pinned copies in this trace that are as large as a pageable one; None without any. Smaller copies mostly
    take the time to start one.
    """
    pinned = next((c for c in facts.copies if c.kind == "HtoD pinned"), None)
    if pinned is None or not pageable.bytes:
        return None
    work = facts.gpu.work.take(pinned.rows)
    large = work.bytes >= pageable.bytes / pageable.calls
    took_ns = int(work.duration[large].sum())
    return int(work.bytes[large].sum()) / took_ns if took_ns else None


def _fix(facts: Facts) -> Fix:
    if facts.trains or len(facts.host.rows_of(DATA_LOADING)):
        return Fix(
            "Pin the batches (pin_memory=True in the DataLoader) and copy them with non_blocking=True.",
            edits=[
                SetArguments("images.to", {"non_blocking": "True"}),
                SetArguments("DataLoader", {"pin_memory": "True"}),
            ],
        )
    return Fix(
        "Write inputs into pinned memory that you reuse, and copy them with non_blocking=True.",
        'host = torch.empty(shape, pin_memory=True)   # once\nimages = host.to("cuda", non_blocking=True)',
    )
