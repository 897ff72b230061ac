"""The tables of the result document: kernels, operators, CPU operators, GEMMs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import distinct, group_rows, longest_of_group, split
from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.cpu import CpuPeaks
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.timeline.steps import MIN_COMPARED, Steps
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.analyzer.vocabulary.kernels.kernel_names import KernelClass, classify
from traceopt.document.tables.kernel_rates import KernelRates, roof_point
from traceopt.result.sections.step import Cpu, CpuRate
from traceopt.result.sections.work_rows import CounterRangeRow, CpuOperator, Gemm, Kernel, Op
from traceopt.result.words.rounding import rate, rounded, share, us
from traceopt.rules.evidence import locations_of, operator_of_work, places_of_work

MAX_ROWS = 200
BLOCK_ROWS = 1 << 16
ADDED_UP = ".sum"  # ending of CUPTI's metrics that are counts of a kernel


def kernels(facts: Facts) -> list[Kernel]:
    """The GPU work in the window by name, longest first; at most MAX_ROWS names."""
    gpu, count = facts.gpu, facts.steps.count
    if not facts.has_gpu:
        return []
    inside = np.flatnonzero(gpu.is_inside)
    codes, group = distinct(gpu.work.name[inside])
    total = np.bincount(group, weights=gpu.in_window[inside])
    calls = np.bincount(group)
    longest = longest_of_group(gpu.in_window[inside], group, len(codes))
    busy = gpu.busy_ns
    shown = np.argsort(-total, kind="stable")[:MAX_ROWS]
    rows = inside[longest[shown]]
    places = places_of_work(facts, rows)
    rates, of_name = KernelRates(facts), split(inside, group, len(codes))
    step_of = facts.steps.step_of(gpu.work.start)
    out = []
    for index, row, place in zip(shown, rows.tolist(), places, strict=True):
        calls_of_name = of_name[index]
        reached = rates.of(calls_of_name)
        name = facts.trace.names[codes[index]]
        kind: KernelClass = classify(name)
        op, via = operator_of_work(facts, row)
        launched = facts.kernel_launches.of(calls_of_name)
        of_steps = _of_steps(facts.steps, step_of[calls_of_name], gpu.in_window[calls_of_name])
        out.append(
            Kernel(
                name=name,
                kind=gpu.kind.at(row),
                calls_per_step=rate(calls[index] / count),
                us_per_step=us(total[index] / count),
                mean_us=us(total[index] / calls[index]),
                share=share(total[index] / busy),
                tensor_core=kind.tensor_core if kind.eligible else None,
                op=op,
                location=place,
                via_graph=via,
                tflops=rounded(reached.tflops),
                gb_per_s=rounded(reached.gb_per_s),
                peak_share=rounded(reached.peak_share),
                label=short_name(name),
                limit=reached.limit,
                bound=reached.bound,
                dram_share=rounded(reached.dram_share),
                tensor_share=rounded(reached.tensor_share),
                median_us_per_step=None if of_steps is None else us(median(of_steps)),
                blocks_per_call=None if launched.blocks is None else round(launched.blocks, 3),
                threads_per_block=launched.threads,
                registers_per_thread=launched.registers,
                shared_bytes_per_block=launched.shared_bytes,
                occupancy=rounded(launched.occupancy),
                streams=", ".join(map(str, launched.streams)),
                queued_us=None if launched.queued_ns is None else us(launched.queued_ns),
                shortest_us=us(launched.shortest_ns),
                median_us=us(launched.median_ns),
                longest_us=us(launched.longest_ns),
                least_us_per_step=None if of_steps is None else us(of_steps.min()),
                most_us_per_step=None if of_steps is None else us(of_steps.max()),
            )
        )
    return out


def _of_steps(steps: Steps, step: I8, duration: I8) -> I8 | None:
    """The time of some work in each step, ns; one odd step does not change its median. None: too few steps."""
    return steps.per_step(step, duration) if steps.count >= MIN_COMPARED else None


def ops(facts: Facts) -> list[Op]:
    """The operators in the window by name, sorted by GPU time, or without a GPU by CPU self time; at most MAX_ROWS."""
    slices, steps = facts.slices, facts.steps
    names = len(facts.trace.names)
    calls, cpu_ns, own_ns = _operators(slices, steps.host_window, names)
    if not calls.any():
        return []
    gpu_ns: npt.NDArray[Any] = np.zeros(names)
    launches = np.zeros(names, np.int64)
    if facts.has_gpu:
        op = facts.regions.op_of_work
        known = op >= 0
        gpu_ns = np.bincount(op[known], weights=facts.gpu.in_window[known], minlength=names)
        launches = np.bincount(op[known & facts.gpu.is_inside], minlength=names)
    shown = gpu_ns if facts.has_gpu else cpu_ns
    codes = np.flatnonzero((calls > 0) | (gpu_ns > 0))
    codes = codes[np.lexsort((-cpu_ns[codes], -shown[codes]))][:MAX_ROWS]
    total = facts.gpu.busy_ns if facts.has_gpu else steps.window_ns
    sites = _sites_by_time(facts, codes, gpu_ns[codes] > 0, own_ns)
    out = []
    for code, called_from in zip(codes, sites, strict=True):
        out.append(
            Op(
                name=facts.trace.names[code],
                calls_per_step=rate(calls[code] / steps.count),
                gpu_us_per_step=us(gpu_ns[code] / steps.count) if facts.has_gpu else None,
                cpu_self_us_per_step=us(cpu_ns[code] / steps.count),
                share=share(shown[code] / total),
                location=facts.call_sites.sites[called_from[0]] if called_from else None,
                launches_per_step=rate(launches[code] / steps.count) if facts.has_gpu else None,
                other_lines=len(called_from[1:]),
            )
        )
    return out


def _sites_by_time(
    facts: Facts, codes: npt.NDArray[np.intp], on_gpu: npt.NDArray[np.bool_], own_ns: I8
) -> list[list[int]]:
    """The call sites of operators, those with most of the time first: of the GPU's time, or without any (as `on_gpu`
    says) of the CPU's own time.
    """
    slices, op = facts.slices, facts.regions.op_of_work
    place = np.full(len(facts.trace.names) + 1, -1)  # the last: of no operator
    place[codes] = np.arange(len(codes))
    work = np.flatnonzero(facts.gpu.is_inside & (place[op] >= 0))
    begun = (slices.kind == OP) & facts.steps.host_window.contains(slices.start)
    begun &= (place[slices.name] >= 0) & ~on_gpu[place[slices.name]]
    rows = np.flatnonzero(begun)
    of = np.concatenate((place[op[work]], place[slices.name[rows]]))
    site = np.concatenate((facts.sites_of_work(work), facts.call_sites.of(rows)))
    time_ns = np.concatenate((facts.gpu.in_window[work], np.maximum(own_ns[rows], 0)))
    known = site >= 0
    first, group = group_rows(of[known], site[known])
    totals = np.bincount(group, weights=time_ns[known], minlength=len(first))
    found: list[list[int]] = [[] for _ in codes]
    for row in np.flatnonzero(known)[first[np.argsort(-totals, kind="stable")]]:
        found[of[row]].append(int(site[row]))
    return found


def _operators(slices: Slices, window: Intervals, names: int) -> tuple[I8, npt.NDArray[Any], I8]:
    """By name: operators that began in the window, and their CPU self time in ns. Of every slice, its own time."""
    own_ns = slices.end - slices.start  # minus the slices directly inside
    for block in _blocks(len(slices)):
        child = block.start + np.flatnonzero(slices.parent[block] >= 0)
        np.subtract.at(own_ns, slices.parent[child].astype(np.intp), slices.duration_of(child))
    calls, cpu_ns = np.zeros(names, np.int64), np.zeros(names)
    for block in _blocks(len(slices)):
        begin = slices.start[block]
        rows = block.start + np.flatnonzero((slices.kind[block] == OP) & window.contains(begin))
        name = slices.name[rows]
        calls += np.bincount(name, minlength=names)
        cpu_ns += np.bincount(name, weights=np.maximum(own_ns[rows], 0), minlength=names)
    return calls, cpu_ns, own_ns


def _blocks(rows: int) -> Iterator[slice]:
    """A large table in blocks, which keeps temporary arrays small."""
    return (slice(first, min(rows, first + BLOCK_ROWS)) for first in range(0, rows, BLOCK_ROWS))


def cpu(facts: Facts) -> Cpu | None:
    """The operators of a CPU-only run with known FLOP; None if there are none."""
    work, count = facts.cpu_work, facts.steps.count
    if facts.has_gpu or facts.quality.gpu_expected or not work.heavy:
        return None
    places = locations_of(facts, [int(operator.rows[0]) for operator in work.heavy])
    operators = []
    for one, place in zip(work.heavy[:MAX_ROWS], places, strict=False):
        peak = work.peak_share(one)
        operators.append(
            CpuOperator(
                name=one.name,
                dtype=one.dtype,
                calls_per_step=rate(len(one.rows) / count),
                us_per_step=us(one.duration_ns / count),
                share=share(one.duration_ns / facts.steps.window_ns),
                gflops_per_s=None if one.gflops is None else round(one.gflops, 3),
                peak_share=None if peak is None else share(peak),
                location=place,
            )
        )
    environment = facts.captured.environment
    return Cpu(environment.cpu.model, operators, _cpu_rates(work.peaks), environment.threads)


def _cpu_rates(peaks: CpuPeaks | None) -> list[CpuRate]:
    if peaks is None:
        return []
    rates = [CpuRate(f"{dtype} matmul", value, "GFLOP/s") for dtype, value in peaks.matmul.items()]
    rates += [CpuRate(f"{layout} convolution", value, "GFLOP/s") for layout, value in peaks.convolution.items()]
    if peaks.convolution_fp64 is not None:
        rates.append(CpuRate("fp64 convolution", peaks.convolution_fp64, "GFLOP/s"))
    if peaks.matmul_all_threads is not None and peaks.all_threads is not None:
        rates.append(CpuRate(f"fp32 matmul, {peaks.all_threads} threads", peaks.matmul_all_threads, "GFLOP/s"))
    return [*rates, *([CpuRate("copy", peaks.copy_gb_per_s, "GB/s")] if peaks.copy_gb_per_s else [])]


def counter_ranges(facts: Facts) -> list[CounterRangeRow]:
    """Counters above 0 by metric, the kernel with most first; at most MAX_ROWS."""
    found = sorted((one for one in facts.counter_ranges if one.total > 0), key=lambda one: (one.metric, -one.total))
    return [
        CounterRangeRow(
            one.kernel, one.metric, one.ranges, one.mean, one.total if one.metric.endswith(ADDED_UP) else None
        )
        for one in found[:MAX_ROWS]
    ]


def gemms(facts: Facts) -> list[Gemm]:
    """GEMMs by shape, longest first; at most MAX_ROWS shapes."""
    if not facts.has_gpu:
        return []
    found = facts.gemms
    shapes = found.shapes[:MAX_ROWS]
    slice_of = facts.slices.of(OP, len(facts.trace.ops))
    places = locations_of(facts, [int(slice_of[shape.rows[0]]) for shape in shapes])
    out = []
    for shape, place in zip(shapes, places, strict=True):
        peak = found.peak_share(shape)
        elements = shape.least_bytes(1)
        point = roof_point(shape.tflops, elements, shape.flops, shape.dtype, facts.device.accelerator)
        out.append(
            Gemm(
                op=shape.op,
                m=shape.m,
                n=shape.n,
                k=shape.k,
                batch=shape.batch,
                dtype=shape.dtype,
                calls=rate(shape.calls / facts.steps.count),
                us_per_step=us(shape.kernel_ns / facts.steps.count),
                tflops=rounded(shape.tflops),
                peak_share=rounded(peak),
                aligned=found.aligned(shape),
                tensor_core=shape.tensor_core,
                location=place,
                gb_per_s=rounded(point.gb_per_s),
                intensity=rounded(point.intensity),
                roof=point.roof,
                roof_share=rounded(point.roof_share),
            )
        )
    return out


def gemm_known_share(facts: Facts) -> float | None:
    """The part of the time of matmul kernels that has a shape; None without such kernels."""
    known = facts.gemms.known_share if facts.has_gpu else None
    return None if known is None else share(known)
