"""The public entry point: paths in, result document out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from traceopt import __version__, sections, sections_tables
from traceopt.analyzer.cycles import find_recordings
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks import summarize
from traceopt.analyzer.run_facts import RunFacts
from traceopt.analyzer.sources import find_sources
from traceopt.analyzer.throughput import Workload
from traceopt.errors import ConfigError, InputError, one_line
from traceopt.reading import Progress, read_recording
from traceopt.result import Check, Quality, RankRow, Recorded, Result, Run, Tool, TraceFile
from traceopt.rules.combine import combine
from traceopt.rules.engine import Outcome, prepare, run_rank_rules, run_rules, value_order
from traceopt.rules.finding import Confidence, Finding
from traceopt.rules.patches.patch import with_patches
from traceopt.rules.registry import load_rules
from traceopt.timeline import timeline
from traceopt.verdict import UNUSABLE, verdict

LESS_SURE: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}
_HARMLESS = ("TQ006",)  # notes that qualify single findings, not the trace


def analyze(
    paths: Sequence[str] | str,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    rules_dir: str | Path | None = None,
    thresholds: Mapping[str, Mapping[str, Any]] | None = None,
    source: Sequence[str | Path] | str | Path = (),
    tokens_per_step: float | None = None,
    samples_per_step: float | None = None,
    reference_throughput: float | None = None,
    debug: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Reads trace files or folders and returns the result document.

    `tokens_per_step` and `samples_per_step` are what one GPU processes in a step, `reference_throughput` the rate of
    one GPU to compare with: tokens a second, or samples where no tokens are given. With several files the document
    shows the lowest rank; findings of all ranks are merged by code and name theirs.

    `source`: folders with the source of what was recorded; fixes that can be made there come as patches.

    Raises InputError when there is no trace to read or no such folder, ConfigError for settings that do not exist.
    """
    folders = [Path(folder) for folder in ([source] if isinstance(source, (str, Path)) else source)]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"no such folder of source: {one_line(str(folder))}")
    found = find_sources([paths] if isinstance(paths, str) else list(paths))
    registry = load_rules(rules_dir)
    rules = prepare(registry, select_codes=select, ignore_codes=ignore, thresholds=thresholds)
    workload = _workload(tokens_per_step, samples_per_step, reference_throughput)
    warnings = [*registry.warnings, *found.skipped]
    results, ranks = [], []
    for recording in find_recordings(found.sources):
        try:
            trace = read_recording(recording, warnings, progress)
        except InputError as error:
            if recording.source.named:
                raise
            warnings.append(one_line(str(error)))
            continue
        if progress is not None:
            progress(f"analyzing {recording.source.label}")
        facts = Facts(trace, workload=workload)
        results.append(_document(facts, run_rules(rules, facts, debug=debug)))
        ranks.append(summarize(facts))
    if not results:
        raise InputError(warnings[-1] if warnings else "no trace file was found")
    compared = _with_ranks_compared(_merged(results, warnings), run_rank_rules(rules, RunFacts(ranks), debug=debug))
    return replace(compared, findings=with_patches(compared.findings, folders, debug=debug))


def _document(facts: Facts, outcome: Outcome) -> Result:
    meta = facts.trace.meta
    files = [one for one in (meta, meta.detail) if one is not None]
    quality = _quality(facts, outcome)
    breakdown = sections.breakdown(facts)
    rank = meta.rank
    findings = [replace(f, ranks=[] if rank is None else [rank], _price=None) for f in outcome.findings]
    if facts.quality.sampled_share is not None:  # shares of a sample are not those of the run
        findings = [replace(f, confidence="low") for f in findings]
    elif not facts.replay_trusted:  # savings are bounds, not replayed
        findings = [replace(f, confidence=LESS_SURE[f.confidence]) if f.saving else f for f in findings]
    step, gpu, loader = sections.step(facts), sections.gpu(facts), sections.dataloader(facts)
    communication = sections.communication(facts)
    headline = verdict(facts, quality, breakdown, outcome.findings)
    return Result(
        tool=Tool("traceopt", __version__),
        verdict=headline,
        run=Run(
            paths=[file.path for file in files],
            world_size=meta.world_size,
            ranks=[] if rank is None else [rank],
            shown_rank=rank,
            device=sections.device(facts),
            settings=sections.settings(facts),
            torch_version=_torch_version(meta.header),
            gpu_runtime=sections.gpu_runtime(facts),
            recorded=Recorded(
                gpu=facts.gpu.busy.total > 0,
                shapes=facts.lacks("shapes") is None,
                stacks=facts.lacks("stacks") is None,
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
        kernels=sections_tables.kernels(facts),
        ops=sections_tables.ops(facts),
        gemms=sections_tables.gemms(facts),
        ranks=[
            RankRow(
                rank=rank,
                path=meta.path,
                step_median_us=step.median_us,
                gpu_busy_share=gpu.busy_share,
                dataloader_stall_us=loader.stall_us_per_step,
                exposed_communication_us=communication.exposed_us_per_step,
                verdict=quality.verdict,
            )
        ],
        timeline=timeline(facts),
        findings=findings,
        combined=combine(outcome.findings, facts),
        checks=outcome.checks,
        throughput=sections.throughput(facts),
    )


def _workload(tokens: float | None, samples: float | None, reference: float | None) -> Workload:
    """Raises ConfigError for amounts that make no sense."""
    named = {"tokens-per-step": tokens, "samples-per-step": samples, "reference-throughput": reference}
    for name, amount in named.items():
        if amount is not None and not (0 < amount < math.inf):
            raise ConfigError(f"{name}: expected a number above 0, got {amount:g}")
    if reference is not None and tokens is None and samples is None:
        raise ConfigError("reference-throughput needs tokens-per-step or samples-per-step to compare with")
    return Workload(tokens, samples, reference)


def _quality(facts: Facts, outcome: Outcome) -> Quality:
    codes = {note.code for note in outcome.notes}
    unusable = {code for code in codes if code in UNUSABLE}
    if not facts.quality.gpu_expected:
        unusable.discard("TQ001")  # a CPU-only run is judged as such
        codes.discard("TQ001")
    if unusable:
        return Quality("unusable", outcome.notes)
    return Quality("limited" if codes - set(_HARMLESS) else "good", outcome.notes)


def _torch_version(header: Mapping[str, Any]) -> str | None:
    for holder in (header.get("traceopt"), header.get("metadata"), header):
        if isinstance(holder, Mapping):
            version = holder.get("torch_version") or holder.get("pytorch_version")
            if isinstance(version, str):
                return version
    return None


def _merged_checks(results: list[Result]) -> list[Check]:
    """Each rule's answer: what it found on any rank, else what the first rank says."""
    by_rule = zip(*(r.checks for r in results), strict=True)
    return [next((c for c in checks if c.status == "found"), checks[0]) for checks in by_rule]


def _with_ranks_compared(result: Result, outcome: Outcome) -> Result:
    """The document with what the rules found that see all ranks."""
    return replace(
        result,
        findings=sorted([*result.findings, *outcome.findings], key=value_order),
        quality=replace(result.quality, notes=[*result.quality.notes, *outcome.notes]),
        checks=[*result.checks, *outcome.checks],
    )


def _same(a: Finding, b: Finding) -> bool:
    """Whether two ranks found the same thing at the same place."""
    return a.code == b.code and (a.locations[:1] == b.locations[:1] or not a.locations or not b.locations)


def _merged(results: list[Result], warnings: list[str]) -> Result:
    """One document of several files: the lowest rank's, with every rank's row and findings."""
    shown = min(results, key=lambda r: (r.run.shown_rank is None, r.run.shown_rank or 0))
    others = [r for r in results if r is not shown]
    findings = list(shown.findings)
    for other in others:
        for finding in other.findings:
            index = next((i for i, f in enumerate(findings) if _same(f, finding)), None)
            if index is None:
                findings.append(finding)
            else:
                known = findings[index]
                findings[index] = replace(known, ranks=sorted({*known.ranks, *finding.ranks}))
    ranks = sorted({rank for r in results for rank in r.run.ranks})
    findings.sort(key=value_order)
    # What the fixes give together is told of the first rank that the most valuable one helps.
    together = [r.combined for r in (shown, *others) if r.combined is not None]
    combined = next((c for c in together if findings[0].code in c.codes), None)
    run = replace(
        shown.run,
        paths=[path for r in results for path in r.run.paths],
        ranks=ranks,
        files=[file for r in results for file in r.run.files],
    )
    return replace(
        shown,
        run=run,
        findings=findings,
        combined=combined,
        checks=_merged_checks(results),
        ranks=[row for r in results for row in r.ranks],
        warnings=warnings,
    )
