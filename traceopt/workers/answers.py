"""What an executor gives: each rank's answer, or the error in its place."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from traceopt.workers.progress_line import Pace
from traceopt.workers.rank_task import RankTask

Answer = bytes | Exception
Answers = Generator[tuple[int, Answer], None, None]
WORKER_DIED = (
    "{}: left out: the process that read it was killed, and again with no other rank beside it; "
    "perhaps it needs more memory than there is"
)


class Executor(Protocol):
    """Gives each task's place and its packed RankResult, or what was raised, in the order in which they are done.

    Closing the iterator ends what is under way. `notes` then says what the user should know of the way.
    """

    @property
    def notes(self) -> Sequence[str]: ...

    def run(self, tasks: Sequence[RankTask], pace: Pace) -> Answers: ...
