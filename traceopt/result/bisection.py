"""The document of `traceopt bisect`: the commits, or versions of a package, that were tested, and the first one with
the other step time.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.comparison import Comparison
from traceopt.result.encoding.serialization import to_indented_json
from traceopt.result.field_notes import note
from traceopt.result.sections.run import Tool


class TestedCommit(Struct, frozen=True):
    """A commit, or a version of the package, and its step against that of GOOD."""

    __test__ = False  # its name looks like a test of pytest

    commit: Annotated[str, note("hash; or the version")]
    subject: Annotated[str, note("first line of its message; or the interpreter of the environment")]
    like: Annotated[Literal["good", "bad", "unknown"], note("the side that its step is like")]
    change_share: Annotated[float | None, note("change of the step since GOOD; null: not measured", "share")] = None
    low_share: Annotated[float | None, note("at least: the end of the 99 % interval; null: too wide", "share")] = None
    high_share: Annotated[float | None, note("at most: the end of the 99 % interval; null: too wide", "share")] = None
    reason: Annotated[str | None, note("why it is not known")] = None


SHORT = 10  # characters of a hash


class Bisection(Struct, frozen=True):
    """`first` is the first commit like BAD; None if it is not known. Then it is one of `left`."""

    tool: Tool
    verdict: Annotated[str, note("the answer in a sentence")]
    good: Annotated[str, note("GOOD as it was given")]
    bad: Annotated[str, note("BAD as it was given")]
    commits: Annotated[int, note("commits after GOOD, up to BAD")]
    tested: Annotated[list[TestedCommit], note("in the order of the tests; BAD is the first")]
    first: Annotated[TestedCommit | None, note("the first commit like BAD; null: not known")] = None
    left: Annotated[list[str], note("commits that may be the first one, if it is not known")] = []
    comparison: Annotated[Comparison | None, note("of the first one with the commit before it; null: not made")] = None
    package: Annotated[str | None, note("the package whose versions were tested; null: commits were")] = None

    @property
    def noun(self) -> str:
        return "commit" if self.package is None else "version"

    def short(self, commit: str) -> str:
        """A hash in few characters, or a version."""
        return commit[:SHORT] if self.package is None else commit

    def to_json(self) -> bytes:
        return to_indented_json(self)
