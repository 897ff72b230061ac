"""The task of analyzing one rank: small, and sent to whichever process does it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from traceopt.analyzer.recordings.cycle_pairs import RankRecording
from traceopt.analyzer.work.throughput import Workload
from traceopt.rules.engine import prepare
from traceopt.rules.registry import Registry, load_rules
from traceopt.rules.rule import Rule


class RankOptions(Struct, frozen=True):
    """What determines the answer, in addition to the trace and the program."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    rules_dir: str | None = None
    thresholds: Mapping[str, Mapping[str, Any]] = {}
    devices: Mapping[str, Mapping[str, Any]] = {}  # peak rates of the user
    workload: Workload = field(default_factory=Workload)
    debug: bool = False


class SpansWanted(Struct):
    """Which other ranks the report may show, by the answers so far. All tasks share it, and it changes meanwhile."""

    most_exposed_us: float = math.inf  # communication per step of such a rank


class RankTask(Struct, frozen=True):
    """One rank to analyze."""

    recording: RankRecording
    options: RankOptions
    cache: str | None = None  # folder of earlier answers
    sharing: int = 1  # ranks whose spans share the room of the report
    whole: bool = True  # the whole document, even if this is not the lowest rank
    spans: SpansWanted = field(default_factory=SpansWanted)

    @property
    def label(self) -> str:
        return self.recording.source.label

    @property
    def here_only(self) -> bool:
        """Whether other processes cannot access the files."""
        return any(source.place.startswith("memory://") for source in self.recording.sources)

    @property
    def size_bytes(self) -> int:
        """Size of the files as stored."""
        return sum(source.size_bytes for source in self.recording.sources)


class Rules(Struct, frozen=True):
    """All rules, and those that the options select, with their thresholds."""

    registry: Registry
    chosen: list[Rule]


_loaded: list[tuple[RankOptions, Rules]] = []  # the latest: a worker analyzes many ranks with the same options


def load(options: RankOptions) -> Rules:
    """Raises ConfigError for an unknown rule or threshold, or a missing folder."""
    registry = load_rules(options.rules_dir)
    chosen = prepare(registry, select_codes=options.select, ignore_codes=options.ignore, thresholds=options.thresholds)
    _loaded[:] = [(options, Rules(registry, chosen))]
    return _loaded[0][1]


def loaded(options: RankOptions) -> Rules:
    """Like `load`, but does not load the rules of the latest options again."""
    return next((rules for known, rules in _loaded if known == options), None) or load(options)
