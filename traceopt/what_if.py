"""`traceopt whatif`: replays the step with fixes applied, or with kernels or host work scaled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.attribution.limits import limit_of
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.joint_replay import Ranks
from traceopt.analyzer.reading.sources import find_traces
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.analyzer.recordings.rank_trace import read_recording
from traceopt.analyzer.recordings.runs import find_runs, pick_run
from traceopt.analyzer.replay.changes import Change, RemoveHost, ScaleWork
from traceopt.analyzer.replay.error import ReplayError
from traceopt.analyzer.replay.replayed import Replayed
from traceopt.analyzer.unprofiled import without_profiler
from traceopt.config import checked_devices
from traceopt.errors import InputError
from traceopt.result.what_if import ReplayCheck, WhatIf, WhatIfFix, WhatIfPart
from traceopt.result.words.rounding import share, us
from traceopt.rules.bases.rank_rule import RunRule
from traceopt.rules.engine import prepare, run_rank_rules, run_rules
from traceopt.rules.registry import load_rules
from traceopt.rules.rule import Rule
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

    `fixes` are rule codes or names, `scales` pairs such as ("kernel~gemm", 0.5). Raises InputError for a path without a
    trace or with too many ranks, for a fix that no finding proposes, and for a scale that matches nothing. Raises
    ConfigError for a rule or a peak rate that does not exist.
    """
    warnings: list[str] = []
    peaks = checked_devices(devices or {})
    chosen_run, others = pick_run(find_runs(find_recordings(find_traces([path]))), run)
    recordings = [one for one in chosen_run.recordings if one.engine is None]  # engines have ranks of their own
    warnings += [others] if others else []
    if not 1 <= len(recordings) <= MOST_RANKS:
        raise InputError(f"{path} has {len(recordings)} traces; at most {MOST_RANKS} ranks can be replayed together")
    facts = []
    for recording in recordings:
        if progress is not None:
            progress(f"reading {recording.source.label}")
        facts.append(without_profiler(Facts(read_recording(recording, warnings), peaks)))
        if facts[-1].quality.sampled_share is not None:
            raise InputError(f"{recording.source.label} holds only a sample of the events, so nothing can be replayed")
        if facts[-1].replay_error is None:
            raise InputError(f"{recording.source.label} holds no launch of its GPU work, so nothing can be replayed")
    ranks = Ranks(facts)
    if len(ranks.facts) > 1 and (reason := ranks.run.incomparable) is not None:
        raise InputError(f"{path} has {len(recordings)} traces; pass the file of one rank. {reason}")
    registry = load_rules(rules_dir)
    rules = prepare(registry, thresholds=thresholds)
    chosen = _chosen(ranks, rules, [registry.find(key).code for key in fixes]) if fixes else []
    scaled = [_scaled(ranks.facts, what, factor) for what, factor in scales]
    changes = [f"{what} x {factor:g}" for what, factor in scales]
    return _document(path, ranks, chosen, scaled, [*dict.fromkeys(fixes), *changes], [*registry.warnings, *warnings])


class _AppliedFix(Struct, frozen=True):
    """The fix of a finding, with its changes on each rank. `most_ns`: what was measured of it per step. A replay of one
    rank cannot exceed it; it is infinite for several ranks.
    """

    code: str
    title: str
    changes: list[list[Change]]
    most_ns: float = inf


def _chosen(ranks: Ranks, rules: Sequence[Rule], codes: Sequence[str]) -> list[_AppliedFix]:
    found = [run_rules(rules, facts).priced for facts in ranks.facts]
    of_run = run_rank_rules(rules, ranks.run).priced if len(found) > 1 else []
    remedies = {rule.code: rule.remedy(ranks) for rule in rules if isinstance(rule, RunRule) and rule.code in codes}
    chosen = []
    for code in codes:
        titles = dict.fromkeys(f.finding.title for ones in (*found, of_run) for f in ones if f.finding.code == code)
        if not titles:
            known = [one.finding.code for ones in found for one in ones if one.changes]
            known += [one.finding.code for one in of_run]
            possible = ", ".join(dict.fromkeys(known)) or "nothing"
            raise InputError(f"{code} finds nothing to fix in this trace; you can replay: {possible}")
        fixes = [
            _AppliedFix(
                code,
                title,
                [[change for one in ones for change in one.changes] for ones in by_rank],
                _measured_ns(by_rank[0]) if len(by_rank) == 1 else inf,
            )
            for title in titles
            for by_rank in [[_of(priced, code, title) for priced in found]]
        ]
        if (remedy := remedies.get(code)) is not None:
            fixes = [_AppliedFix(code, next(iter(titles)), [list(own) for own in remedy])]
        if not any(own for fix in fixes for own in fix.changes):
            raise InputError(f"{code} does not say what its fix changes, so it cannot be replayed")
        chosen += fixes
    return chosen


def _of(priced: Sequence[Priced], code: str, title: str) -> list[Priced]:
    return [one for one in priced if (one.finding.code, one.finding.title) == (code, title)]


def _measured_ns(priced: Sequence[Priced]) -> float:
    """The most that the plan expects of these findings together."""
    return sum(one.price.bounds_ns[1] for one in priced if one.price is not None and one.changes)


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
    area = union(facts.slices.start[slices], facts.slices.end[slices])
    return [RemoveHost(area, 1 - factor)] if slices.any() else []


def _document(
    path: str,
    ranks: Ranks,
    chosen: list[_AppliedFix],
    scaled: list[list[list[Change]]],
    names: list[str],
    warnings: list[str],
) -> WhatIf:
    everything = [*(fix.changes for fix in chosen), *scaled]
    before, after = ranks.replay(_together(ranks, [])), ranks.replay(_together(ranks, everything))
    step_ns, before_ns = _median(ranks.facts), _median(before)
    to_measured = step_ns / before_ns  # corrects a small error of the replay
    most_ns = inf if scaled else sum(fix.most_ns for fix in chosen)
    replayed_ns = (before_ns - _median(after)) * to_measured
    saved_ns = min(replayed_ns, most_ns)
    reached = saved_ns / replayed_ns if saved_ns < replayed_ns else 1.0  # by the parts, too
    first = ranks.facts[0]
    parts_before, replayed_parts = first.parts_of(before[0]), first.parts_of(after[0])
    parts_after = {part: ns + reached * (replayed_parts[part] - ns) for part, ns in parts_before.items()}
    graphs = [facts.replay_graph for facts in ranks.facts]
    errors = [facts.replay_error for facts in ranks.facts if facts.replay_error is not None]
    worst = max(errors, key=lambda error: error.share)
    return WhatIf(
        path=first.trace.meta.path if len(ranks.facts) == 1 else path,
        ranks=len(ranks.facts),
        meetings=ranks.meetings if len(ranks.facts) > 1 else 0,
        steps=first.recorded_steps.count,
        changes=names,
        fixes=[
            WhatIfFix(
                fix.code,
                fix.title,
                us(
                    min(fix.most_ns, (before_ns - _median(ranks.replay(_together(ranks, [fix.changes])))) * to_measured)
                ),
            )
            for fix in chosen
        ],
        before_us=us(step_ns),
        after_us=us(step_ns - saved_ns),
        saving_us=us(saved_ns),
        saving_share=round(saved_ns / step_ns, 6),
        limit_before=limit_of(parts_before).key,
        limit_after=limit_of(parts_after).key,
        parts=[
            WhatIfPart(part.key, first.label(part), us(ns * to_measured), us(parts_after[part] * to_measured))
            for part, ns in parts_before.items()
            if us(ns) or us(parts_after[part])
        ],
        replay_error_share=share(worst.share),
        replay_check=_checked(worst),
        trusted=all(facts.replay_trusted for facts in ranks.facts),
        waits=sum(int((graph.rows.awaits >= 0).sum()) for graph in graphs),
        inferred_waits=sum(int(graph.inferred.sum()) for graph in graphs),
        warnings=warnings,
    )


def _checked(error: ReplayError) -> ReplayCheck:
    prediction = error.prediction
    return ReplayCheck(
        missed_share=share(error.missed_share),
        predicted_share=share(prediction.error_share) if prediction is not None else None,
        usual_share=share(prediction.usual_share) if prediction is not None else None,
        blocked_share=share(error.blocked_share),
    )


def _together(ranks: Ranks, changes: Sequence[Sequence[Sequence[Change]]]) -> list[list[Change]]:
    """All changes, by rank."""
    return [[change for by_rank in changes for change in by_rank[rank]] for rank in range(len(ranks.facts))]


def _median(ranks: Sequence[Facts] | Sequence[Replayed]) -> float:
    return median([rank.step_ns for rank in ranks])
