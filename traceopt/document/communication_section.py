"""Collectives, process groups, overlap, pipeline stages and experts of one rank, as sections of the result document."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.communication.experts import ExpertLoad
from traceopt.analyzer.communication.pipeline import PipelineStage
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION
from traceopt.result.sections.rank_rows import (
    Collective,
    CommunicationGroup,
    ExpertLayerRow,
    ExpertRow,
    GroupOverlapRow,
    PipelineRow,
)
from traceopt.result.sections.step import Communication
from traceopt.result.words.rounding import rate, share, us
from traceopt.rules.evidence import location_of

MOST_OVERLAPS = 200  # rows


def communication_section(facts: Facts) -> Communication:
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
        us_per_step=us(max(total, exposed) / count),  # on a CPU, the step also waits for the call to begin and to end
        exposed_us_per_step=us(exposed / count),
        overlap_share=share(1 - exposed / total),
        collectives=rows,
        groups=_groups(facts),
        overlaps=_overlaps(facts),
        pipeline=[pipeline_row(facts.trace.meta.rank, stage)] if (stage := facts.pipeline_stage) is not None else [],
        expert_capacity=facts.expert_capacity,
        experts=expert_rows([(facts.trace.meta.rank, load)] if (load := facts.expert_load) is not None else []),
    )


def _overlaps(facts: Facts) -> list[GroupOverlapRow]:
    called = {group.name: group.description or group.name for group in facts.process_groups}
    return [
        GroupOverlapRow(
            group=called[overlap.group.name],
            beside=called[overlap.beside] if overlap.is_group else overlap.beside,
            is_group=overlap.is_group,
            us_per_step=us(overlap.ns / facts.steps.count),
            share=share(overlap.ns / overlap.of_ns),
        )
        for overlap in facts.group_overlaps[:MOST_OVERLAPS]
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


def expert_layer_rows(run: RunFacts) -> list[ExpertLayerRow]:
    return [
        ExpertLayerRow(layer.name, run.ranks[layer.hot].rank, rate(layer.tokens.max()), rate(layer.of_mean))
        for layer in (run.experts.layers if run.experts is not None and len(run.ranks) > 1 else [])
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
        ran_ns = sum(int(calls.duration.sum()) for calls in group.by_kind)
        bus_gb_per_s = over_link / ran_ns if over_link and ran_ns else None
        rows.append(
            CommunicationGroup(
                name=group.name,
                description=group.description,
                parallelism=group.parallelism,
                size=group.size or None,
                ranks=list(group.ranks),
                collectives=[calls.name for calls in group.by_kind],
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
