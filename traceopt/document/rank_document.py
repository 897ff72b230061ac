"""The result document of one rank, from its facts and the outcome of the rules."""

from __future__ import annotations

import math

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.requirements import lacks
from traceopt.analyzer.tables.trace import TraceMeta
from traceopt.document import sections
from traceopt.document.communication_section import communication_section
from traceopt.document.companions.sections import companion_sections
from traceopt.document.decision import decide, judged
from traceopt.document.quality import quality_of
from traceopt.document.rank_answer import OtherRank, RunOfRank
from traceopt.document.run.whole_run import whole_run
from traceopt.document.run_section import device, gpu_runtime, settings
from traceopt.document.tables import tables
from traceopt.document.tables.module_times import module_times
from traceopt.document.tables.shaped_operators import shaped_operators
from traceopt.document.timeline.flame_graph import flame_graph
from traceopt.document.timeline.timeline import spans_of_step, timeline
from traceopt.result.document import Quality, Result
from traceopt.result.sections.rank_rows import RankRow
from traceopt.result.sections.run import Recorded, Run, Tool, TraceFile
from traceopt.result.sections.step import Communication, DataLoader, Gpu, Step
from traceopt.rules.engine import RulesOutcome
from traceopt.version import __version__

_COVERED = "The report covers the steps that were recorded before."


def rank_document(facts: Facts, outcome: RulesOutcome, sharing: int = 1) -> Result:
    """`sharing`: how many ranks share the room of the report for spans."""
    meta = facts.trace.meta
    rank, breakdown, run_time = meta.rank, sections.breakdown(facts), whole_run(facts)
    quality = quality_of(facts, outcome.notes, breakdown)
    decision = decide(facts, outcome, quality, breakdown, run_time)
    step, gpu, loader = sections.step(facts), sections.gpu(facts), sections.dataloader(facts)
    communication, modules, files = communication_section(facts), module_times(facts), _files(meta)
    failure = facts.captured.failure
    return Result(
        tool=Tool("traceopt", __version__),
        run=Run(
            paths=[file.path for file in files],
            world_size=meta.world_size,
            ranks=[] if rank is None else [rank],
            shown_rank=rank,
            device=device(facts),
            settings=settings(facts),
            torch_version=facts.captured.torch_version,
            gpu_runtime=gpu_runtime(facts),
            script=facts.captured.script,
            machine=facts.machine,
            recorded=Recorded(
                nsight=facts.from_nsight,
                gpu=facts.gpu.busy.total > 0,
                shapes=lacks(facts, "shapes") is None,
                stacks=lacks(facts, "stacks") is None,
                memory=facts.memory is not None,
            ),
            files=files,
        ),
        quality=quality,
        step=step,
        breakdown=breakdown,
        gpu=gpu,
        sync=sections.sync(facts),
        dataloader=loader,
        communication=communication,
        copies=sections.copies(facts),
        tensor_cores=sections.tensor_cores(facts),
        efficiency=sections.efficiency(facts),
        memory=sections.memory(facts),
        kernels=tables.kernels(facts),
        ops=tables.ops(facts),
        gemms=tables.gemms(facts),
        gemm_known_share=tables.gemm_known_share(facts),
        counter_ranges=tables.counter_ranges(facts),
        ranks=[_row(meta, step, gpu, loader, communication, quality)],
        timeline=timeline(facts, sharing),
        shaped_ops=shaped_operators(facts),
        modules=modules.tree() if modules is not None else [],
        module_classes=modules.classes() if modules is not None else [],
        flame=flame_graph(facts),
        throughput=sections.throughput(facts),
        serving=sections.serving(facts),
        rl_phases=sections.rl_phases(facts),
        cpu=tables.cpu(facts),
        whole_run=run_time,
        warnings=[] if failure is None else [f"{failure.sentence} {_COVERED}"],
        **decision.fields,
        **companion_sections(facts),
    )


def other_rank(facts: Facts, outcome: RulesOutcome, sharing: int = 1, most_exposed_us: float = math.inf) -> OtherRank:
    """What the document of another rank needs of this one; `sharing` as in `rank_document`. With more exposed
    communication than `most_exposed_us`, the report does not show its spans.
    """
    meta, quality = facts.trace.meta, quality_of(facts, outcome.notes, sections.breakdown(facts))
    step, files = sections.step(facts), _files(meta)
    gpu, loader, communication = sections.gpu(facts), sections.dataloader(facts), communication_section(facts)
    exposed_us = communication.exposed_us_per_step or 0.0
    return OtherRank(
        run=RunOfRank([file.path for file in files], meta.rank, files),
        ranks=[_row(meta, step, gpu, loader, communication, quality)],
        findings=judged(facts, outcome, quality),
        checks=outcome.checks,
        step=step,
        timeline=spans_of_step(facts, sharing) if exposed_us <= most_exposed_us else None,
        start_up=companion_sections(facts)["start_up"],
    )


def _files(meta: TraceMeta) -> list[TraceFile]:
    return [
        TraceFile(
            path=file.path,
            rank=meta.rank,
            bytes=file.byte_count,
            events=file.event_count,
            lost_events=file.lost_events,
            repaired_events=file.repaired_events,
            sha256=file.sha256,
        )
        for file in (meta, meta.detail)
        if file is not None
    ]


def _row(
    meta: TraceMeta, step: Step, gpu: Gpu, loader: DataLoader, communication: Communication, quality: Quality
) -> RankRow:
    return RankRow(
        rank=meta.rank,
        path=meta.path,
        step_us=step.typical_us,
        gpu_busy_share=gpu.busy_share,
        dataloader_stall_us=loader.stall_us_per_step,
        exposed_communication_us=communication.exposed_us_per_step,
        verdict=quality.verdict,
        engine=meta.engine,
    )
