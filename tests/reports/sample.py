"""Result documents to render: the rich one, one for each way a trace can be incomplete, a hostile and a huge one."""

from __future__ import annotations

import random
import unicodedata
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from rich_sample import GIB, STEP_US, occupancy_of, part, rich, saving, span, step_series

from fixtures.hostile import HOSTILE
from traceopt.result.document import Combined, Note, Quality, Result
from traceopt.result.encoding.packing import pack_columns
from traceopt.result.finding import Location
from traceopt.result.sections.run import Device, PeakRate, Recorded, Run, TraceFile
from traceopt.result.sections.step import Communication, DataLoader, Efficiency, Gpu, Memory, Step, Sync, TensorCores
from traceopt.result.sections.timeline_rows import STREAM_COLUMNS, Lane, Span, SpanTable, Stall, Timeline
from traceopt.result.sections.work_rows import MemoryPoint, Op


def hidden_in(text: str) -> list[str]:
    """Characters that move the cursor or cannot be seen: controls, bidirectional marks, zero-width and surrogates."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [hex(ord(char)) for char in sorted({*text} - {"\n", "\t"}) if unicodedata.category(char) in kinds]


def cpu_only() -> Result:
    """A CPU-only run without shapes, stacks or memory: None almost everywhere."""
    step_us = 8_400.0
    stalls = [Stall(0, 3_100, "data_loading", "Waiting for data")]
    gain = saving(2.1, 2.6, 3.1, "80% of the stall.", step_us)
    lanes = [
        Lane(
            "cpu", "Main thread", "tid 12",
            [
                span(0, 3.1, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "loader"),
                span(3.1, 5.0, "aten::linear", "cpu"),
                span(5.0, 7.7, "autograd::engine::evaluate_function", "cpu"),
            ],
            3,
        ),
    ]  # fmt: skip
    return replace(
        rich(),
        verdict="The main thread waits for data 37% of each step.",
        run=Run(
            ["trace.json"], None, [], None, Device("cpu", None, 0, None, None), None,
            Recorded(gpu=False, shapes=False, stacks=False, memory=False),
            [TraceFile("trace.json", None, 91_000, 412, 0, 0)],
        ),
        step=Step("profiler_step", 4, 1, 8_400, [0, 1, 2, 3], 8_400, None, None, [8_400.0] * 4),
        breakdown=[
            part("data_loading", "Waiting for data", False, 3.1, None, step_us),
            part("python", "Python", False, 0.4, None, step_us),
            part("forward", "Forward", True, 1.9, 1.9, step_us),
            part("backward", "Backward", True, 2.7, 2.7, step_us),
            part("optimizer", "Optimizer", True, 0.29, 0.29, step_us),
            part("model", "Other model operators", True, 0.01, 0.01, step_us),
        ],
        gpu=Gpu(None, None, None, None, None, []),
        sync=Sync(None, None, None),
        dataloader=DataLoader(3_100, 3_100),
        communication=Communication(None, None, None, []),
        copies=[],
        tensor_cores=TensorCores(None, None, None),
        efficiency=Efficiency(None, None, None, None, None, None),
        memory=Memory(None, None, None, [], []),
        kernels=[],
        ops=[Op("aten::linear", 12, None, 1_900, 0.23, None)],
        gemms=[],
        ranks=[],
        timeline=Timeline("ProfilerStep#3", step_us, lanes, stalls),
        findings=[replace(rich().findings[0], saving=gain, ranks=[])],
        combined=None,
        plan=[],
        warnings=[],
        created=None,
    )  # fmt: skip


def empty() -> Result:
    """Hardly anything could be read: no step, no device, no checks."""
    return replace(
        cpu_only(),
        verdict="No step could be measured. The trace holds no complete step.",
        run=Run([], None, [], None, None, None, Recorded(False, False, False, False), []),
        quality=Quality("unusable", [Note("TQ002", "no-steps", "The trace holds no complete step.")]),
        step=Step("window", 0, 0, None, [], None, None, None, []),
        breakdown=[],
        dataloader=DataLoader(None, None),
        ops=[],
        timeline=None,
        findings=[],
        checks=[],
    )


def unusable() -> Result:
    """A GPU run whose numbers cannot be trusted: it keeps its evidence, but has no savings."""
    notes = [
        Note("TQ003", "cropped-or-sampled", "412 launches have no kernel: the profiler's buffer overflowed."),
        Note("TQ002", "no-steps", "The file ends in the middle of step 4; what came before was read."),
    ]
    findings = [replace(item, impact="info", saving=None) for item in rich().findings[:3]]
    verdict = f"This trace cannot be judged. {notes[0].text}"
    return replace(
        rich(),
        verdict=verdict,
        quality=Quality("unusable", notes, notes[0].code),
        findings=findings,
        combined=None,
        plan=[],
    )


def limited() -> Result:
    notes = [
        Note(
            "TQ006",
            "profiler-overhead",
            "Stacks were recorded: host-bound shares are too large. Record again with with_stack=False.",
        )
    ]
    return replace(rich(), quality=Quality("limited", notes))


def healthy() -> Result:
    """GPU-bound, without findings."""
    breakdown = [
        part("untraced", "Unexplained", False, 4),
        part("compute", "Compute kernels", True, 398, 398),
        part("communication", "Exposed communication", True, 10, 57),
    ]
    checks = [replace(item, status="passed", reason="No sign of it.") for item in rich().checks]
    return replace(
        rich(),
        verdict="The GPU is busy for 99% of each step. Compute kernels bound it.",
        breakdown=breakdown,
        gpu=Gpu(STEP_US, 408_000, 408 / 412, 398 / 412, 4 / 412, []),
        timeline=replace(rich().timeline, stalls=[]),
        ranks=[],
        findings=[],
        combined=None,
        plan=[],
        checks=checks,
        warnings=[],
    )


def hostile() -> Result:
    """The rich document with an attacker's string instead of, or after, every string of the trace."""
    poisoned = _poisoned(rich(), iter(range(10**9)))
    files = [replace(file, sha256=HOSTILE[index]) for index, file in enumerate(poisoned.run.files)]
    spans = poisoned.timeline.table
    table = replace(spans, names=[*HOSTILE[: len(spans.names)]])  # markup, which a script of the page shows
    return replace(
        poisoned,
        run=replace(poisoned.run, files=files, gpu_runtime=HOSTILE[2], script=HOSTILE[0]),
        timeline=replace(poisoned.timeline, table=table),
    )


# Strings that come from the program, not from the trace.
_FIXED = {
    "source", "status", "impact", "confidence", "effort", "risk", "category",
    "cause", "categories", "columns", "kind",
}  # fmt: skip
_SAME = {"id", "finding"}  # a row of the plan names its finding
_LAST = {"sha256", "gpu_runtime", "script"}  # hostile() handles these last, so that the other strings keep theirs


def _poisoned(value: Any, counter: Any, field: str = "") -> Any:
    if isinstance(value, str):
        if field in _SAME:
            return value + HOSTILE[0]
        return (
            value
            if field in _FIXED | _LAST or (field == "verdict" and not value)
            else HOSTILE[next(counter) % len(HOSTILE)]
        )
    if isinstance(value, list):
        return [_poisoned(item, counter, field) for item in value]
    if isinstance(value, Struct):
        if isinstance(value, Quality):
            return Quality("limited", [Note(text, text, text) for text in HOSTILE])
        changed = {name: _poisoned(part, counter, name) for name, part in asdict(value).items()}
        if isinstance(value, Combined):
            changed["codes"] = value.codes
        return replace(value, **changed)
    return value


def with_points() -> Result:
    """Shapes whose place in the roofline is known."""
    base = rich()
    peaks = [
        PeakRate("fp32", 67.0, "TFLOP/s", "data sheet", True),
        PeakRate("memory", 3_350.0, "GB/s", "data sheet", True),
    ]
    point = {"gb_per_s": 900.0, "intensity": 51.0, "roof": "compute", "roof_share": 0.7}
    gemms = [replace(gemm, **point) if gemm.tflops else gemm for gemm in base.gemms]
    thin = {"gb_per_s": 2_900.0, "intensity": 4.2, "roof": "memory", "roof_share": 0.87, "tflops": 12.2}
    shaped = [replace(op, **thin) for op in base.shaped_ops]
    device = replace(base.run.device, peaks=peaks)
    return replace(base, gemms=gemms, shaped_ops=shaped, run=replace(base.run, device=device))


def many_ranks(number: int = 64) -> Result:
    """Rank 7 loads its data slowly, and all others wait for it."""
    base = rich()
    row = replace(base.ranks[0], dataloader_stall_us=0.0, gpu_busy_share=0.9, exposed_communication_us=190_000.0)
    late = replace(row, dataloader_stall_us=187_000.0, gpu_busy_share=0.5, exposed_communication_us=3_000.0)
    return replace(base, ranks=[replace(late if rank == 7 else row, rank=rank) for rank in range(number)])


def stress() -> Result:
    """More of everything than the report shows, to check its size."""
    chance = random.Random(1)  # noqa: S311
    base = rich()
    functor = (
        "void at::native::vectorized_elementwise_kernel<4, (anonymous namespace)::{0}_{1}<float>, "
        "std::array<char*, 3ul>, TrivialOffsetCalculator<2, unsigned int> >(int, at::native::{0}_{1}<float>, "
        "std::array<char*, 3ul>, TrivialOffsetCalculator<2, unsigned int>, memory::LoadWithoutCast)"
    )
    words = ["add", "mul", "gelu", "softmax", "layer_norm", "dropout", "copy", "silu"]
    kernels = [
        replace(
            base.kernels[2],
            name=functor.replace("{0}", words[index % 8]).replace("{1}", str(index)),
            label="",
            us_per_step=round(chance.uniform(1, 9_000), 3),
            mean_us=round(chance.uniform(1, 900), 3),
            location=Location(f"package/models/block_{index % 40}.py", index),
        )
        for index in range(500)
    ]
    gemms = [
        replace(base.gemms[0], m=chance.randrange(1, 65536), n=index, us_per_step=round(chance.uniform(1, 9_000), 3))
        for index in range(500)
    ]
    ops = [
        replace(base.ops[0], name=f"aten::operator_{index}", cpu_self_us_per_step=float(index)) for index in range(500)
    ]
    starts = [round(index * 1200 + chance.uniform(0, 500), 3) for index in range(333)]
    spans = [
        Span(start, round(chance.uniform(1, 500), 3), kernel.name, "compute")
        for start, kernel in zip(starts, kernels, strict=False)
    ]
    lanes = [
        replace(
            lane,
            spans=[replace(item, start_us=round(item.start_us + chance.random(), 3)) for item in spans],
            total=90_000,
            occupancy=[occupancy_of(spans)],
        )
        for lane in base.timeline.lanes
    ]
    points = [MemoryPoint(round(index * 412.0, 3), chance.randrange(80 * GIB), None) for index in range(1_000)]
    return replace(
        base,
        kernels=kernels,
        gemms=gemms,
        ops=ops,
        timeline=replace(base.timeline, lanes=lanes, table=_many_spans(base.timeline.table)),
        memory=replace(base.memory, curve=points),
        step=replace(
            base.step,
            count=400,
            typical_steps=list(range(400)),
            series=step_series([round(chance.uniform(4e5, 5e5), 3) for _ in range(400)]),
        ),
        ranks=[
            replace(base.ranks[0], rank=index, step_us=round(chance.uniform(400_000, 420_000), 3))
            for index in range(300)
        ],
        run=replace(base.run, files=[replace(base.run.files[0], rank=index) for index in range(64)]),
    )


def _many_spans(table: SpanTable) -> SpanTable:
    """As many spans with random times as fit into a report."""
    chance, count = np.random.default_rng(1), 110_000
    times = [chance.integers(0, 10_000_000, count), chance.integers(0, 5_000_000, count)]
    codes = [chance.integers(0, len(table.names), count), *([np.zeros(count, np.int64)] * 3)]
    none = [np.empty(0, np.int64)] * len(STREAM_COLUMNS)
    lane = replace(table.lanes[1], count=count, left_out=90_000)
    return replace(table, lanes=[lane], columns=pack_columns([*times, *codes, *none]))


ALL = [rich, cpu_only, empty, unusable, limited, healthy, hostile]
