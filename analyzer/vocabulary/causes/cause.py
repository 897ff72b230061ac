"""What a row of the table of causes holds."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.host_names import Names
from traceopt.analyzer.vocabulary.causes.span_categories import CPU, SpanCategory


class Look(Struct, frozen=True):
    """`color` is one of palette.css, `pattern` a `p-` class of patterns.css ("": a busy part), `detail` explains."""

    color: str
    pattern: str
    detail: str = ""


class Cause(Struct, frozen=True, eq=False, kw_only=True):
    """A cause of time: work of the device, or a reason why it waits. Each is one row, and is compared by identity.

    The step of a GPU is split into the causes `on_gpu`, busy parts and reasons why the GPU is idle; the step of a
    CPU-only run into those `on_cpu`. `key` names the cause in the document.
    """

    key: str
    label: str
    host_label: str = ""  # in a CPU-only run, and of idle time in a file without launches; "": the same
    meaning: str  # when time counts for it, in Markdown
    on_gpu: bool = True
    on_cpu: bool = False
    busy: bool = False

    names: Names | None = None  # what shows that a thread does this; None: no name shows it
    host_work: Literal["dispatch", "long"] | None = None  # ordinary work, short and long; None: work of its own kind

    look: Look
    span: SpanCategory = CPU  # of its spans in the timeline

    limit: str | None  # what a step is whose largest part this is
    verdict: str  # says that this is the bottleneck; "": the verdict has other words for it
    may_pass: bool = False  # it also happens once, for example as a run starts

    rules: tuple[str, ...]  # that measure it
    slow_step_rules: tuple[str, ...] = ()  # that also report single steps that have more of it
    refill_rule: str | None = None  # that also charges the host work which a sync keeps from being hidden
    advice: str | None  # what to change if slow steps have more of it
    straggler: str | None  # what to look at on a rank that has more of it

    def __repr__(self) -> str:
        return f"Cause({self.key})"
