"""The answer of a rank as bytes, for workers and the cache; unpacked completely, or only as far as a merge needs.

Every answer goes through these bytes, even in a single process, so that it is the same wherever it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from traceopt.analyzer.ranks.rank_summary import RankSummary
from traceopt.document.decision import Decision
from traceopt.result.document import Check, Result
from traceopt.result.finding import Finding
from traceopt.result.sections.companions import StartUpSection
from traceopt.result.sections.rank_rows import RankRow
from traceopt.result.sections.run import TraceFile
from traceopt.result.sections.step import Step
from traceopt.result.sections.timeline_rows import Timeline
from traceopt.result.words.message import encoded


class RunOfRank(Struct, frozen=True):
    """The part of `Run` that a merge needs."""

    paths: list[str]
    shown_rank: int | None
    files: list[TraceFile]


class DocumentPart(Struct, frozen=True):
    """The part of `Result` that a merge needs; tables and timeline stay packed."""

    run: RunOfRank
    ranks: list[RankRow]
    findings: list[Finding]
    checks: list[Check]
    start_up: StartUpSection | None = None


class OtherRank(Struct, frozen=True):
    """The document of a rank that is not the lowest one: only what a merge and a view of this rank need."""

    run: RunOfRank
    ranks: list[RankRow]
    findings: list[Finding]
    checks: list[Check]
    step: Step
    timeline: Timeline | None
    start_up: StartUpSection | None = None


class ViewPart(Struct, frozen=True):
    """The part of `Result` that a view of a rank needs, still packed."""

    step: msgspec.Raw
    timeline: msgspec.Raw

    def unpacked(self) -> tuple[Step, Timeline | None]:
        return _step_decoder.decode(self.step), _timeline_decoder.decode(self.timeline)


class Refuted(Struct, frozen=True):
    """What a rank decides if the other ranks show that the fixes of these rules save nothing."""

    codes: frozenset[str]
    decision: Decision


class RankAnswer(Struct, frozen=True):
    """The answer with its document still packed. `problem` says why nothing could be read; there is then no document
    and no summary. `refuted`: for each set of fixes that other ranks can refute. Not `is_whole`: the document is that
    of an `OtherRank`.
    """

    document: msgspec.Raw
    summary: RankSummary | None
    warnings: list[str]
    problem: str | None
    refuted: list[Refuted]
    is_whole: bool = True

    @staticmethod
    def packed(
        document: Result | OtherRank | None,
        summary: RankSummary | None,
        warnings: list[str],
        *,
        problem: str | None = None,
        refuted: Sequence[Refuted] = (),
    ) -> bytes:
        packed, is_whole = msgspec.Raw(_encoder.encode(document)), not isinstance(document, OtherRank)
        answer = RankAnswer(packed, summary, warnings, problem, list(refuted), is_whole)
        return _encoder.encode(answer)

    @staticmethod
    def of(data: bytes) -> RankAnswer:
        """Raises msgspec.ValidationError or msgspec.DecodeError if `data` does not come from `packed`."""
        return _decoder.decode(data)

    def part(self) -> DocumentPart:
        return _part_decoder.decode(self.document)

    def view(self) -> ViewPart:
        return _view_decoder.decode(self.document)

    def whole(self) -> Result:
        return _document_decoder.decode(self.document)


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value, np.int64).tobytes()
    return encoded(value)


def _unpack_array(_: type, data: bytes) -> Any:
    return np.frombuffer(data, np.int64)


_encoder = msgspec.msgpack.Encoder(enc_hook=_packed)
_decoder = msgspec.msgpack.Decoder(RankAnswer, dec_hook=_unpack_array)
_part_decoder = msgspec.msgpack.Decoder(DocumentPart)
_view_decoder = msgspec.msgpack.Decoder(ViewPart)
_step_decoder = msgspec.msgpack.Decoder(Step)
_timeline_decoder = msgspec.msgpack.Decoder(Timeline | None)
_document_decoder = msgspec.msgpack.Decoder(Result)
