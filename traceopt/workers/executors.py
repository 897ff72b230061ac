"""Where ranks are analyzed: in this process, in a pool of processes, or on a cluster. The answers are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceopt.workers.answers import Answer, Answers, Executor
from traceopt.workers.progress_line import ProgressLine
from traceopt.workers.rank_analysis import analyze_rank
from traceopt.workers.rank_task import RankTask

if TYPE_CHECKING:
    from traceopt.workers.process_pool import ProcessPool


class InProcess:
    """Analyzes one rank after the other in this process."""

    notes: Sequence[str] = ()

    def run(self, tasks: Sequence[RankTask], line: ProgressLine) -> Answers:
        for index, task in enumerate(tasks):
            answer: Answer
            try:
                answer = analyze_rank(task, line.read)
            except Exception as error:
                answer = error
            yield index, answer


def executor_for(tasks: Sequence[RankTask], jobs: int | None, scheduler: str | None) -> Executor:
    """An executor with `jobs` processes; None: as many as cores, memory and the amount of work justify.

    With a Dask scheduler, they are the fallback if the cluster disappears. A rank may have killed the workers, so it is
    then read in a process of its own, unless the user wants just one process.
    """
    if any(task.here_only for task in tasks):
        return InProcess()
    if scheduler is not None:
        from traceopt.workers.dask_cluster import DaskCluster

        return DaskCluster(scheduler, InProcess() if jobs == 1 else _pool(tasks, jobs))
    if len(tasks) == 1 or jobs == 1:
        return InProcess()
    pool = _pool(tasks, jobs)
    return InProcess() if pool.jobs == 1 else pool


def _pool(tasks: Sequence[RankTask], jobs: int | None) -> ProcessPool:
    from traceopt.workers.pool_size import jobs_for
    from traceopt.workers.process_pool import ProcessPool

    return ProcessPool(min(len(tasks), jobs) if jobs is not None else jobs_for(tasks))
