"""What an executor returns: the answer of each rank, or the error in its place."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from traceopt.workers.progress_line import ProgressLine
from traceopt.workers.rank_task import RankTask

Answer = bytes | Exception
Answers = Generator[tuple[int, Answer], None, None]
WORKER_DIED = (
    "{}: left out: its worker process was killed, and again while it read only this rank; "
    "it may need more memory than the machine has"
)


class Executor(Protocol):
    """Yields the index of each task with its packed RankAnswer or the exception raised, in order of completion.

    Closing the iterator ends running work. `notes` then has what the user should know about the run.
    """

    @property
    def notes(self) -> Sequence[str]: ...

    def run(self, tasks: Sequence[RankTask], line: ProgressLine) -> Answers: ...
