"""Tells runs apart: traces of one job are analyzed together, traces of different jobs never.

A training and its inference engines are one job, although each counts its own ranks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from traceopt.analyzer.reading.sources import CompanionFile, TraceSource, local_source, printable
from traceopt.analyzer.recordings.cycle_pairs import RankRecording
from traceopt.analyzer.recordings.heads import Head
from traceopt.analyzer.recordings.process_tasks import ProcessTask, find_tasks
from traceopt.analyzer.vocabulary.companion_kinds import TRIALS_FILE, is_of_all_ranks
from traceopt.errors import InputError, suggestion

RANKS_APART_S = 600  # ranks of one run record the same steps; their clocks may differ
UNKNOWN_APART_S = 10  # files of one folder that do not say their rank: ranks begin a step together
MOST_NAMED = 5
TRIALS_ABOVE = 2  # folders: traceopt tune records rounds in folders of their own
_ENDING = re.compile(r"(\.pt\.trace)?\.json(\.gz)?$|\.zip$", re.IGNORECASE)


class Run(Struct, frozen=True):
    """The recordings of the ranks of one job, in the order in which they were found. `start_s`: since 1970, or None."""

    name: str
    recordings: list[RankRecording]
    start_s: float | None = None

    @property
    def title(self) -> str:
        """ "branch (2026-04-01 21:22 UTC)"."""
        if self.start_s is None:
            return self.name
        return f"{self.name} ({datetime.fromtimestamp(self.start_s, timezone.utc):%Y-%m-%d %H:%M} UTC)"


class _Group(Struct):
    """A run to which recordings are added. Those that say no rank belong together if they are of one folder, of one
    time and of several processes, and their names differ only in numbers.
    """

    members: list[tuple[int, RankRecording]] = []  # with their places
    ranks: set[int] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    world_size: int | None = None
    start_s: float | None = None
    all_ranks_known: bool = True
    task: ProcessTask | None = None
    engines: list[_Group] = []

    def takes(self, one: RankRecording, task: ProcessTask | None) -> bool:
        if one.source.named and one.head == Head():
            return True  # a damaged file that the user named: reading it tells what is wrong
        if None not in (task, self.task) and task != self.task:
            return False
        rank, world_size, start_s = _rank(one), one.head.world_size, one.head.start_s
        known = rank is not None and self.all_ranks_known
        if rank in self.ranks or one.source.worker in self.workers:
            return False  # the same process, at another time
        if None not in (world_size, self.world_size) and world_size != self.world_size:
            return False
        if not known and not self._is_near(one):
            return False
        apart_s = abs(start_s - self.start_s) if start_s is not None and self.start_s is not None else 0.0
        return apart_s <= (RANKS_APART_S if known else UNKNOWN_APART_S)

    def _is_near(self, one: RankRecording) -> bool:
        """Whether a recording of unknown rank may be of another rank of the run."""
        first = self.members[0][1]
        if one.source.folder != first.source.folder:
            return False
        if one.head == Head():
            return True  # no trace, or a damaged one: reading it tells what is wrong
        alike = one.source.worker is not None or _without_numbers(one) == _without_numbers(first)
        return alike and None not in (one.head.start_s, self.start_s) and one.head.process not in self.processes

    def add(self, place: int, one: RankRecording, task: ProcessTask | None) -> None:
        rank = _rank(one)
        self.task = self.task or task
        self.members.append((place, one))
        self.all_ranks_known &= rank is not None
        if rank is not None:
            self.ranks.add(rank)
        if one.source.worker is not None:
            self.workers.add(one.source.worker)
        if one.head.process is not None:
            self.processes.add(one.head.process)
        self.world_size = self.world_size if self.world_size is not None else one.head.world_size
        self.start_s = self.start_s if self.start_s is not None else one.head.start_s

    @property
    def with_engines(self) -> list[tuple[int, RankRecording]]:
        """The recordings of the group and of its engines, which have names."""
        named = list(self.members)
        for number, engine in enumerate(self.engines, 1):
            name = f"engine {number}" if len(self.engines) > 1 else "engine"
            for place, one in engine.members:
                full = f"{name} rank {_rank(one)}" if len(engine.members) > 1 else name
                named.append((place, replace(one, engine=full)))
        return named


def find_runs(recordings: Sequence[RankRecording]) -> list[Run]:
    """The runs, newest first."""
    groups: list[_Group] = []
    tasks = _tasks_where_ranks_meet(recordings)
    heads = [recording.head for recording in recordings]
    places = sorted(range(len(heads)), key=lambda place: (heads[place] == Head(), heads[place].start_s or 0.0))
    for place in places:
        one, task = recordings[place], tasks.get(place)
        group = next((group for group in groups if group.takes(one, task)), None)
        if group is None:
            groups.append(group := _Group())
        group.add(place, one, task)
    groups = _with_engines(groups)
    groups.sort(key=lambda group: (group.start_s or 0.0, min(group.members)[0]), reverse=True)
    members = [[one for _, one in sorted(group.with_engines, key=lambda member: member[0])] for group in groups]
    names = _names(members)
    return [Run(*of_run) for of_run in zip(names, members, (group.start_s for group in groups), strict=True)]


def _tasks_where_ranks_meet(recordings: Sequence[RankRecording]) -> dict[int, ProcessTask]:
    """What processes do, by their places: only if two of the same rank began at the same time, because each file has to
    be opened once more.
    """
    start_s = [recording.head.start_s for recording in recordings]
    known = [place for place, start in enumerate(start_s) if start is not None]
    ordered = sorted((_rank(recordings[place]) or 0, start_s[place] or 0.0, place) for place in known)
    meeting = [
        start
        for (rank, start, _), (other, following, _) in pairwise(ordered)
        if rank == other and following - start <= UNKNOWN_APART_S
    ]
    if not meeting:
        return {}
    near = [place for place in known if any(abs((start_s[place] or 0.0) - at) <= RANKS_APART_S for at in meeting)]
    tasks = find_tasks([recordings[place].source for place in near])
    return {place: task for place, task in zip(near, tasks, strict=True) if task is not None}


def _with_engines(groups: Sequence[_Group]) -> list[_Group]:
    """The groups, those that generate inside the only training that began at the same time."""
    alone = []
    for group in groups:
        trainings = [other for other in groups if group.task == "generate" and _begin_together(group, other)]
        if len(trainings) == 1:
            trainings[0].engines.append(group)
        else:
            alone.append(group)
    return alone


def _begin_together(engine: _Group, training: _Group) -> bool:
    if training.task != "train" or engine.start_s is None or training.start_s is None:
        return False
    return abs(engine.start_s - training.start_s) <= UNKNOWN_APART_S


def with_companions(runs: Sequence[Run], companions: Sequence[CompanionFile]) -> list[Run]:
    """The runs with the files that were recorded beside their traces: each belongs to the run with the nearest folder,
    and in it to its rank. Files that name no rank, or that are read together, belong to the lowest rank, whose
    document becomes the document of the run. Without any trace, all files together are one run.
    """
    if not runs and companions:
        return [_without_trace(companions)]
    files: list[list[CompanionFile]] = [[] for _ in runs]
    for companion in companions:
        nearness = [_nearness(run, companion.source) for run in runs]
        files[nearness.index(max(nearness))].append(companion)
    for run, mine in zip(runs, files, strict=True):
        mine += _trials_near(run)
    return [_with_files(run, mine) if mine else run for run, mine in zip(runs, files, strict=True)]


def _trials_near(run: Run) -> list[CompanionFile]:
    """What was tried before, if the folder of the first trace or one above it has it. It serves all runs below it."""
    path = run.recordings[0].source.local_path
    for folder in Path(path).parents[: 1 + TRIALS_ABOVE] if path is not None else ():
        with suppress(OSError):
            return [CompanionFile("trials", local_source(folder / TRIALS_FILE))]
    return []


def _without_trace(companions: Sequence[CompanionFile]) -> Run:
    source = companions[0].source
    recording = RankRecording(source, companions=tuple(companions))
    folders = {file.source.folder for file in companions}
    name = os.path.basename(source.folder if len(folders) == 1 < len(companions) else source.label)
    return Run(printable(name) or source.label, [recording])


def _nearness(run: Run, source: TraceSource) -> int:
    """Folders that the file's path and the nearest trace's have in common."""
    parts = source.folder.split("/")
    return max(_common(parts, recording.source.folder.split("/")) for recording in run.recordings)


def _common(parts: Sequence[str], others: Sequence[str]) -> int:
    pairs = zip(parts, others, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(parts), len(others)))


def _with_files(run: Run, files: Sequence[CompanionFile]) -> Run:
    ranks = [_rank(recording) if recording.engine is None else None for recording in run.recordings]
    of_recording: list[list[CompanionFile]] = [[] for _ in ranks]
    known = [rank for rank in ranks if rank is not None]
    lowest = ranks.index(min(known)) if known else 0
    for file in files:
        hint = None if is_of_all_ranks(file.kind) else file.source.rank_hint
        of_recording[ranks.index(hint) if hint in known else lowest].append(file)
    recordings = [replace(one, companions=tuple(mine)) for one, mine in zip(run.recordings, of_recording, strict=True)]
    return replace(run, recordings=recordings)


def pick_run(runs: Sequence[Run], name: str | None) -> tuple[Run, str | None]:
    """The named run, or the newest, and a sentence about the others. Raises InputError if none has the name."""
    chosen = runs[0] if name is None else next((run for run in runs if run.name == name), None)
    if chosen is None:
        names = [run.name for run in runs]
        raise InputError(f"no run is called {name}{suggestion(str(name), names) or f'; there are: {_listed(names)}'}")
    if len(runs) == 1:
        return chosen, None
    others = _listed([run.title for run in runs if run is not chosen])
    which = "the newest" if chosen is runs[0] else "one"
    return chosen, (
        f"{len(runs)} different runs were found. This is {which} of them, {chosen.title}. "
        f"The others: {others}. Choose with --run NAME, or analyze each with --all."
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _without_numbers(one: RankRecording) -> str:
    return re.sub(r"[0-9]+", "", one.source.label)


def _rank(one: RankRecording) -> int | None:
    return one.head.rank if one.head.rank is not None else one.source.rank_hint


def _names(runs: Sequence[Sequence[RankRecording]]) -> list[str]:
    """A short name for each run: of its folder if no other run is there, else of its first file."""
    folders = [{one.source.folder for one in run} for run in runs]
    every = [folder for of_run in folders for folder in of_run]
    names: list[str] = []
    for run, mine in zip(runs, folders, strict=True):
        folder = next(iter(mine)) if len(mine) == 1 else os.path.commonpath(mine)
        inside = sum(other == folder or other.startswith(f"{folder}/") for other in every)
        label = run[0].source.label.replace("\\", "/").rpartition("/")[2]
        name = printable(os.path.basename(folder)) if inside == len(mine) < len(every) else _ENDING.sub("", label)
        same = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in names)
        names.append(f"{name}-{same + 1}" if same else name)
    return names
