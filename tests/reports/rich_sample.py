"""A rich result document with consistent, invented numbers: ViT-S/16 under DDP on four GPUs, 412 ms a step."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from msgspec.structs import replace

from traceopt.result.document import Check, Combined, Quality, Result
from traceopt.result.encoding.packing import pack_columns
from traceopt.result.finding import Evidence, Finding, Fix, Location, Saving
from traceopt.result.sections.rank_rows import Collective, RankRow, RankSteps
from traceopt.result.sections.run import Device, Recorded, Run, Setting, Tool, TraceFile
from traceopt.result.sections.step import Communication, DataLoader, Efficiency, Gpu, Memory, Step, Sync, TensorCores
from traceopt.result.sections.timeline_rows import (
    COLUMNS,
    STREAM_COLUMNS,
    Lane,
    Occupancy,
    Span,
    SpanLane,
    SpanTable,
    Stall,
    StepWindow,
    Timeline,
)
from traceopt.result.sections.work_rows import (
    BreakdownPart,
    Copy,
    Gemm,
    IdleCause,
    Kernel,
    MemoryPart,
    MemoryPoint,
    ModuleClass,
    ModuleRow,
    Op,
    PlanRow,
    ShapedOperator,
    StepPart,
    StepSeries,
)
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.result.words.message import named
from traceopt.rules.fingerprint import with_ids

GIB = 1 << 30
STEP_US = 412_000.0
UNUSUAL_US = 610_000.0  # of one step, which is not typical


def part(name: str, label: str, busy: bool, ms: float, raw_ms: float | None = None, step_us: float = STEP_US):
    raw_us = None if raw_ms is None else raw_ms * 1000
    return BreakdownPart(name, label, busy, ms * 1000, ms * 1000 / step_us, raw_us)


def saving(low: float, est: float, high: float, basis: str, step_us: float = STEP_US) -> Saving:
    return Saving(low * 1000, est * 1000, high * 1000, est * 1000 / step_us, basis)


def span(start: float, end: float, name: str, category: str) -> Span:
    return Span(start * 1000, round((end - start) * 1000, 3), name, category)


def _spread(start: float, end: float, busy: float, names: list[str], category: str, number: int) -> list[Span]:
    """`number` spans that fill `busy` ms between `start` and `end`."""
    chance = random.Random(number)  # noqa: S311
    weights = [chance.uniform(0.5, 1.5) for _ in range(number)]
    gap = (end - start - busy) / number
    spans, now = [], start
    for index, weight in enumerate(weights):
        duration = busy * weight / sum(weights)
        spans.append(span(now, now + duration, names[index % len(names)], category))
        now += duration + gap
    return spans


def occupancy_of(spans: list[Span]) -> Occupancy:
    """How full each of 206 parts of the step is."""
    edges = np.linspace(0, STEP_US, 207)
    starts = np.array([span.start_us for span in spans])
    ends = starts + [span.duration_us for span in spans]
    filled = np.minimum(edges[1:, None], ends) - np.maximum(edges[:-1, None], starts)
    shares = np.maximum(filled, 0).sum(axis=1) / (STEP_US / 206)
    return Occupancy("compute", np.minimum(shares, 1).round(6).tolist())


def _timeline() -> Timeline:
    forward = ["cutlass_80_simt_sgemm_128x256", "fmha_cutlassF_f32", "vectorized_elementwise_kernel"]
    compute = [
        *_spread(0, 9, 9, ["AdamW (previous step)"], "compute", 3),
        *_spread(214, 258, 38, forward, "compute", 36),
        *_spread(258, 324, 62, ["sgemm dgrad", "sgemm wgrad", "layer_norm bwd"], "compute", 40),
        *_spread(372, 405, 15, ["AdamW elementwise"], "compute", 30),
    ]
    main = [
        span(0, 196, "next(loader)  train.py:88", "wait"),
        span(196, 212, "images.to(device)", "cpu"),
        span(212, 240, "forward", "cpu"),
        span(240, 292, "backward", "cpu"),
        span(292, 346, "logits.argmax(1).cpu()", "wait"),
        span(346, 372, "accuracy on the CPU", "cpu"),
        span(372, 403, "optimizer.step()", "cpu"),
        span(403, 412, "logging", "cpu"),
    ]
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    lanes = [
        Lane("loader", "Data loader", "main process", [span(0, 196, "DataLoader.__next__", "loader")], 1),
        Lane("cpu", "CPU main thread", "tid 41", main, 8),
        Lane("autograd", "CPU autograd thread", "tid 97", [span(241, 292, "autograd engine", "cpu")], 1),
        Lane("gpu", "GPU compute", "stream 7", compute, 1802, [occupancy_of(compute)]),
        Lane("copy", "GPU copies", "stream 7", [span(196, 211, "Memcpy HtoD (Pageable -> Device)", "copy")], 1),
        Lane("nccl", "GPU NCCL", "stream 20", [span(287, 306, nccl, "comm"), span(308, 346, nccl, "comm")], 2),
    ]
    stalls = [
        Stall(9_000, 187_000, "data_loading", "Waiting for data"),
        Stall(346_000, 26_000, "host_sync", "Waiting for the host"),
    ]
    return Timeline("ProfilerStep#9", STEP_US, lanes, stalls, _spans(stalls))


def _rank_steps(step_us: list[float]) -> list[RankSteps]:
    """Of rank 0 and of rank 2, which is slower."""
    return [RankSteps(0, step_us), RankSteps(2, [us + 20_000 for us in step_us])]


def step_series(step_us: list[float]) -> StepSeries:
    """The GPU works for 161 ms of every step, and waits for data and launches for the rest of it."""
    busy = [161_000.0] * len(step_us)
    launch = [64_000.0] * len(step_us)
    loading = [us - 225_000.0 for us in step_us]
    parts = [
        StepPart("compute", "Compute kernels", True, busy),
        StepPart("data_loading", "Waiting for data", False, loading),
        StepPart("launch", "Waiting for launches", False, launch),
    ]
    return StepSeries(
        0, 7, [f"ProfilerStep#{number}" for number in range(2, 2 + len(step_us))], parts, _rank_steps(step_us)
    )


def span_table(lanes: list[tuple[SpanLane, list[tuple[float, ...]]]], **lists: Any) -> SpanTable:
    """A table of lanes with their spans: start and duration (ms) and the codes of COLUMNS; spans of streams go on with
    the codes of STREAM_COLUMNS and a launch delay (ms).
    """
    columns: dict[str, list[int]] = {name: [] for name in (*COLUMNS, *STREAM_COLUMNS)}
    for lane, spans in lanes:
        before = 0
        for start, duration, *codes in spans:
            now = round(start * 1e6)
            names = COLUMNS[2:] if lane.kind != "stream" else (*COLUMNS[2:], *STREAM_COLUMNS)
            values = [now - before, round(duration * 1e6), *codes]
            if lane.kind == "stream" and codes[-1]:
                values[-1] = round(codes[-1] * 1e6) + 1
            for name, value in zip((*COLUMNS[:2], *names), values, strict=True):
                columns[name].append(int(value))
            before = now
    packed = pack_columns(np.array(values, np.int64) for values in columns.values())
    return SpanTable(lanes=[replace(lane, count=len(spans)) for lane, spans in lanes], columns=packed, **lists)


def _spans(stalls: list[Stall]) -> SpanTable:
    """Step 8 with a loader, an operator inside its Python frame, a gap between two kernels; step 9 with one kernel."""
    main = SpanLane("activity", "CPU main thread", "thread 41", 0, 0)
    events = SpanLane("thread", "CPU main thread", "thread 41", 0, 0)
    idle = SpanLane("idle", "GPU idle", "shorter", 0, 0)
    stream = SpanLane("stream", "GPU compute", "stream 7", 0, 0)
    return span_table(
        [
            (main, [(0, 196, 0, 0, 0, 0)]),
            (events, [(1, 390, 1, 1, 1, 0), (200, 30, 2, 2, 2, 1), (205, 2, 3, 3, 2, 0), (225, 1, 3, 3, 2, 0)]),
            (idle, [(244, 14, 6, 5, 0, 0)]),
            (
                stream,
                [
                    (214, 30, 4, 4, 2, 2, 3, 1, 2, 9),
                    (258, 60, 5, 4, 0, 0, 0, 0, 0, 0),
                    (700, 100, 4, 4, 2, 2, 3, 1, 0, 0),
                ],
            ),
        ],
        steps=[StepWindow(6, "ProfilerStep#8", 0, UNUSUAL_US), StepWindow(7, "ProfilerStep#9", UNUSUAL_US, STEP_US)],
        names=[
            "Waiting for data",
            "train.py(88): train",
            "aten::addmm",
            "cudaLaunchKernel",
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256>(Params)",
            "fmha_cutlassF_f32",
            "Waiting for the host",
        ],
        labels=["", "", "", "", "Kernel2<cutlass_80_simt_sgemm_128x256>", "", ""],
        categories=["loader", "python", "cpu", "runtime", "compute", "host_sync"],
        places=[Location("train.py", 88, "train"), Location("model/vit.py", 57)],
        details=["[[128, 384], [384, 1001]]", "grid 12×8×1, block 256×1×1"],
        stalls=[replace(stall, start_us=stall.start_us + UNUSUAL_US) for stall in stalls],
    )


def _memory() -> Memory:
    curve = [MemoryPoint(0.0, int(0.44 * GIB), None)]
    rise = [(214_000 + index * 733.0, 0.6 + 22.8 * index / 59) for index in range(60)]
    fall = [(258_000 + index * 1100.0, 23.2 - 22.0 * index / 59) for index in range(60)]
    curve += [MemoryPoint(us, int(gib * GIB), None) for us, gib in rise + fall]
    curve.append(MemoryPoint(405_000, int(0.44 * GIB), None))
    parts = [MemoryPart("Activations", int(21.9 * GIB)), MemoryPart("Optimizer state", int(0.9 * GIB))]
    return Memory(int(23.4 * GIB), int(26.1 * GIB), int(79.6 * GIB), parts, curve)


def _findings() -> list[Finding]:
    at = Location
    loader_code = "loader = DataLoader(\n    train_set, batch_size=128, num_workers=8,\n    persistent_workers=True)\n"
    pin_patch = (
        "--- a/train.py\n+++ b/train.py\n@@ -62,3 +62,3 @@\n loader = DataLoader(\n"
        "-    drop_last=True)\n+    drop_last=True, pin_memory=True)\n model = ViT(cfg).cuda()\n"
    )
    found = [
        Finding(
            "DL001", "dataloader-stall", "Load data in worker processes", "high", "high", Effort.ONE_LINE, Risk.NONE,
            saving(112, 150, 187, "80% of the measured stall; worker hand-over keeps part of the cost."),
            "The loader runs inside the training process, so the GPU waits 187 ms of every 412 ms step.",
            [
                Evidence("DataLoader.__next__ (single process)", 196_000, 1, None, at("train.py", 88)),
                Evidence("PIL.Image.open → convert", 131_400, 128, "decoding", at("data/imagenet.py", 41)),
                Evidence("num_workers", None, None, "0", None),
            ],
            [at("train.py", 61, "build_loader")],
            Fix("Give the DataLoader worker processes. 16 CPU cores are visible to this rank.", loader_code),
            ["CM004"], [0, 1, 2, 3],
        ),
        Finding(
            "TC002", "tf32-off", "Let FP32 matmuls use Tensor Cores (TF32)", "high", "medium", Effort.ONE_LINE,
            Risk.NUMERICS, saving(27, 42, 53, "Roofline: 71 ms today, 29 ms at the TF32 rate."),
            "All 144 linear-layer GEMMs run as FP32 SIMT kernels at 49 TFLOP/s.",
            [Evidence(named("cutlass_80_simt_sgemm_128x256"), 23_400, 48, None, at("model/vit.py", 57))],
            [], Fix("Allow TF32.", 'torch.set_float32_matmul_precision("high")'),
        ),
        Finding(
            "HS002", "blocking-copy", "Stop copying logits to the CPU every step", "medium", "high",
            Effort.FEW_LINES, Risk.LATER, saving(7, 9, 12, "The measured idle gap after the sync."),
            ".cpu() blocks until the GPU is drained; then the GPU sits idle for 26 ms.",
            [Evidence("cudaStreamSynchronize", 54_000, 1, None, at("train.py", 98))],
            [at("train.py", 98)], Fix("Keep the metric on the GPU and read it every 50 steps."),
        ),
        Finding(
            "DL003", "pageable-copy", "Pin host memory for input batches", "medium", "high", Effort.FEW_LINES,
            Risk.MEMORY, saving(9, 13, 15, "Pinned copies on this link run at about 50 GB/s."),
            "77 MB per step is copied from pageable memory at 5.1 GB/s, and nothing overlaps it.",
            [Evidence("Memcpy HtoD (Pageable -> Device)", 15_000, 2, None, at("train.py", 90))],
            [at("train.py", 64)], Fix("Set pin_memory.", None, pin_patch), risk_note="More locked RAM",
        ),
        Finding(
            "CM004", "straggler-rank", "Balance the ranks: three wait for rank 2", "low", "low",
            Effort.DEPENDS, Risk.NONE, saving(0, 9, 19, "Half of the measured wait."),
            "19 of the 22 ms of all-reduce is waiting for rank 2.",
            [], [], Fix("Find out what rank 2 does before the all-reduce."), ["DL001"], [2],
        ),
        Finding(
            "TC003", "low-tensor-core-use", "Reach more of the GPU's peak", "info", "medium", Effort.DEPENDS, Risk.NONE,
            None,
            "The step does 3.1% of what this GPU can do.", [], [], Fix("See the fixes above."),
        ),
    ]  # fmt: skip
    families = {"DL": "input", "TC": "precision", "HS": "host syncs", "CM": "communication", "EF": "efficiency"}
    return with_ids([replace(finding, family=families[finding.code[:2]]) for finding in found])


def _plan() -> list[PlanRow]:
    """Three of the findings: the second overlaps with the first, and the third saves little without it."""
    loader, tf32, copy, *_ = [finding.id for finding in _findings()]
    return [
        PlanRow("DL001", loader, 150_000, 150_000, 112_000, 187_000, 262_000, []),
        PlanRow("TC002", tf32, 42_000, 26_000, 26_000, 30_000, 236_000, []),
        PlanRow("HS002", copy, 9_000, 22_000, 7_000, 26_000, 214_000, [1]),
    ]


def _kernels() -> list[Kernel]:
    gemm = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(cutlass_80_simt_sgemm::Params)"
    add = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
        "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
    )
    vit = Location("model/vit.py", 57)
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return [
        Kernel(nccl, "communication", 3, 57_000, 19_000, 0.138, None, None, Location("train.py", 95)),
        Kernel(
            gemm, "gemm", 48, 23_400, 487.5, 0.057, False, "aten::addmm", vit,
            tflops=48.9, gb_per_s=95.0, peak_share=0.73, limit="compute", label="cutlass_80_simt_sgemm_128x256",
        ),
        Kernel(
            add, "elementwise", 1202, 9_600, 7.987, 0.023, None, "aten::add_", None,
            gb_per_s=2_810.0, peak_share=0.84, limit="memory", label="elementwise_kernel<4, CUDAFunctor_add>",
        ),
        Kernel("fmha_cutlassF_f32_aligned_64x64_rf_sm80", "attention", 12, 1_500, 125.0, 0.004, True, None, vit),
        Kernel("Memset (Device)", "memset", 2.5, 4, 1.6, 0.00001, None, "aten::zero_", None),
    ]  # fmt: skip


def _shaped() -> list[ShapedOperator]:
    vit = Location("model/vit.py", 31)
    attention = "aten::_scaled_dot_product_efficient_attention"
    return [
        ShapedOperator(attention, "128x6x197x64", "fp32", 12, 1_500, 12.2, 0.18, True, vit),
        ShapedOperator(
            "aten::convolution", "128x3x224x224, weight 384x3x16x16, stride 16", None, 1, 90, 30, None, None, vit
        ),
    ]


def _modules() -> list[ModuleRow]:
    return [
        ModuleRow("VisionTransformer_0", -1, 1, 38_000.0, 74_000.0, 900.0, 61_000.0),
        ModuleRow("Block_0", 0, 1, 3_100.0, 6_100.0, 12.0, 4_800.0),
        ModuleRow("Attention_0", 1, 1, 1_400.0, 2_800.0, 300.0, 2_100.0),
    ]


def _module_classes() -> list[ModuleClass]:
    return [
        ModuleClass("Linear", 49, 49, 30_000.0, 58_000.0, 0.79),
        ModuleClass("Attention", 12, 12, 5_000.0, 9_000.0, 0.12),
        ModuleClass("VisionTransformer", 1, 1, 3_000.0, 7_000.0, 0.09),
    ]


def _gemms() -> list[Gemm]:
    vit = Location("model/vit.py", 57)
    return [
        Gemm("aten::mm", 1536, 384, 25216, 1, "fp32", 12, 7_800, 45.8, 0.68, True, False, vit),
        Gemm("aten::addmm", 25216, 384, 1536, 1, "fp32", 12, 7_300, 48.9, 0.73, True, False, vit),
        Gemm("aten::bmm", 197, 197, 64, 768, "fp32", 12, 900, None, None, None, None, None),
        Gemm("aten::addmm", 128, 1001, 384, 1, "fp32", 1, 30, 3.3, 0.05, False, False, vit),
    ]


def _checks() -> list[Check]:
    found = [Check(item.code, item.name, item.title, "found", "") for item in _findings()]
    return [
        *found,
        Check("GM001", "misaligned-gemm", "Pad GEMM dimensions", "passed", "143 of 144 calls are aligned."),
        Check("AT001", "unfused-attention", "Use fused attention", "passed", "Memory-efficient attention is used."),
        Check("MM005", "memory-growth", "Stop memory growth", "not_checked", "Needs 30 steps; this trace has 12."),
        Check("CV001", "layout-conversion", "Use channels_last", "not_applicable", "No convolutions."),
        Check("XX001", "plugin-rule", "A plugin's rule", "error", "ZeroDivisionError in check()."),
    ]


def rich() -> Result:
    """Four ranks, everything recorded, and six findings, one of them without a saving."""
    paths = [f"logs/rank{rank}.pt.trace.json.gz" for rank in range(4)]
    files = [TraceFile(path, rank, 184 << 20, 1_204_551, 0, 2, "5d1c" * 16) for rank, path in enumerate(paths)]
    breakdown = [
        part("data_loading", "Waiting for data", False, 187),
        part("launch", "Waiting for launches", False, 31),
        part("host_sync", "Waiting for the host", False, 26),
        part("untraced", "Unexplained", False, 7),
        part("compute", "Compute kernels", True, 124, 124),
        part("communication", "Exposed communication", True, 22, 57),
        part("copies", "Exposed copies", True, 15, 15),
    ]
    idle = [IdleCause(item.name, item.label, item.us_per_step, item.share) for item in breakdown[:4]]
    step_us = [
        411_000,
        416_000,
        414_000,
        405_000,
        413_000,
        401_000,
        UNUSUAL_US,
        410_000,
        418_000,
        408_000,
        421_000,
        415_000,
    ]
    collectives = [
        Collective("all_reduce", 3, 57_000, 22_000, 88.0 * (1 << 20), 48.2, Location("train.py", 95)),
        Collective("broadcast", 1, 40, 40, None, None, None),
    ]
    ranks = [
        RankRow(0, paths[0], 412_000, 0.39, 187_000, 19_000, "Waits for data."),
        RankRow(1, paths[1], 412_000, 0.38, 190_000, 17_000, "Waits for data."),
        RankRow(2, paths[2], 412_000, 0.36, 214_000, 2_000, "The slowest loader."),
        RankRow(None, paths[3], None, None, None, None, "No step in this file."),
    ]
    return Result(
        tool=Tool("traceopt", "0.1.0"),
        verdict="The GPU is idle for 61% of each step. The data loader is the bottleneck.",
        run=Run(
            paths=paths,
            world_size=4,
            ranks=[0, 1, 2, 3],
            shown_rank=0,
            device=Device("nvidia", "NVIDIA H100 80GB HBM3", 4, int(79.6 * GIB), "9.0"),
            torch_version="2.9.1",
            recorded=Recorded(gpu=True, shapes=True, stacks=True, memory=True),
            files=files,
            settings=[Setting("CPU cores", "32"), Setting("TF32 for matmuls", "off")],
            gpu_runtime="CUDA 12.8",
        ),
        quality=Quality("good", []),
        step=Step(
            "profiler_step",
            12,
            3,
            STEP_US,
            [index for index, us in enumerate(step_us) if us != UNUSUAL_US],
            413_500,
            405_000,
            421_000,
            [float(us) for us in step_us],
            1.076,
            step_series([float(us) for us in step_us]),
        ),
        breakdown=breakdown,
        gpu=Gpu(STEP_US * 12, 161_000 * 12, 161 / 412, 124 / 412, 251 / 412, idle),
        sync=Sync(1, 54_000, 26_000),
        dataloader=DataLoader(196_000, 187_000),
        communication=Communication(57_000, 22_000, 0.61, collectives),
        copies=[Copy("HtoD pageable", 2, 15_000, 15_000, 77e6, 5.1), Copy("DtoH pageable", 1, 12, 12, None, None)],
        tensor_cores=TensorCores(0.57, 0.0, 0.01),
        efficiency=Efficiency(1.27e13, 30.8, 989.0, "bf16", 0.031, None),
        memory=_memory(),
        kernels=_kernels(),
        ops=[
            Op("aten::addmm", 48, 36_000, 4_100, 0.09, Location("model/vit.py", 57)),
            Op("aten::item", 1, None, 54_000, 0.13, Location("train.py", 98)),
        ],
        gemms=_gemms(),
        shaped_ops=_shaped(),
        modules=_modules(),
        module_classes=_module_classes(),
        ranks=ranks,
        timeline=_timeline(),
        findings=_findings(),
        combined=Combined(
            ["DL001", "TC002", "HS002"],
            198_000,
            198 / 412,
            214_000,
            0.012,
            None,
            [
                part("data_loading", "Waiting for data", False, 37, step_us=214_000),
                part("launch", "Waiting for launches", False, 61, step_us=214_000),
                part("compute", "Compute kernels", True, 79, step_us=214_000),
                part("communication", "Exposed communication", True, 37, step_us=214_000),
            ],
            sum(row.low_us for row in _plan()),
            sum(row.high_us for row in _plan()),
        ),
        plan=_plan(),
        checks=_checks(),
        warnings=["rank 2: 14 events have no duration and were left out."],
        created="2026-11-20 18:02 UTC",
    )
