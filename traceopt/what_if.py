"""`traceopt whatif`: replays the step with fixes applied, or with kernels or host work scaled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.attribution.limits import clear_limit, limit_of
from traceopt.analyzer.companions.companions import read_companions
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.joint_replay import Ranks
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.analyzer.recordings.rank_trace import read_recording
from traceopt.analyzer.recordings.runs import find_runs, pick_run, with_companions
from traceopt.analyzer.replay.changes import Change, RemoveHost, ScaleWork
from traceopt.analyzer.replay.error import ReplayError
from traceopt.analyzer.replay.replayed import Replayed
from traceopt.analyzer.unprofiled import without_profiler
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.config import checked_devices
from traceopt.document import sections
from traceopt.document.plan_rows import parts_after, parts_left, parts_of
from traceopt.errors import InputError
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.what_if import ReplayCheck, WhatIf, WhatIfFix, WhatIfPart
from traceopt.result.words.rounding import share, us
from traceopt.rules.bases.rank_rule import RunRule
from traceopt.rules.engine import prepare, run_rank_rules, run_rules
from traceopt.rules.fingerprint import code_of, with_ids
from traceopt.rules.plan import Planned, best_choice, rows_of
from traceopt.rules.registry import load_rules
from traceopt.rules.rule import Rule
from traceopt.rules.savings.joint import JointSavings
from traceopt.rules.savings.price import Priced
from traceopt.workers.progress_line import ShowProgress

Scale = tuple[str, float]
Matches = Callable[[str], object]

MOST_RANKS = 16  # replayed together; all their traces are in memory at once


def what_if(
    path: str,
    fixes: Sequence[str] = (),
    scales: Sequence[Scale] = (),
    *,
    run: str | None = None,
    rules_dir: str | Path | None = None,
    thresholds: Mapping[str, Mapping[str, Any]] | None = None,
    devices: Mapping[str, Mapping[str, Any]] | None = None,
    progress: ShowProgress | None = None,
) -> WhatIf:
    """Replays a trace, or all ranks of a run together, with fixes and scales applied. `run`: the newest by default.

    `fixes` are rule codes or names, or ids of findings, `scales` pairs such as ("kernel~gemm", 0.5). Raises
    InputError for a path without a trace or with too many ranks, for a fix that no finding proposes, and for a
    scale that matches nothing. Raises ConfigError for a rule or a peak rate that does not exist.
    """
    warnings: list[str] = []
    peaks = checked_devices(devices or {})
    found = find_sources([path])
    every_run = with_companions(find_runs(find_recordings(found.traces)), found.companions)
    chosen_run, others = pick_run(every_run, run)
    recordings = [one for one in chosen_run.recordings if one.engine is None]  # engines have ranks of their own
    warnings += [others] if others else []
    if not 1 <= len(recordings) <= MOST_RANKS:
        raise InputError(f"{path} has {len(recordings)} traces; at most {MOST_RANKS} ranks can be replayed together")
    facts = []
    for recording in recordings:
        if progress is not None:
            progress(f"reading {recording.source.label}")
        companions = read_companions(recording.companions, warnings)
        trace = read_recording(recording, warnings)
        facts.append(without_profiler(Facts(trace, peaks, companions=companions)))
        if facts[-1].quality.sampled_share is not None:
            raise InputError(f"{recording.source.label} holds only a sample of the events, so nothing can be replayed")
        if facts[-1].replay_error is None:
            raise InputError(f"{recording.source.label} holds no launch of its GPU work, so nothing can be replayed")
    ranks = Ranks(facts)
    if len(ranks.facts) > 1 and (reason := ranks.run.incomparable) is not None:
        raise InputError(f"{path} has {len(recordings)} traces; pass the file of one rank. {reason}")
    registry = load_rules(rules_dir)
    rules = prepare(registry, thresholds=thresholds)
    wanted = dict.fromkeys(fix if code_of(fix) != fix else registry.find(fix).code for fix in fixes)
    scaled = [_scaled(ranks.facts, what, factor) for what, factor in scales]
    answer = _of_ranks(ranks, rules, wanted, scaled) if len(facts) > 1 else _of_one(facts[0], rules, wanted, scaled)
    changes = [*dict.fromkeys(fixes), *(f"{what} x {factor:g}" for what, factor in scales)]
    where = facts[0].trace.meta.path if len(facts) == 1 else path
    return _document(where, ranks, answer, changes, [*registry.warnings, *warnings, *answer.left_out])


class _Answer(Struct, frozen=True):
    """The step with the changes. `breakdown`: of the first rank as it is; `left_of_parts`: us with the changes, empty
    if they are not known. `left_out`: sentences on fixes that are not applied.
    """

    fixes: list[WhatIfFix]
    before_us: float
    after_us: float
    saving_us: float
    breakdown: list[BreakdownPart]
    left_of_parts: dict[Cause, float]
    left_out: list[str] = []


def _of_one(
    facts: Facts, rules: Sequence[Rule], wanted: Iterable[str], scaled: Sequence[list[list[Change]]]
) -> _Answer:
    """The step of one trace as `traceopt analyze` computes it, for any of its fixes in the order of its plan."""
    outcome = run_rules(rules, facts)
    findings = with_ids(outcome.findings)
    found = [replace(one, finding=finding) for one, finding in zip(outcome.priced, findings, strict=True)]
    chosen = list[Priced]()
    for fix in wanted:
        mine = [one for one in found if fix in (one.finding.code, one.finding.id)]
        if not mine:
            raise InputError(_nothing_to_fix(fix, [one.finding.code for one in found if one.price is not None]))
        if all(one.price is None for one in mine):
            raise InputError(f"{fix} does not say what its fix saves, so it cannot be replayed")
        chosen += mine
    priced = [one for one in found if one in chosen and one.price is not None]
    savings = JointSavings(facts, [change for by_rank in scaled for change in by_rank[0]])
    rows = outcome.plan.rows if outcome.plan is not None else []
    planned = [one for one in found[: len(rows)] if one in priced]
    fixes = best_choice(_beside(priced, planned), savings) if priced else []
    saved_ns, breakdown = savings.of(fixes), sections.breakdown(facts)
    left_us = us(savings.step_ns - saved_ns)
    return _Answer(
        [_applied(row) for row in rows_of(fixes, savings)],
        us(savings.step_ns),
        left_us,
        us(saved_ns),
        breakdown,
        parts_after(breakdown, left_us, savings.changes(fixes), fixes, facts),
        [_left_out(one) for one in priced if one not in fixes],
    )


def _beside(priced: Sequence[Priced], planned: Sequence[Priced]) -> list[Priced]:
    """The fixes without rivals of those that the plan chose: a code may have several findings."""
    return [one for one in priced if one in planned or not any(one.shares_cause_with(fix) for fix in planned)]


def _applied(row: Planned) -> WhatIfFix:
    finding = row.fix.finding
    place = str(finding.locations[0]) if finding.locations else None
    return WhatIfFix(finding.code, finding.title, place, us(row.alone_ns), us(row.saving_ns), capped=row.capped)


def _left_out(one: Priced) -> str:
    finding = one.finding
    where = f" ({finding.locations[0]})" if finding.locations else ""
    return f"{finding.code}{where} is left out: another of these fixes treats the same cause."


def _nothing_to_fix(fix: str, known: Sequence[str]) -> str:
    return f"{fix} finds nothing to fix in this trace; you can replay: {', '.join(dict.fromkeys(known)) or 'nothing'}"


def _of_ranks(
    ranks: Ranks, rules: Sequence[Rule], wanted: Iterable[str], scaled: Sequence[list[list[Change]]]
) -> _Answer:
    """The median step of ranks that are replayed together. Nothing limits what a fix saves: what was measured on one
    rank does not say what the others gain.
    """
    fixes, unchanged = _fixes_of_ranks(ranks, rules, wanted), ranks.replay([[] for _ in ranks.facts])
    step_ns = median([facts.step_ns for facts in ranks.facts])
    to_measured = step_ns / median([one.step_ns for one in unchanged])  # corrects a small error of the replay

    def replayed(changes: Sequence[Sequence[Sequence[Change]]]) -> list[Replayed]:
        return ranks.replay([[change for one in changes for change in one[rank]] for rank in range(len(ranks.facts))])

    def left_ns(ranks: Sequence[Replayed]) -> float:
        return median([rank.step_ns for rank in ranks]) * to_measured

    after = [replayed([*scaled, *(fix.changes for fix in fixes[:count])]) for count in range(len(fixes) + 1)]
    left = [left_ns(one) for one in after]
    first, breakdown = ranks.facts[0], sections.breakdown(ranks.facts[0])
    first_us = us(first.step_ns * after[-1][0].step_ns / unchanged[0].step_ns)
    return _Answer(
        [
            WhatIfFix(
                fix.code,
                fix.title,
                None,
                us(step_ns - left_ns(replayed([fix.changes]))),
                us(left[place] - left[place + 1]),
                capped=False,
            )
            for place, fix in enumerate(fixes)
        ],
        us(step_ns),
        us(left[-1]),
        us(step_ns - left[-1]),
        breakdown,
        parts_left(parts_of(breakdown), first_us, unchanged[0], after[-1][0], first),
    )


class _FixOfRanks(Struct, frozen=True):
    """The fix of a finding, with its changes on each rank."""

    code: str
    title: str
    changes: list[list[Change]]


def _fixes_of_ranks(ranks: Ranks, rules: Sequence[Rule], wanted: Iterable[str]) -> list[_FixOfRanks]:
    codes = dict.fromkeys(map(code_of, wanted))
    found = [run_rules(rules, facts).priced for facts in ranks.facts]
    of_run = run_rank_rules(rules, ranks.run).priced
    remedies = {rule.code: rule.remedy(ranks) for rule in rules if isinstance(rule, RunRule) and rule.code in codes}
    chosen = list[_FixOfRanks]()
    for code in codes:
        titles = dict.fromkeys(f.finding.title for ones in (*found, of_run) for f in ones if f.finding.code == code)
        if not titles:
            known = [one.finding.code for ones in (*found, of_run) for one in ones if one.changes or ones is of_run]
            raise InputError(_nothing_to_fix(code, known))
        remedy = remedies.get(code)
        if remedy is not None:
            fixes = [_FixOfRanks(code, next(iter(titles)), [list(own) for own in remedy])]
        else:
            fixes = [_FixOfRanks(code, title, [_changes(own, code, title) for own in found]) for title in titles]
        if not any(own for fix in fixes for own in fix.changes):
            raise InputError(f"{code} does not say what its fix changes, so it cannot be replayed")
        chosen += fixes
    return chosen


def _changes(priced: Sequence[Priced], code: str, title: str) -> list[Change]:
    mine = (one for one in priced if (one.finding.code, one.finding.title) == (code, title))
    return [change for one in mine for change in one.changes]


def _scaled(ranks: Sequence[Facts], what: str, factor: float) -> list[list[Change]]:
    """The changes of one scale, by rank.

    "kernel~PATTERN" matches names and kinds of GPU work, "host~PATTERN" the names of host events.
    """
    side, _, pattern = what.partition("~")
    if side not in ("kernel", "host") or not pattern:
        raise InputError(f"cannot scale {what!r}: write kernel~PATTERN or host~PATTERN")
    if not 0 <= factor < float("inf"):
        raise InputError(f"cannot scale {what!r} by {factor:g}: the factor must be 0 or more")
    try:
        matches = re.compile(pattern, re.IGNORECASE).search
    except re.error as error:
        raise InputError(f"cannot scale {what!r}: {error}") from error
    scale = _scaled_kernels if side == "kernel" else _scaled_host
    changes = [scale(facts, matches, factor) for facts in ranks]
    if not any(changes):
        raise InputError(
            f"no kernel matches {pattern!r}" if side == "kernel" else f"nothing on the host matches {pattern!r}"
        )
    return changes


def _scaled_kernels(facts: Facts, matches: Matches, factor: float) -> list[Change]:
    fits = np.array([matches(name) is not None for name in facts.trace.names] or [False])
    kinds = [kind for kind in facts.gpu.kind.used if matches(kind)]
    work = fits[facts.gpu.work.name] | facts.gpu.kind.among(*kinds)
    return [ScaleWork(work, factor)] if work.any() else []


def _scaled_host(facts: Facts, matches: Matches, factor: float) -> list[Change]:
    fits = np.array([matches(name) is not None for name in facts.trace.names] or [False])
    slices = fits[facts.slices.name]
    area = facts.slices.area_of(slices)
    return [RemoveHost(area, 1 - factor)] if slices.any() else []


def _document(path: str, ranks: Ranks, answer: _Answer, changes: list[str], warnings: list[str]) -> WhatIf:
    graphs = [facts.replay_graph for facts in ranks.facts]
    errors = [facts.replay_error for facts in ranks.facts if facts.replay_error is not None]
    worst = max(errors, key=lambda error: error.share)
    left = answer.left_of_parts
    limit = clear_limit(left) if left else None
    return WhatIf(
        path=path,
        ranks=len(ranks.facts),
        meetings=ranks.meetings if len(ranks.facts) > 1 else 0,
        steps=ranks.facts[0].recorded_steps.count,
        changes=changes,
        fixes=answer.fixes,
        before_us=answer.before_us,
        after_us=answer.after_us,
        saving_us=answer.saving_us,
        saving_share=round(answer.saving_us / answer.before_us, 6),
        limit_before=limit_of(parts_of(answer.breakdown)).key,
        limit_after=limit.key if limit is not None else None,
        parts=_parts(answer.breakdown, left, ranks.facts[0]),
        replay_error_share=share(worst.share),
        replay_check=_checked(worst),
        trusted=all(facts.replay_trusted for facts in ranks.facts),
        waits=sum(int((graph.rows.awaits >= 0).sum()) for graph in graphs),
        inferred_waits=sum(int(graph.inferred.sum()) for graph in graphs),
        warnings=warnings,
    )


def _parts(breakdown: Sequence[BreakdownPart], left: Mapping[Cause, float], facts: Facts) -> list[WhatIfPart]:
    """Those of the breakdown, then those that only the changed step has."""
    now = parts_of(breakdown)
    return [
        WhatIfPart(part.key, facts.label(part), now.get(part, 0.0), round(left.get(part, 0.0), 3) if left else None)
        for part in dict.fromkeys([*now, *left])
        if now.get(part, 0.0) or us(left.get(part, 0.0) * 1e3)
    ]


def _checked(error: ReplayError) -> ReplayCheck:
    prediction = error.prediction
    return ReplayCheck(
        missed_share=share(error.missed_share),
        predicted_share=share(prediction.error_share) if prediction is not None else None,
        usual_share=share(prediction.usual_share) if prediction is not None else None,
        blocked_share=share(error.blocked_share),
    )
