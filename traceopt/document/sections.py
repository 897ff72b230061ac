"""The measured sections of the result document: step, breakdown, GPU, sync, communication, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from traceopt.analyzer.arrays.intervals import intersect, merge, subtract
from traceopt.analyzer.arrays.percentiles import median, percentiles
from traceopt.analyzer.communication.experts import ExpertLoad
from traceopt.analyzer.communication.pipeline import PipelineStage
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.requirements import lacks
from traceopt.analyzer.tables.json_values import word
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.accelerator import Accelerator
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, COMPUTE, COPIES, DATA_LOADING, IDLE_CAUSES
from traceopt.document.timeline.step_series import step_series
from traceopt.result.sections.rank_rows import (
    Collective,
    CommunicationGroup,
    ExpertRow,
    GroupOverlapRow,
    PipelineRow,
    ProcessGpu,
)
from traceopt.result.sections.run import Device, PeakRate, Setting
from traceopt.result.sections.step import (
    Communication,
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
from traceopt.result.words.vendors import VENDORS
from traceopt.rules.bases.rank_rule import rank_name
from traceopt.rules.evidence import location_of, to_location

LOADER_WORKERS = "DataLoader workers"  # a setting
MOST_OVERLAPS = 200  # rows


def device(facts: Facts) -> Device:
    found = facts.device
    rates = peaks(found.accelerator) if found.accelerator else []
    used = len(facts.gpu.devices)
    return Device(found.vendor.key, found.name, found.count, found.memory_bytes, found.compute_capability, rates, used)


def peaks(accelerator: Accelerator) -> list[PeakRate]:
    """Every peak rate of the device that is known, with its source."""
    units: dict[str, Literal["TOP/s", "GB/s"]] = {"int8": "TOP/s", "hbm_gb_per_s": "GB/s", "link_gb_per_s": "GB/s"}
    names = {"hbm_gb_per_s": "memory", "link_gb_per_s": "link"}
    return [
        PeakRate(
            figure=names.get(figure, figure),
            rate=float(rate),
            unit=units.get(figure, "TFLOP/s"),
            source=accelerator.source_of(figure),
            verified=accelerator.is_verified(figure),
        )
        for figure, rate in accelerator.figures.items()
    ]


def gpu_runtime(facts: Facts) -> str | None:
    """The GPU runtime under PyTorch: "CUDA 12.4", "ROCm 6.4"."""
    versions = (vendor.runtime.version(facts.trace.meta.header) for vendor in VENDORS if vendor.runtime is not None)
    return next((version for version in versions if version is not None), None)


def settings(facts: Facts) -> list[Setting]:
    """The settings that `traceopt run` recorded, or the trace shows; GPU settings only in runs with a GPU."""
    environment = facts.captured.environment
    found: dict[str, object] = {
        "CPU cores": environment.cores,
        "threads per operator": environment.threads,
        LOADER_WORKERS: _workers(facts),
    }
    if facts.has_gpu:
        found |= {
            "TF32 for matmuls": environment.matmul_tf32,
            "TF32 for convolutions": environment.conv_tf32,
            "cudnn.benchmark": environment.cudnn_benchmark,
        }
    found |= {
        "deterministic algorithms": environment.deterministic,
        "anomaly detection": environment.anomaly_mode,
        "Python development mode": environment.python_debug,
        **environment.variables,
    }
    words = {True: "on", False: "off"}
    return [
        Setting(name, words[value] if isinstance(value, bool) else str(value))
        for name, value in found.items()
        if value is not None
    ]


def _workers(facts: Facts) -> int | str | None:
    """Of the training loader. Without a recorded number, the names of its waits tell whether it has any."""
    loader = facts.captured.training_loader
    if loader is not None:
        return loader.num_workers
    alone, helped = (
        bool(facts.regions.named(kind, ANNOTATION, OP).any())
        for kind in (op_names.is_single_process_dataloader, op_names.is_multiprocess_dataloader)
    )
    if alone and not helped:
        return 0
    return "some (number not recorded)" if helped and not alone else None


def step(facts: Facts) -> Step:
    steps, stretch = facts.recorded_steps, facts.captured.stretch
    duration = steps.duration
    p10, p90 = percentiles(duration, 10, 90)
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
            gpu=one.device,
            name=names.get(one.device),
            busy_share=share(facts.gpu.busy_by_device[one.device].total / window),
            compute_us_per_step=us(one.compute.total / count),
            communication_us_per_step=us(one.communication.total / count),
            copies_us_per_step=us(one.copies.total / count),
            waits_us_per_step=us(one.waiting.total / count),
            waits_for=one.waits_for,
            idle_us_per_step=us(one.idle.total / count),
            peak_memory_bytes=facts.peak_by_gpu.get(one.device),
        )
        for one in facts.device_times
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


def communication(facts: Facts) -> Communication:
    count = facts.steps.count
    if facts.has_gpu:
        total, exposed = facts.gpu.communication.total, facts.gpu.exposed_communication.total
    else:
        total, exposed = facts.cpu_phases.communication.total, facts.cpu_phases.total_ns(COMMUNICATION)
    if not total:
        return Communication(None, None, None, [])
    rows = []
    for calls in facts.collectives:
        bus_rate = calls.bus_gb_per_s()
        moved = calls.known_bytes
        spent = facts.gpu.step_ns[calls.rows] if facts.has_gpu else calls.duration
        rows.append(
            Collective(
                name=calls.name,
                calls_per_step=rate(calls.calls / count),
                us_per_step=us(spent.sum() / count),
                exposed_us_per_step=us(calls.exposed.sum() / count),
                bytes_per_step=None if moved is None else round(moved / count, 1),
                gb_per_s=None if bus_rate is None else rate(bus_rate),
                location=location_of(facts, int(calls.launch[calls.duration.argmax()])),
            )
        )
    return Communication(
        us_per_step=us(total / count),
        exposed_us_per_step=us(exposed / count),
        overlap_share=share(1 - exposed / total),
        collectives=rows,
        groups=_groups(facts),
        overlaps=_overlaps(facts),
        pipeline=[pipeline_row(facts.trace.meta.rank, stage)] if (stage := facts.pipeline_stage) is not None else [],
        experts=expert_rows([(facts.trace.meta.rank, load)] if (load := facts.expert_load) is not None else []),
    )


def _overlaps(facts: Facts) -> list[GroupOverlapRow]:
    called = {group.name: group.description or group.name for group in facts.process_groups}
    return [
        GroupOverlapRow(
            group=called[one.group.name],
            beside=called[one.beside] if one.is_group else one.beside,
            is_group=one.is_group,
            us_per_step=us(one.ns / facts.steps.count),
            share=share(one.ns / one.of_ns),
        )
        for one in facts.group_overlaps[:MOST_OVERLAPS]
    ]


def expert_rows(loads: Sequence[tuple[int | None, ExpertLoad]]) -> list[ExpertRow]:
    mean = sum(int(load.tokens.sum()) for _, load in loads) / max(1, len(loads))
    return [
        ExpertRow(
            rank=rank,
            passes=len(load.tokens),
            tokens_per_step=rate(load.tokens.sum()),
            of_mean=rate(load.tokens.sum() / max(1.0, mean)),
            hottest_pass=int(load.tokens.argmax()),
            compute_us_per_step=us(load.compute_ns.sum()),
            exchange_us_per_step=us(load.exchange_ns.sum()),
        )
        for rank, load in loads
    ]


def pipeline_row(rank: int | None, stage: PipelineStage) -> PipelineRow:
    least_ns = stage.least_ns()
    return PipelineRow(
        rank=rank,
        schedule=stage.schedule,
        stages=stage.size,
        micro_batches=stage.micro_batches,
        chunks=stage.chunks,
        compute_us_per_step=us(stage.compute_ns),
        bubble_us_per_step=us(stage.bubble_ns),
        bubble_share=share(stage.bubble_ns / max(1.0, stage.bubble_ns + stage.compute_ns)),
        least_share=share(least_ns / max(1.0, least_ns + stage.compute_ns)),
        doubling_saves_us=us(stage.doubling_saves_ns),
        interleaving_saves_us=us(stage.interleaving_saves_ns),
    )


def _groups(facts: Facts) -> list[CommunicationGroup]:
    count, link = facts.steps.count, facts.node_link
    rows = []
    for group in facts.process_groups:
        put_in, over_link = group.known_bytes, group.link_bytes
        ran_ns = sum(int(one.duration.sum()) for one in group.by_kind)
        bus_gb_per_s = over_link / ran_ns if over_link and ran_ns else None
        rows.append(
            CommunicationGroup(
                name=group.name,
                description=group.description,
                parallelism=group.parallelism,
                size=group.size or None,
                ranks=list(group.ranks),
                collectives=[one.kind for one in group.by_kind],
                calls_per_step=rate(len(group.rows) / count),
                us_per_step=us((facts.gpu.step_ns[group.rows].sum() if facts.has_gpu else ran_ns) / count),
                exposed_us_per_step=us(group.exposed_ns / count),
                beside_us_per_step=us(group.beside_ns / count),
                bytes_per_step=None if put_in is None else round(put_in / count, 1),
                algorithm_gb_per_s=rate(put_in / ran_ns) if put_in and ran_ns else None,
                gb_per_s=None if bus_gb_per_s is None else rate(bus_gb_per_s),
                link_share=None if not link or not bus_gb_per_s else share(bus_gb_per_s / link.gb_per_s),
            )
        )
    return rows


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
        idle_us = None if phase.idle_gpus is None else us(1e3 * phase_us * phase.idle_gpus / phase.gpus)
        names = [rank_name(run, index) for index in phase.ranks]
        place = to_location(phase.place)
        rows.append(RlPhaseRow(phase.name, us(1e3 * phase_us), share(phase.share), idle_us, place, phase.gpus, names))
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
