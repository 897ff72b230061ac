"""The measured sections of the result document: step, breakdown, GPU, sync, copies, memory, throughput, phases."""

from __future__ import annotations

from traceopt.analyzer.arrays.intervals import intersect, merge, subtract
from traceopt.analyzer.arrays.percentiles import median, percentiles
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.requirements import lacks
from traceopt.analyzer.tables.json_values import word
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, COMPUTE, COPIES, DATA_LOADING, IDLE_CAUSES
from traceopt.document.timeline.step_series import step_series
from traceopt.result.sections.rank_rows import ProcessGpu
from traceopt.result.sections.step import (
    MANY_STEPS,
    DataLoader,
    Efficiency,
    Gpu,
    Memory,
    RlPhaseRow,
    ServedRequests,
    Serving,
    ServingPhase,
    Step,
    Sync,
    TensorCores,
    Throughput,
)
from traceopt.result.sections.work_rows import BreakdownPart, Copy, IdleCause, MemoryPart, MemoryPoint
from traceopt.result.words.rounding import rate, share, us
from traceopt.rules.bases.rank_rule import rank_name
from traceopt.rules.evidence import location_of


def step(facts: Facts) -> Step:
    steps, stretch = facts.recorded_steps, facts.captured.stretch
    duration = steps.duration
    typical = duration[steps.typical_rows]
    p10, p90 = percentiles(typical, *((10, 90) if len(typical) >= MANY_STEPS else (0, 100)))
    return Step(
        source=steps.source,
        count=steps.count,
        skipped=len(set(facts.marks.names)) - steps.count,
        typical_us=us(facts.step_ns),
        typical_steps=steps.typical_rows.tolist(),
        median_us=us(median(duration)),
        p10_us=us(p10),
        p90_us=us(p90),
        per_step_us=[us(d) for d in duration],
        stretch=None if stretch is None else rate(stretch),
        recorded_us=us(facts.trace.meta.recorded_step_ns) if facts.trace.meta.recorded_step_ns else None,
        profiler_us=None if stretch is None or facts.has_gpu else us(facts.steps.host_mean_ns(facts.profiler_cost)),
        series=step_series(facts),
        mean_us=us(float(duration.mean())),
    )


def breakdown(facts: Facts) -> list[BreakdownPart]:
    """Exclusive parts that sum to the typical step, busy parts first. Parts that take no time are left out. None if the
    file lost the GPU's events: the rest of it would look like a CPU run.
    """
    if facts.quality.lost_all_gpu_events:
        return []
    window, count = facts.steps.window_ns, facts.steps.count
    raw_ns = _overlapping_ns(facts)
    parts = []
    for part, by_step in facts.parts_by_step.items():
        ns, raw = int(by_step.sum()), raw_ns.get(part)
        raw_us = None if raw is None else us(max(ns, raw) / count)
        parts.append(BreakdownPart(part.key, facts.label(part), part.busy, us(ns / count), share(ns / window), raw_us))
    return [part for part in parts if part.us_per_step > 0 or (part.raw_us_per_step or 0) > 0]


def _overlapping_ns(facts: Facts) -> dict[Cause, int]:
    """Time of each part with what overlaps parts before it, where that is known."""
    if not facts.has_gpu:
        phases = facts.cpu_phases
        return {phase: area.total for phase, area in phases.areas.items()} | {COMMUNICATION: phases.communication.total}
    gpu = facts.gpu
    work = {COMPUTE: gpu.compute.total, COMMUNICATION: gpu.communication.total, COPIES: gpu.copies.total}
    threads = {facts.steps.thread, *facts.gaps.thread.tolist()} - {-1}
    host = [facts.host_flow.of(thread) for thread in sorted(threads)]
    # Of the host's own step: the measured one may begin later, and end with the profiler's wait for the GPU.
    own_step = subtract(facts.steps.host_window, facts.earlier_work)
    waits = {cause: [areas[cause] for areas in host if cause in areas] for cause in IDLE_CAUSES}
    return work | {cause: intersect(merge(*areas), own_step).total for cause, areas in waits.items() if areas}


def gpu(facts: Facts) -> Gpu:
    if not facts.has_gpu:
        return Gpu(None, None, None, None, None, [])
    window = facts.steps.window_ns
    busy = facts.gpu.busy.total
    causes = [(cause, facts.idle.total_ns(cause)) for cause in IDLE_CAUSES]
    in_graphs, known = graph_shares(facts)
    return Gpu(
        window_us=us(window),
        busy_us=us(busy),
        busy_share=share(busy / window),
        compute_share=share(facts.gpu.compute.total / window),
        idle_share=share(1 - busy / window),
        idle_by_cause=[
            IdleCause(cause.key, facts.label(cause), us(ns / facts.steps.count), share(ns / window))
            for cause, ns in sorted(causes, key=lambda pair: -pair[1])
            if ns > 0
        ],
        graph_share=in_graphs,
        graph_known_share=known,
        devices=_devices(facts),
    )


def _devices(facts: Facts) -> list[ProcessGpu]:
    """Each GPU of a process that works on several."""
    count, window = facts.steps.count, facts.steps.window_ns
    names = {one.get("id"): word(one.get("name")) for one in facts.trace.meta.device_properties()}
    return [
        ProcessGpu(
            gpu=device.device,
            name=names.get(device.device),
            busy_share=share(facts.gpu.busy_by_device[device.device].total / window),
            compute_us_per_step=us(device.compute.total / count),
            communication_us_per_step=us(device.communication.total / count),
            copies_us_per_step=us(device.copies.total / count),
            waits_us_per_step=us(device.waiting.total / count),
            waits_for=device.waits_for,
            idle_us_per_step=us(device.idle.total / count),
            peak_memory_bytes=facts.peak_by_gpu.get(device.device),
        )
        for device in facts.device_times
    ]


def graph_shares(facts: Facts) -> tuple[float, float | None]:
    """The part of the GPU's work that graphs launch, and the part of that with known operators; None: no graphs."""
    time_ns, origins = facts.gpu.in_window, facts.graph_origins
    in_graphs = float(time_ns[origins.replayed].sum())
    known = float(time_ns[origins.known].sum())
    return share(in_graphs / max(1, time_ns.sum())), share(known / in_graphs) if in_graphs else None


def sync(facts: Facts) -> Sync:
    if not facts.has_gpu or lacks(facts, "launches"):
        return Sync(None, None, None)
    syncs, count = facts.syncs, facts.steps.count
    return Sync(rate(len(syncs) / count), us(syncs.wait.sum() / count), us(syncs.stall.sum() / count))


def dataloader(facts: Facts) -> DataLoader:
    loading = intersect(facts.host.of_thread(facts.steps.thread)[DATA_LOADING], facts.steps.host_window)
    if not loading.total:
        return DataLoader(None, None)
    count = facts.steps.count
    return DataLoader(us(loading.total / count), us(facts.stalls.total_ns(DATA_LOADING) / count))


def copies(facts: Facts) -> list[Copy]:
    count = facts.steps.count
    return [
        Copy(
            kind=c.kind,
            calls_per_step=rate(c.calls / count),
            us_per_step=us(c.duration_ns / count),
            exposed_us_per_step=us(c.exposed_ns / count),
            bytes_per_step=None if c.bytes is None else round(c.bytes / count, 1),
            gb_per_s=None if c.gb_per_s is None else rate(c.gb_per_s),
        )
        for c in (facts.copies if facts.has_gpu else [])
    ]


def tensor_cores(facts: Facts) -> TensorCores:
    use = facts.tensor_core_work
    total = use.kernel_ns
    if not facts.has_gpu or not total or not (facts.device.arch and facts.device.arch.has_tensor_cores):
        return TensorCores(None, None, None)
    return TensorCores(share(use.eligible_ns / total), share(use.used_ns / total), share(use.unknown_ns / total))


def efficiency(facts: Facts) -> Efficiency:
    """From the shapes of matmuls, convolutions and attention; None if they do not cover the step."""
    flops = facts.flops
    if not facts.has_gpu or not flops.known or facts.quality.sampled_share is not None:
        return Efficiency(None, None, None, None, None, None)
    peak, mfu, hfu = flops.peak_tflops, flops.mfu, flops.hfu
    accelerator, dtype = facts.device.accelerator, flops.dtype or ""
    return Efficiency(
        flops_per_step=flops.executed / facts.steps.count,
        achieved_tflops=round(flops.executed / facts.steps.window_ns / 1e3, 3),
        peak_tflops=None if peak is None else float(peak),
        peak_dtype=flops.dtype if peak else None,
        mfu=None if mfu is None else share(mfu),
        hfu=None if hfu is None else share(hfu),
        peak_source=accelerator.source_of(dtype) if peak and accelerator else None,
        peak_verified=accelerator.is_verified(dtype) if peak and accelerator else None,
    )


def throughput(facts: Facts) -> Throughput | None:
    found = facts.throughput
    if found is None:
        return None
    tokens, samples, reference, part = (
        None if value is None else round(value, 3)
        for value in (found.tokens_per_s, found.samples_per_s, found.reference_per_s, found.reference_share)
    )
    return Throughput(tokens, samples, reference, part)


def serving(facts: Facts) -> Serving | None:
    found = facts.serving
    if found is None:
        return None
    total = sum(phase.total_ns for phase in found.phases)
    phases = [
        ServingPhase(
            phase=phase.phase,
            count=phase.steps,
            step_us=us(phase.step_ns),
            time_share=share(phase.total_ns / total),
            tokens_per_step=phase.tokens_per_step,
            tokens_per_s=None if phase.tokens_per_s is None else rate(phase.tokens_per_s),
        )
        for phase in found.phases
    ]
    times = found.times
    requests = ServedRequests(
        first_token_us=_known_us(times.first_token_ns),
        between_tokens_us=_known_us(times.between_tokens_ns),
        longest_between_tokens_us=_known_us(times.longest_between_tokens_ns),
        prompts_between_share=None if times.prompts_between_share is None else share(times.prompts_between_share),
        requests_per_step=rate(times.requests),
        most_requests=times.most_requests,
        idle_between_passes_share=None if times.idle_share is None else share(times.idle_share),
        queue_gaps=times.waits,
        queue_gap_share=share(times.waits_share),
    )
    return Serving(found.engine, phases, requests)


def _known_us(ns: float | None) -> float | None:
    return None if ns is None else us(ns)


def rl_phases(facts: Facts) -> list[RlPhaseRow]:
    count = facts.steps.count
    return [
        RlPhaseRow(
            name=phase.name,
            us_per_step=us(phase.total_ns / count),
            share=share(phase.total_ns / facts.steps.window_ns),
            idle_us_per_step=None if phase.idle_ns is None else us(phase.idle_ns / count),
            location=location_of(facts, phase.slice),
        )
        for phase in facts.rl_phases
    ]


def phases_of_run(run: RunFacts, step_us: float | None) -> list[RlPhaseRow]:
    """The phases of processes with different tasks, in terms of a step of this length; empty for other runs."""
    if step_us is None:
        return []
    rows = []
    for phase in run.phases:
        phase_us = phase.share * step_us
        rows.append(
            RlPhaseRow(
                name=phase.name,
                us_per_step=us(1e3 * phase_us),
                share=share(phase.share),
                idle_us_per_step=None if phase.idle_gpus is None else us(1e3 * phase_us * phase.idle_gpus / phase.gpus),
                location=phase.place,
                gpus=phase.gpus,
                processes=[rank_name(run, index) for index in phase.ranks],
            )
        )
    return rows


def memory(facts: Facts) -> Memory:
    capacity = facts.device.memory_bytes if facts.has_gpu else None
    found = facts.memory
    if found is None or facts.quality.lost_all_gpu_events:
        return Memory(None, None, capacity, [], [])
    steps, index = facts.steps, facts.steps.example
    start = int(steps.host_start[index])
    time, allocated, reserved = found.curve(start, int(steps.host_end[index]))
    curve = [
        MemoryPoint(us(t - start), int(a), int(r) if r > 0 else None)
        for t, a, r in zip(time, allocated, reserved, strict=True)
    ]
    parts = facts.composition.bytes if facts.composition else {}
    composition = [MemoryPart(name, size) for name, size in parts.items()]
    length = us(int(steps.host_end[index]) - start)
    return Memory(found.peak_allocated, found.peak_reserved, capacity, composition, curve, length)
