"""The tables of what ran: kernels, matmuls, modules, operators, collectives, copies, phases, ranks and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, COPIES
from traceopt.reports.words import names, not_recorded, rank_words, run_words, step_words, table_captions
from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.reports.words.part_styles import part_of_work
from traceopt.reports.words.tables import Derived, ShownTable, shown_table
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Kernel, ModuleRow
from traceopt.result.tables import rank_tables, step_tables
from traceopt.result.words import quantities

_KERNEL: Derived = {
    # Of the limit that the kernel is nearer to: the other rate says little.
    "tflops": lambda kernel: kernel.tflops if kernel.limit in ("compute", None) else None,
    "gb_per_s": lambda kernel: kernel.gb_per_s if kernel.limit in ("memory", None) else None,
    "bound_words": table_captions.bound_words,
    "via_graph_words": lambda kernel: not_recorded.VIA_GRAPH.get(kernel.via_graph, ""),
}
_OP: Derived = {
    "other_lines_words": lambda op: f"and {quantities.counted(op.other_lines, 'other')}" if op.other_lines else "",
}
_GEMM: Derived = {
    "n_misaligned": lambda gemm: table_captions.misaligned(gemm, gemm.n),
    "k_misaligned": lambda gemm: table_captions.misaligned(gemm, gemm.k),
}
_PROCESS_GROUP: Derived = {
    "group": lambda group: group.description or group.name,
    "ranks_words": rank_words.ranks_of_group,
    "collectives_words": lambda group: ", ".join(group.collectives),
    "latest_words": lambda group: None if group.latest_rank is None else str(group.latest_rank),
}
_PHASE: Derived = {
    "title": lambda phase: phase.name.capitalize(),
    "idle_share": lambda phase: phase.idle_us_per_step and phase.idle_us_per_step / phase.us_per_step,
    "process_names": lambda phase: None if phase.gpus is None else ", ".join(phase.processes),
}
_GPU: Derived = {
    "number": lambda row: f"GPU {row.gpu}",
    "waits_for_words": run_words.waits_for,
}
_SLOW: Derived = {
    "who": rank_words.who_is_slow,
    "why": rank_words.why_slow,
}
_RANK: Derived = {
    "rank_words": lambda row: (row.engine or quantities.NOT_RECORDED) if row.rank is None else str(row.rank),
    "file": lambda row: row.path.rpartition("/")[2],
}


def work_tables(document: Result) -> dict[str, ShownTable | None]:
    """The tables by their names; None without rows."""
    return {shown.table.name: shown if shown.rows else None for shown in _tables(document)}


def evidence_table(card: Card, document: Result) -> ShownTable:
    """The evidence of a finding. Sentences lead to its rows."""
    table = replace(step_tables.EVIDENCE, name=card.anchor, title=f"Evidence for {card.finding.title}")
    rows = card.finding.evidence
    counted = any(row.us_per_step is not None or row.calls_per_step is not None for row in rows)
    what = "Operation or kernel" if counted else "What"
    return shown_table(table, rows, {**words_of(document), "what": what})


def words_of(document: Result) -> Mapping[str, str]:
    """The words that stand in the headings of tables."""
    noun = step_words.step_noun(document)
    return {
        "per_step": step_words.per_step(document),
        "step": noun,
        "typical": "Recording" if noun == "recording" else "Typical step",
        "device": "" if step_words.on_cpu(document) else "GPU ",
        "communication": COMMUNICATION.host_label if step_words.on_cpu(document) else COMMUNICATION.label,
        "matrix_units": table_captions.matrix_units(document),
    }


def _tables(document: Result) -> Iterator[ShownTable]:
    plain = partial(shown_table, words=words_of(document))
    of_step = partial(plain, scope=step_words.scope(document))
    if document.cpu is not None:
        captions = [table_captions.cpu_caption(document)]
        yield of_step(step_tables.CPU_OPERATORS, document.cpu.operators, captions=captions)
    else:
        captions = [table_captions.gemm_caption(document), table_captions.misaligned_caption(document)]
        yield of_step(step_tables.GEMMS, document.gemms, derived=_GEMM, captions=captions)
    yield of_step(step_tables.SHAPED_OPERATORS, document.shaped_ops, captions=[table_captions.shaped_caption(document)])
    captions = [table_captions.kernel_caption(document), not_recorded.graph_operators(document) or ""]
    short = names.short_kernels(kernel.name for kernel in document.kernels)
    named: Derived = {**_KERNEL, "short_name": lambda kernel: short[kernel.name]}
    yield of_step(step_tables.KERNELS, document.kernels, derived=named, captions=captions)
    yield of_step(step_tables.LAUNCHES, list(filter(_is_launched, document.kernels)), derived=named)
    yield plain(step_tables.MODULES, document.modules, depths=_depths(document.modules))
    classes = [row for row in document.module_classes if row.share > 0]
    yield plain(step_tables.MODULE_CLASSES, classes if any(row.modules > 1 for row in classes) else [])
    counted = names.short_kernels(row.kernel for row in document.counter_ranges)
    yield plain(step_tables.COUNTERS, document.counter_ranges, derived={"short_name": lambda row: counted[row.kernel]})
    worked = [op for op in document.ops if op.gpu_us_per_step or op.cpu_self_us_per_step]
    yield of_step(step_tables.OPERATORS, worked, derived=_OP, total=len(document.ops))
    experts, capacity = document.communication.experts, [table_captions.expert_caption(document)]
    yield of_step(rank_tables.COLLECTIVES, document.communication.collectives, captions=[] if experts else capacity)
    groups = document.communication.groups
    yield of_step(rank_tables.PROCESS_GROUPS, groups if len(groups) > 1 else [], derived=_PROCESS_GROUP)
    yield of_step(rank_tables.GROUP_OVERLAPS, document.communication.overlaps)
    yield plain(rank_tables.PIPELINE, document.communication.pipeline)
    yield plain(rank_tables.EXPERTS, experts, captions=capacity)
    yield plain(rank_tables.EXPERT_LAYERS, document.communication.expert_layers)
    yield of_step(step_tables.COPIES, document.copies)
    yield of_step(rank_tables.GPUS, document.gpu.devices, derived=_GPU)
    yield of_step(
        step_tables.RL_PHASES, document.rl_phases, derived=_PHASE, captions=[table_captions.phase_caption(document)]
    )
    ranks = document.ranks if len(document.ranks) > 1 else []
    yield plain(rank_tables.RANKS, ranks, derived=_RANK, captions=[table_captions.rank_caption(document)])
    run = document.whole_run.ranks if document.whole_run is not None else None
    yield plain(rank_tables.SLOW_RANKS, [] if run is None else run.slow, derived=_SLOW)
    yield plain(step_tables.FILES, document.run.files)


def _is_launched(kernel: Kernel) -> bool:
    return part_of_work(kernel.kind) is not COPIES and kernel.longest_us is not None


def _depths(modules: Sequence[ModuleRow]) -> list[int]:
    """How many modules are around each. Callers come before callees."""
    depths: list[int] = []
    for module in modules:
        depths.append(0 if module.parent < 0 else depths[module.parent] + 1)
    return depths
