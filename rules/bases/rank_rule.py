"""Base of the rules that compare ranks: they see the summaries of all ranks instead of the facts of one trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.result.finding import Location
from traceopt.rules.rule import Findings, Rule
from traceopt.rules.savings.known_error import ERROR_ON_GPU, saving_of_step
from traceopt.rules.savings.price import Price, Priced
from traceopt.rules.step_words import each_step

if TYPE_CHECKING:
    from traceopt.analyzer.facts import Facts
    from traceopt.analyzer.ranks.joint_replay import Ranks
    from traceopt.analyzer.ranks.run_facts import RunFacts
    from traceopt.analyzer.replay.changes import Change


class RunRule(Rule):
    """Base of the rules that compare ranks. A subclass implements `check_run` and `passed_run`.

    `with_engines`: the rule also sees the inference engines beside a training, whose ranks are their own.
    """

    with_engines: ClassVar[bool] = False

    def check(self, facts: Facts) -> Findings:  # noqa: ARG002
        """Nothing: one trace alone says nothing about the other ranks."""
        return iter(())

    def lacks_ranks(self, run: RunFacts) -> str | None:
        """What is missing to compare ranks and how to record it, or None."""
        if (lack := run.incomparable) is not None:
            return lack
        if not run.step_names:
            return "The ranks have no step in common; record the same steps on every rank."
        if not run.matched.count:
            return "The ranks' traces have no collective in common; record the same steps on every rank."
        return None

    def applies_run(self, run: RunFacts) -> str | None:  # noqa: ARG002
        """Why the rule does not apply to the run, or None."""
        return None

    def check_run(self, run: RunFacts) -> Findings:
        """Yields what is worth changing in the run."""
        raise NotImplementedError

    def remedy(self, ranks: Ranks) -> list[Sequence[Change]] | None:  # noqa: ARG002
        """What the fix changes on each rank, so that they can be replayed together; None if unknown."""
        return None

    def passed_run(self, run: RunFacts) -> str:
        """One sentence for the user when check_run() yields nothing."""
        raise NotImplementedError


def ranks_saving(run: RunFacts, low_ns: float, est_ns: float, high_ns: float, basis: str) -> Price:
    """A saving in time per step on every rank, capped at the step. Its range is at least as wide as the known error."""
    return saving_of_step(run.step_ns, low_ns, est_ns, high_ns, basis, ERROR_ON_GPU)


def rank_name(run: RunFacts, index: int) -> str:
    """ "rank 3", or "engine", or the file's name if the rank is unknown."""
    rank = run.ranks[index]
    return f"rank {rank.rank}" if rank.rank is not None else rank.engine or PurePath(rank.path).name


def rank_names(run: RunFacts, indices: Sequence[int]) -> str:
    """ "rank 3", or "ranks 4, 5 and 6"."""
    *before, last = (rank_name(run, index).removeprefix("rank ") for index in indices)
    return f"ranks {', '.join(before)} and {last}" if before else rank_name(run, indices[0])


def step_of_ranks(run: RunFacts) -> str:
    """What times are of. A single step of each rank begins when its recording began, so it has no length in common."""
    return each_step(run) if len(run.step_names) > 1 else "the recorded step"


def on_rank(one: Priced, run: RunFacts, *indices: int) -> Priced:
    """The finding, attributed to these ranks."""
    ranks = [rank for index in indices if (rank := run.ranks[index].rank) is not None]
    return replace(one, finding=replace(one.finding, ranks=ranks)) if ranks else one


def place_on(run: RunFacts, index: int, part: Cause) -> Location | None:
    """The source line behind the time that a rank spends on a part of its step."""
    return run.ranks[index].places.get(part.key)
