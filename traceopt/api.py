"""`traceopt.analyze()`: reads the traces, analyzes every rank, and returns the result document."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from traceopt.analysis import Analysis
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.sources import printable
from traceopt.analyzer.recordings import runs
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.analyzer.recordings.runs import Run
from traceopt.analyzer.work.throughput import Workload
from traceopt.config import checked_devices
from traceopt.document.merge import MergedRun
from traceopt.document.rank_views import MOST_WITH_SPANS
from traceopt.document.run.cost import with_cost
from traceopt.document.run_document import run_document
from traceopt.errors import ConfigError, InputError, TraceoptError, one_line
from traceopt.result.document import Result
from traceopt.workers.answers import Executor
from traceopt.workers.executors import executor_for
from traceopt.workers.progress_line import ProgressLine, ShowProgress
from traceopt.workers.rank_analysis import analyze_rank
from traceopt.workers.rank_task import RankOptions, RankTask, SpansWanted, load

MANY = 16  # ranks: of so many, only the lowest one has its whole document


def find_runs(paths: Sequence[str] | str) -> list[Run]:
    """The runs that the paths hold, newest first. Files are of one run if they have different ranks, the same world
    size and about the same time. Only the start of each file is read.

    Raises InputError for a path that is missing, unreadable, or leads to no trace.
    """
    found = find_sources([paths] if isinstance(paths, str) else list(paths))
    return runs.with_companions(runs.find_runs(find_recordings(found.sources)), found.companions)


def analyze(
    paths: Sequence[str] | str,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    rules_dir: str | Path | None = None,
    thresholds: Mapping[str, Mapping[str, Any]] | None = None,
    devices: Mapping[str, Mapping[str, Any]] | None = None,
    source: Sequence[str | Path] | str | Path = (),
    run: str | None = None,
    tokens_per_step: float | None = None,
    samples_per_step: float | None = None,
    reference_throughput: float | None = None,
    price_per_hour: float | None = None,
    jobs: int | None = 1,
    scheduler: str | None = None,
    cache: str | Path | None = None,
    debug: bool = False,
    progress: ShowProgress | None = None,
) -> Analysis:
    """Reads trace files or folders and returns the result document.

    `tokens_per_step` and `samples_per_step` are the amounts that one GPU processes per step. `reference_throughput` is
    the rate of one GPU to compare with, in tokens per second, or in samples per second if you give no tokens. With
    several files the document shows the lowest rank. Findings of all ranks are merged by code, and list their ranks.
    `price_per_hour` is what an hour of the whole job costs, in dollars.

    `devices`: peak rates that add to or replace the known ones, by the name of a device (or whole words of it):
    `{"NVIDIA H100 PCIe": {"bf16": 756, "hbm_gb_per_s": 2000}}`, in dense TFLOP/s and GB/s (docs/devices.md).

    `run`: the name of the run to analyze if the paths hold several; the newest by default. `traceopt.find_runs()` lists
    them. Runs are never merged.

    `source`: folders with the source of the recorded script. Fixes come as patches of it where possible.

    `jobs`: the number of processes that read ranks; None means as many as cores and memory allow. As always with
    multiprocessing, they import the main module again, so put a script's work under `if __name__ == "__main__":`.
    The number does not change the document. `scheduler`: the address of a Dask scheduler whose workers read the ranks
    instead. `cache`: a folder that stores the result of each rank, so that an unchanged trace is read only once.

    Raises InputError if there is no trace to read or a folder does not exist, ConfigError for invalid settings.
    """
    _check_amounts({"price-per-hour": price_per_hour})
    folders = [Path(folder) for folder in ([source] if isinstance(source, (str, Path)) else source)]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"no such source folder: {one_line(str(folder))}")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs: expected a number above 0, got {jobs}")
    found = find_sources([paths] if isinstance(paths, str) else list(paths))
    options = RankOptions(
        select=tuple(select),
        ignore=tuple(ignore),
        rules_dir=None if rules_dir is None else str(rules_dir),
        thresholds=thresholds or {},
        devices=checked_devices(devices or {}),
        workload=_workload(tokens_per_step, samples_per_step, reference_throughput),
        debug=debug,
    )
    rules = load(options)
    cached = None if cache is None else _cache_folder(Path(cache))
    every_run = runs.with_companions(runs.find_runs(find_recordings(found.sources)), found.companions)
    chosen, others = runs.pick_run(every_run, run)
    sharing = min(len(chosen.recordings), MOST_WITH_SPANS)
    whole = cached is not None or len(chosen.recordings) < MANY
    spans = SpansWanted()
    tasks = [RankTask(recording, options, cached, sharing, whole, spans) for recording in chosen.recordings]
    executor = executor_for(tasks, jobs, scheduler)
    merged = _read(tasks, executor, progress)
    told = [others] if others is not None else []
    warnings = [*told, *rules.registry.warnings, *found.skipped, *merged.warnings, *executor.notes]
    shown = merged.shown
    if shown is None:
        places = ", ".join(printable(os.fspath(path)) for path in ([paths] if isinstance(paths, str) else paths))
        raise InputError(f"no trace in {places} can be read: {merged.warnings[-1]}")
    if progress is not None and len(tasks) > 1:
        progress(f"comparing {len(merged.summaries)} ranks")
    several = len(tasks) > 1 or not tasks[0].recording.source.named
    result = run_document(merged, shown, rules.chosen, warnings, several=several, debug=debug)
    result = with_cost(result, price_per_hour)
    return Analysis.of(_with_patches(result, folders, debug) if folders else result)


def _read(tasks: Sequence[RankTask], executor: Executor, progress: ShowProgress | None) -> MergedRun:
    """The results of all ranks, merged. A rank that cannot be read is a warning, unless the user named its file.

    Raises InputError for the first such file that the user named. Raises the rank's own error if there is only this
    file, or in debug mode.
    """

    def is_final(task: RankTask, answer: Exception) -> bool:
        alone = len(tasks) == 1 and (task.recording.source.named or not isinstance(answer, InputError))
        return alone or isinstance(answer, ConfigError) or task.options.debug

    merged, line = MergedRun(), ProgressLine(progress, tasks)
    errors: dict[int, Exception] = {}
    left = set(range(len(tasks)))
    with closing(executor.run(tasks, line)) as answers:
        for index, answer in answers:
            task = tasks[index]
            if isinstance(answer, bytes):
                problem = merged.add(index, answer)
                task.spans.most_exposed_us = merged.most_exposed_us
                if problem is not None and task.recording.source.named:
                    errors[index] = InputError(problem)
            elif is_final(task, answer):
                raise answer
            else:
                problem = str(answer) if isinstance(answer, TraceoptError) else _internal(task, answer)
            if problem is not None:
                merged.warn(index, problem)
            line.done(task)
            left.remove(index)
            if errors and min(errors) < min(left, default=len(tasks)):  # the first in order, not the first to fail
                raise errors[min(errors)]
    lowest = merged.without_whole
    if lowest is not None:  # rank 0 is missing
        merged.add(lowest, analyze_rank(replace(tasks[lowest], whole=True)))
    return merged


def _cache_folder(folder: Path) -> str:
    from traceopt.workers.cache import Cache

    cache = Cache(str(folder.absolute()))
    cache.prepare()
    return cache.folder


def _with_patches(result: Result, folders: Sequence[Path], debug: bool) -> Result:
    from traceopt.rules.fixes.patches.patch import with_patches

    return replace(result, findings=with_patches(result.findings, folders, debug=debug))


def _internal(task: RankTask, error: Exception) -> str:
    return one_line(f"{task.label}: left out: internal error: {type(error).__name__}: {error}")


def _check_amounts(named: Mapping[str, float | None]) -> None:
    for name, amount in named.items():
        if amount is not None and not (0 < amount < math.inf):
            raise ConfigError(f"{name}: expected a number above 0, got {amount:g}")


def _workload(tokens: float | None, samples: float | None, reference: float | None) -> Workload:
    """Raises ConfigError for invalid amounts."""
    _check_amounts({"tokens-per-step": tokens, "samples-per-step": samples, "reference-throughput": reference})
    if reference is not None and tokens is None and samples is None:
        raise ConfigError("reference-throughput also needs tokens-per-step or samples-per-step")
    return Workload(tokens, samples, reference)
