"""What the step takes with some fixes made, or with kernels or host work scaled: `traceopt whatif`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from traceopt.analyzer.cycles import find_recordings
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.intervals import union
from traceopt.analyzer.replay.changes import Change, RemoveHost, ScaleWork
from traceopt.analyzer.replay.parts import labels_of, limit_of, parts_of
from traceopt.analyzer.replay.whatif import replay
from traceopt.analyzer.sources import find_sources
from traceopt.errors import InputError
from traceopt.reading import Progress, read_recording
from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.finding import Finding
from traceopt.rules.registry import load_rules
from traceopt.units import share, us

Scale = tuple[str, float]


@dataclass(frozen=True, slots=True)
class WhatIfPart:
    """A part of the mean step, as in the breakdown."""

    name: str
    label: str
    before_us: float
    after_us: float


@dataclass(frozen=True, slots=True)
class WhatIfFix:
    """A finding whose fix is made. `alone_us`: what its fix alone gives back in the replay."""

    code: str
    title: str
    alone_us: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The replayed step without and with the changes; `limit`: the part that limits it.

    Parts are of the mean step, the step is the median one. `replay_error_share`: how far a replay without a change is
    off; None where there was nothing to replay. `inferred_waits` of `waits` were not recorded but inferred.
    """

    path: str
    steps: int
    changes: list[str]
    fixes: list[WhatIfFix]
    before_us: float
    after_us: float
    saving_us: float
    saving_share: float
    limit_before: str
    limit_after: str
    parts: list[WhatIfPart]
    replay_error_share: float | None
    trusted: bool
    waits: int
    inferred_waits: int
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> bytes:
        return orjson.dumps(self, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def what_if(
    path: str,
    fixes: Sequence[str] = (),
    scales: Sequence[Scale] = (),
    *,
    rules_dir: str | Path | None = None,
    thresholds: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """Replays one trace with the fixes of findings (by rule code or name) and with scales such as ("kernel~gemm", 0.5).

    Raises InputError for a path that is not one trace, a fix that no finding proposes, a scale that fits nothing;
    ConfigError for a rule that does not exist.
    """
    warnings: list[str] = []
    recordings = find_recordings(find_sources([path]).sources)
    if len(recordings) != 1:
        raise InputError(f"{path} holds {len(recordings)} traces; name the file of one rank")
    facts = Facts(read_recording(recordings[0], warnings, progress))
    registry = load_rules(rules_dir)
    warnings = [*registry.warnings, *warnings]
    rules = prepare(registry, thresholds=thresholds)
    findings = run_rules(rules, facts).findings if fixes else []
    chosen = [found for key in fixes for found in _of_rule(findings, registry.find(key).code)]
    changes = [change for found in chosen for change in found.changes]
    changes += [_scaled(facts, what, factor) for what, factor in scales]
    return _document(facts, list(dict.fromkeys(fixes)), chosen, changes, scales, warnings)


def _of_rule(findings: Sequence[Finding], code: str) -> list[Finding]:
    found = [finding for finding in findings if finding.code == code]
    if not found:
        known = ", ".join(dict.fromkeys(f.code for f in findings if f.changes)) or "nothing"
        raise InputError(f"{code} finds nothing to fix in this trace; what can be replayed: {known}")
    if not any(finding.changes for finding in found):
        raise InputError(f"what the fix of {code} changes is not known, so it cannot be replayed")
    return found


def _scaled(facts: Facts, what: str, factor: float) -> Change:
    """ "kernel~TEXT": device work whose name or kind matches; "host~TEXT": host time in what has such a name."""
    side, _, pattern = what.partition("~")
    if side not in ("kernel", "host") or not pattern:
        raise InputError(f"cannot scale {what!r}: write kernel~PATTERN or host~PATTERN")
    if not 0 <= factor < float("inf"):
        raise InputError(f"cannot scale {what!r} by {factor:g}: give a number from 0 on")
    try:
        matches = re.compile(pattern, re.IGNORECASE).search
    except re.error as error:
        raise InputError(f"cannot scale {what!r}: {error}") from error
    fits = np.array([matches(name) is not None for name in facts.trace.names] or [False])
    if side == "kernel":
        kinds = {kind for kind in np.unique(facts.gpu.kind).tolist() if matches(kind)}
        work = fits[facts.gpu.work.name] | np.isin(facts.gpu.kind, sorted(kinds))
        if not work.any():
            raise InputError(f"no kernel matches {pattern!r}")
        return ScaleWork(work, factor)
    slices = fits[facts.slices.name]
    if not slices.any():
        raise InputError(f"nothing on the host matches {pattern!r}")
    return RemoveHost(union(facts.slices.start[slices], facts.slices.end[slices]), 1 - factor)


def _document(
    facts: Facts,
    fixes: list[str],
    chosen: list[Finding],
    changes: list[Change],
    scales: Sequence[Scale],
    warnings: list[str],
) -> WhatIf:
    before, after = facts.replayed, replay(facts, changes)
    to_measured = facts.step_ns / before.step_ns  # the replay may miss the step a little
    parts_before, parts_after = parts_of(facts, before), parts_of(facts, after)
    labels = labels_of(facts)
    graph, error = facts.replay_graph, facts.replay_error
    return WhatIf(
        path=facts.trace.meta.path,
        steps=facts.steps.count,
        changes=[*fixes, *(f"{what} x {factor:g}" for what, factor in scales)],
        fixes=[
            WhatIfFix(f.code, f.title, us((before.step_ns - replay(facts, f.changes).step_ns) * to_measured))
            for f in chosen
        ],
        before_us=us(facts.step_ns),
        after_us=us(after.step_ns * to_measured),
        saving_us=us(facts.step_ns - after.step_ns * to_measured),
        saving_share=round(1 - after.step_ns / before.step_ns, 6),
        limit_before=limit_of(parts_before),
        limit_after=limit_of(parts_after),
        parts=[
            WhatIfPart(name, labels[name], us(ns), us(parts_after[name]))
            for name, ns in parts_before.items()
            if us(ns) or us(parts_after[name])
        ],
        replay_error_share=None if error is None else share(error.share),
        trusted=facts.replay_trusted,
        waits=int((graph.rows.awaits >= 0).sum()),
        inferred_waits=int(graph.inferred.sum()),
        warnings=warnings,
    )
