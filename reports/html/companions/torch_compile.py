"""The section of the report about torch.compile."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.html.companions.section import Section
from traceopt.reports.words.companions import torch_compile as words
from traceopt.result.companions.torch_compile import TorchCompile
from traceopt.result.document import Result


class Phase(Struct, frozen=True):
    """A row of the table of phases."""

    name: str
    seconds: str
    share: float


class CompileView(Struct, frozen=True):
    """What the template prints."""

    known: TorchCompile
    summary: str
    phases: list[Phase]
    kinds: str


def section(result: Result) -> Section | None:
    """None if nothing was compiled, or it was not recorded."""
    known = result.torch_compile
    if known is None:
        return None
    total = sum(phase.us for phase in known.phases)
    phases = [
        Phase(words.PHASES[phase.name], f"{phase.us / 1e6:.2f}", phase.us / total) for phase in known.phases if total
    ]
    source = "its log (TORCH_TRACE)" if known.source == "log" else "traceopt run"
    return Section(
        "compile", "Compile", "torch_compile.html.j2", CompileView(known, words.summary(known), phases, source)
    )
