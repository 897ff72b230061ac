"""The result document of one rank, from its facts and the outcome of the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.requirements import lacks
from traceopt.analyzer.run_log.run_settings import UNLIKE
from traceopt.document import sections
from traceopt.document.companions.sections import companion_ending, companion_sections
from traceopt.document.tables import tables
from traceopt.document.tables.module_times import module_times
from traceopt.document.tables.shaped_operators import shaped_operators
from traceopt.document.timeline.flame_graph import flame_graph
from traceopt.document.timeline.timeline import timeline
from traceopt.document.verdict import UNUSABLE, verdict
from traceopt.document.whole_run import of_the_run, whole_run
from traceopt.result.document import Quality, Recorded, Result, Run, Tool, TraceFile
from traceopt.result.finding import Confidence, Finding
from traceopt.result.rows import RankRow
from traceopt.rules.combined import combine
from traceopt.rules.engine import RulesOutcome
from traceopt.rules.fingerprint import with_ids
from traceopt.rules.plan import document_rows
from traceopt.version import __version__

LESS_SURE: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}
_SINGLE_STEP = "TQ002"  # the note on a single step or none
_HARMLESS = ("TQ006",)  # notes about single findings, not about the trace
_COVERED = "The report covers the steps that were recorded before."
_LOST_SHARE = 0.2  # of the kernel launches: if so many kernels are lost, shares of time are not real


def rank_document(facts: Facts, outcome: RulesOutcome) -> Result:
    meta = facts.trace.meta
    files = [one for one in (meta, meta.detail) if one is not None]
    quality = _quality(facts, outcome)
    breakdown = sections.breakdown(facts)
    rank = meta.rank
    findings = with_ids([replace(f, ranks=f.ranks or ([] if rank is None else [rank])) for f in outcome.findings])
    plan, noted = outcome.plan, {note.code for note in quality.notes}
    if quality.verdict == "unusable":  # the evidence holds, but savings are shares of times that are not real
        findings, plan = [replace(f, saving=None, impact="info") if f.saving else f for f in findings], None
    elif facts.quality.sampled_share is not None:  # a sample shows what it holds, but not how much
        findings, plan = [_of_a_sample(f) for f in findings], None
    elif facts.has_gpu and facts.replay_error is None:  # without launches, what the step gains is not known
        findings = [replace(f, confidence="low") if f.saving else f for f in findings]
    elif not facts.replay_complete or _SINGLE_STEP in noted or facts.quality.events_were_dropped:
        # A part of the step is unknown, or may not recur.
        findings = [replace(f, confidence=LESS_SURE[f.confidence]) if f.saving else f for f in findings]
    if _is_partial(facts):  # shares of a part are not shares of the run
        findings = [replace(f, confidence="low") for f in findings]
    step, gpu, loader = sections.step(facts), sections.gpu(facts), sections.dataloader(facts)
    communication = sections.communication(facts)
    run_time, modules = whole_run(facts), module_times(facts)
    rows = document_rows(plan, findings[: len(plan.rows)]) if plan else []
    combined = combine(plan, rows, breakdown, facts) if plan else None
    beside = of_the_run(facts, run_time, combined.share if combined is not None else 0.0)
    headline = verdict(facts, quality, breakdown, outcome.priced, beside)
    failure = facts.captured.failure
    ending = failure.sentence if failure is not None else companion_ending(facts)
    return Result(
        tool=Tool("traceopt", __version__),
        verdict=f"{ending} {headline}" if ending else headline,
        run=Run(
            paths=[file.path for file in files],
            world_size=meta.world_size,
            ranks=[] if rank is None else [rank],
            shown_rank=rank,
            device=sections.device(facts),
            settings=sections.settings(facts),
            torch_version=_torch_version(meta.header),
            gpu_runtime=sections.gpu_runtime(facts),
            script=facts.captured.script,
            recorded=Recorded(
                nsight=facts.from_nsight,
                gpu=facts.gpu.busy.total > 0,
                shapes=lacks(facts, "shapes") is None,
                stacks=lacks(facts, "stacks") is None,
                memory=facts.memory is not None,
            ),
            files=[
                TraceFile(
                    path=file.path,
                    rank=rank,
                    bytes=file.byte_count,
                    events=file.event_count,
                    lost_events=file.lost_events,
                    repaired_events=file.repaired_events,
                    sha256=file.sha256,
                )
                for file in files
            ],
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
        ranks=[
            RankRow(
                rank=rank,
                path=meta.path,
                step_us=step.typical_us,
                gpu_busy_share=gpu.busy_share,
                dataloader_stall_us=loader.stall_us_per_step,
                exposed_communication_us=communication.exposed_us_per_step,
                verdict=quality.verdict,
                engine=meta.engine,
            )
        ],
        timeline=timeline(facts),
        shaped_ops=shaped_operators(facts),
        modules=modules.tree() if modules is not None else [],
        module_classes=modules.classes() if modules is not None else [],
        flame=flame_graph(facts),
        findings=findings,
        combined=combined,
        plan=rows,
        checks=outcome.checks,
        throughput=sections.throughput(facts),
        serving=sections.serving(facts),
        rl_phases=sections.rl_phases(facts),
        cpu=tables.cpu(facts),
        whole_run=run_time,
        warnings=[] if failure is None else [f"{failure.sentence} {_COVERED}"],
        **companion_sections(facts),
    )


def _of_a_sample(finding: Finding) -> Finding:
    impact = "medium" if finding.impact == "high" else finding.impact
    return replace(finding, saving=None, impact=impact, confidence="low")


def _is_partial(facts: Facts) -> bool:
    """Whether so much of the GPU's work is missing from the file that its shares of time are not real."""
    quality, state = facts.quality, facts.state
    lacks_work = state is not None and state.name in ("lost_kernels", "hidden_work")
    lost = quality.launches_without_work > _LOST_SHARE * quality.launch_count
    return quality.damaged or lacks_work or lost


def _quality(facts: Facts, outcome: RulesOutcome) -> Quality:
    codes = {note.code for note in outcome.notes}
    unusable = {code for code in codes if code in UNUSABLE}
    if not facts.quality.gpu_expected:
        unusable.discard("TQ001")  # a CPU-only run without GPU work is fine
        codes.discard("TQ001")
    if unusable or facts.quality.cut_off:
        return Quality("unusable", outcome.notes, facts.quality.sampled_share)
    stretch = facts.captured.stretch or 1.0
    if facts.captured.corrected or 1 / UNLIKE < stretch < UNLIKE:
        codes -= set(_HARMLESS)
    return Quality("limited" if codes else "good", outcome.notes, facts.quality.sampled_share)


def _torch_version(header: Mapping[str, Any]) -> str | None:
    for holder in (header.get("traceopt"), header.get("metadata"), header):
        if isinstance(holder, Mapping):
            version = holder.get("torch_version") or holder.get("pytorch_version")
            if isinstance(version, str):
                return version
    return None
