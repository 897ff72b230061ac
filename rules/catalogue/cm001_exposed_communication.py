"""CM001: exposed (non-overlapped) communication."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.communication.serialized import SerializedKinds
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION
from traceopt.analyzer.vocabulary.kernels.kernel_names import is_nccl
from traceopt.rules import (
    Changes,
    Evidence,
    Facts,
    Finding,
    Findings,
    Fix,
    Price,
    RemoveHost,
    Rule,
    RunFacts,
    each_step,
    hide,
    location_of,
    megabytes,
    ms,
    named,
    per_second,
    percent,
    priced,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.overlap import overlap_fix

WORTH = 0.01  # of the step: if overlap can hide less, the finding has no saving
INFERENCE_FIX = Fix(
    "If each layer waits for its all-reduce (tensor parallelism), use fewer GPUs per replica, an all-reduce made for "
    "small messages (symmetric memory, an engine's custom all-reduce), or two batches that take turns. Start other "
    "collectives as soon as their input is ready."
)
SMALL_MESSAGES = "Use an all-reduce for small messages, or fewer tensor-parallel ranks"


class ExposedCommunication(Rule):
    """Measures exposed (non-overlapped) communication: the time in which collectives run and the GPU computes nothing.
    On a CPU-only run it is the time in which the main thread waits for communication. A collective that waits for a
    slower rank spins and counts as running.

    Why it costs: the GPU computes nothing in that time.

    How to fix, by the kind of collective that is exposed most:

    All-reduce of gradients: if they are reduced after the backward pass instead of during it, use larger or earlier
    buckets. With gradient accumulation, reduce once (CM006).

        ddp = DDP(model, bucket_cap_mb=100, gradient_as_bucket_view=True, static_graph=True)

    All-gather and reduce-scatter: FSDP hides them by prefetching. A communicator runs one collective at a time, so an
    all-gather waits for the reduce-scatter ahead of it. Give them separate process groups:

        layer.set_modules_to_forward_prefetch([next_layer])
        layer.set_modules_to_backward_prefetch([previous_layer])
        model.set_separate_reduce_scatter_group(True)    # FSDP2, PyTorch 2.13

    All-to-all: the exchange of embeddings overlaps the dense part if you launch it early and wait late. TorchRec also
    exchanges the inputs of the next batch during this one.

        work = dist.all_to_all_single(output, rows, async_op=True)
        dense = bottom_mlp(features)                     # does not need the exchange
        work.wait()

        pipeline = TrainPipelineSparseDist(model, optimizer, device)
        pipeline.progress(batches)

    If single calls are far too slow for their size, check the link and the other ranks first (CM003). Waits for other
    pipeline stages do not count (CM011).

    The saving: overlap hides communication behind compute, so it can hide at most the compute that no collective
    overlaps yet.

    In inference there is no backward pass to hide behind: with tensor parallelism each layer waits for its all-reduce.
    Use fewer GPUs per replica, or an all-reduce made for small messages. The title of the finding then says so.

    If single calls take many times as long as others of their kind and size, the exposed time that they cause is the
    wait for another rank and does not count (CM003).

    If the traces of all ranks are given and most of the exposed time is the wait for late ranks, the finding has no
    saving: CM004 prices it.

    When it is wrong: one rank's trace cannot tell a slow link from a late peer. A larger batch per GPU changes the
    balance more than any flag.

    Sources: Li et al., "PyTorch Distributed" (VLDB 2020); definitions of communication overlap in HTA; TorchRec
    documentation, train_pipeline; PyTorch documentation of FSDP2.
    """

    code = "CM001"
    name = "exposed-communication"
    title = "Overlap communication with compute"
    family = "communication"
    confidence = "medium"
    refutable = True

    min_share: float = threshold(0.03, "smallest exposed time, as a share of the step, to report")
    low: float = threshold(0.2, "share of the time that overlap could hide that it does hide, low")
    min_serialized: float = threshold(
        0.1, "smallest wait for another collective on the same communicator to name, as a share of the exposed time"
    )
    expected: float = threshold(0.7, "share of the time that overlap could hide that it does hide, expected")
    layer_calls: int = threshold(8, "fewest small all-reduces per step of inference that are those of its layers")
    late_share: float = threshold(
        0.5, "wait for late ranks, as a share of the exposed time, from which overlap is no fix; needs all ranks"
    )
    small_bytes: int = threshold(8 << 20, "largest median buffer of the all-reduces of layers, in bytes")

    def applies(self, facts: Facts) -> str | None:
        if facts.has_gpu:
            if len(facts.gpu.computing) > 1 and len(facts.data_parallel_calls):
                return "nn.DataParallel copies the model before each step, which nothing can overlap (CM008)."
            return None if len(facts.gpu.communication) else "No collectives in this trace."
        return None if len(facts.cpu_phases.communication) else "No collectives in this trace."

    def check(self, facts: Facts) -> Findings:
        overlap = facts.overlap
        exposed = float(overlap.exposed_ns.mean()) - facts.stage_waits.total_ns / facts.steps.count
        late_ns = min(exposed, facts.late_waits.step_ns)
        exposed -= late_ns
        if exposed < self.min_share * facts.step_ns:
            return
        room = float(overlap.free_compute_ns.mean())
        possible = min(exposed, float(overlap.possible_ns.mean()))
        serialized = self._serialized(facts)
        who = "Exposed communication takes" if facts.has_gpu else "The main thread waits for communication for"
        hidden = overlap.hidden_share
        yield self.finding(
            title=SMALL_MESSAGES if self._waits_in_layers(facts) and not serialized else None,
            why=(
                f"{who} {ms(exposed)} of {each_step(facts)}"
                + (f"; {percent(hidden)} of all communication time is overlapped." if hidden > 0.005 else ".")
                + (f" Another {ms(late_ns)} is the wait for another rank." if late_ns else "")
                + (
                    f" Overlap can hide at most {ms(room)} of it, because no more compute is left."
                    if room < exposed
                    else ""
                )
                + "".join(f" {_behind(facts, kinds)}." for kinds in serialized)
            ),
            saving=self._saving(facts, possible) if possible >= WORTH * facts.step_ns else None,
            evidence=[*self._evidence(facts), *(_wait(facts, kinds) for kinds in serialized)],
            fix=_fix(facts, serialized) if facts.trains or serialized else INFERENCE_FIX,
        )

    def in_view_of_ranks(self, finding: Finding, run: RunFacts) -> Finding:
        """Overlap cannot hide the wait for a late rank."""
        rank = finding.ranks[0] if finding.ranks else None
        share = run.late_share(rank)
        if share is None or share < self.late_share:
            return finding
        return replace(
            finding,
            impact="info",
            saving=None,
            why=finding.why + f" Rank {rank} waits for later ranks in {percent(share)} of it, so overlap hides little.",
        )

    def _saving(self, facts: Facts, possible: float) -> Price:
        return priced(
            facts,
            (self.low * possible, self.expected * possible, possible),
            _overlapped(facts, self.expected),
            f"Assumes compute hides {percent(self.low)}, {percent(self.expected)} or 100% of the exposed time, and at "
            "most the compute that no collective overlaps yet.",
            low=_overlapped(facts, self.low),
            high=_overlapped(facts, 1.0),
        )

    def _serialized(self, facts: Facts) -> list[SerializedKinds]:
        """Kinds of collectives that are exposed because they wait for another kind on their communicator."""
        least = self.min_serialized * float(facts.overlap.exposed_ns.sum())
        return [
            collective for collective in facts.serialized_collectives if collective.exposed_ns.sum() >= max(1, least)
        ]

    def _waits_in_layers(self, facts: Facts) -> bool:
        """Whether most communication is the small NCCL all-reduces of tensor-parallel layers, in inference."""
        calls = facts.collectives[0]
        if facts.trains or calls.name != "all_reduce" or calls.calls < self.layer_calls * facts.steps.count:
            return False
        name = facts.trace.names[int(facts.gpu.work.name[calls.rows[0]])] if facts.has_gpu else ""
        return is_nccl(name) and bool(np.median(calls.bytes) <= self.small_bytes)

    def _evidence(self, facts: Facts) -> list[Evidence]:
        count = facts.steps.count
        out = []
        for calls in facts.collectives[:5]:
            rate = calls.bus_gb_per_s()
            size = calls.known_bytes
            detail = f"{ms(float(calls.duration.sum()) / count)} in total"
            if size is not None:
                detail += f", {megabytes(size / count)}"
            if rate is not None:
                detail += f", {per_second(rate, 'GB')} bus bandwidth"
            out.append(
                Evidence(
                    what=named(calls.name),
                    us_per_step=round(float(calls.exposed.sum()) / count / 1e3, 3),
                    calls_per_step=round(calls.calls / count, 3),
                    detail=detail,
                    location=location_of(facts, int(calls.launch[calls.exposed.argmax()])),
                )
            )
        return out

    def passed(self, facts: Facts) -> str:
        exposed_ns = float(facts.overlap.exposed_ns.sum())
        return f"Exposed communication takes {percent(exposed_ns / facts.steps.window_ns)} of {the_step(facts)}."


def _behind(facts: Facts, kinds: SerializedKinds) -> str:
    """ "all_gather waits for reduce_scatter on the same communicator, which exposes 2.1 ms of it"."""
    exposed = float(kinds.exposed_ns.sum()) / facts.steps.count
    return f"{kinds.waiting} waits for {kinds.ahead} on the same communicator, which exposes {ms(exposed)} of it"


def _wait(facts: Facts, kinds: SerializedKinds) -> Evidence:
    count = facts.steps.count
    return Evidence(
        what=f"{kinds.waiting} behind {kinds.ahead} on one communicator",
        us_per_step=round(float(kinds.exposed_ns.sum()) / count / 1e3, 3),
        calls_per_step=round(len(kinds.rows) / count, 3),
        detail=f"{ms(float(kinds.waits_ns.sum()) / count)} between launch and start",
    )


def _fix(facts: Facts, serialized: list[SerializedKinds]) -> Fix:
    if any({kinds.waiting, kinds.ahead} == {"all_gather", "reduce_scatter"} for kinds in serialized):
        return Fix(
            "Give reduce-scatter its own process group, so that all-gather does not wait for it. FSDP2 does this with "
            "set_separate_reduce_scatter_group (PyTorch 2.13). Then start collectives earlier.",
            "model.set_separate_reduce_scatter_group(True)",
        )
    if serialized:
        one = serialized[0]
        return Fix(
            f"Give {one.ahead} and {one.waiting} separate process groups, so that they can run at the same time. Then "
            "start collectives earlier.",
            "group = dist.new_group(ranks)",
        )
    return overlap_fix(facts)


def _overlapped(facts: Facts, share: float) -> Changes:
    """Hides a share of what overlap could hide: of each collective's exposed time on a GPU, of the waits on a CPU."""
    overlap = facts.overlap
    if not facts.has_gpu:
        return [RemoveHost(facts.cpu_phases.areas[COMMUNICATION], share * overlap.possible_share)]
    rows = np.flatnonzero(facts.gpu.is_communication & facts.gpu.is_inside)
    work = facts.gpu.work
    exposed = facts.gpu.exposed_communication.within(work.start[rows], work.end_of(rows))
    exposed = exposed - facts.stage_waits.within(rows)
    exposed = exposed * (1 - facts.late_waits.exposed_ns.sum() / max(1, overlap.exposed_ns.sum()))
    return hide(facts, rows, share * overlap.possible_share * exposed)
