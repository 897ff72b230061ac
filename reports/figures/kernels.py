"""The work of the GPU as a treemap: kinds of kernels, and in them kernels by name."""

from __future__ import annotations

import re

from traceopt.analyzer.vocabulary.causes.table import COMPUTE
from traceopt.reports.figures.figure import FigureDict, color, figure, label, lines, nothing, plain
from traceopt.reports.words.not_recorded import missing_kernels
from traceopt.reports.words.part_styles import part_of_work
from traceopt.reports.words.safe_text import clean
from traceopt.reports.words.step_words import per_step, scope
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Kernel
from traceopt.result.words import quantities

TITLE = "GPU kernels"
BOX = 48  # characters of a name, and of each of its lines
BOX_LINE = 18
_COLORS = ("compute", "launch", "input", "python", "range", "host", "driver", "sync", "queue", "backward")


def draw(document: Result) -> FigureDict:
    by_kind: dict[str, list[Kernel]] = {}
    for kernel in document.kernels:
        by_kind.setdefault(kernel.kind, []).append(kernel)
    if not by_kind:
        return nothing(TITLE, missing_kernels(document))
    every_step = per_step(document)
    boxes: list[tuple[str, str, str, float, str, str]] = []
    for number, (kind, kernels) in enumerate(sorted(by_kind.items(), key=lambda item: -_total(item[1]))):
        part = part_of_work(kind)
        shade = color(_COLORS[number % len(_COLORS)] if part is COMPUTE else part.look.color)
        share = quantities.percent(sum(kernel.share for kernel in kernels))
        about = lines(kind, f"{quantities.ms_of_us(_total(kernels))}{every_step}, {share} of the GPU's time")
        boxes.append((kind, label(kind), "", _total(kernels), about, shade))
        for place, kernel in enumerate(kernels):
            name = _broken(clean(kernel.label or kernel.name, BOX))
            boxes.append((f"{kind} {place}", name, kind, kernel.us_per_step, _hover(kernel, every_step), shade))
    ids, labels, parents, times_us, texts, colors = map(list, zip(*boxes, strict=True))
    return figure(
        TITLE,
        [
            {
                "type": "treemap",
                "branchvalues": "total",
                "ids": ids,
                "labels": labels,
                "parents": parents,
                "values": times_us,
                "text": [quantities.ms_of_us(us) for us in times_us],
                "textinfo": "label+text",
                "hovertext": texts,
                "hoverinfo": "text",
                "marker": {"colors": colors},
                "tiling": {"pad": 2},
            }
        ],
        subtitle=f"{scope(document)}. Choose a kind to see its kernels alone.",
        height=560,
        uniformtext={"minsize": 9, "mode": "hide"},
        margin={"t": 80, "l": 10, "r": 10, "b": 10},
    )


def _broken(name: str) -> str:
    """A name in lines that end behind an underscore if they can: one line would fit into few boxes."""
    return "<br>".join(map(plain, re.findall(rf".{{1,{BOX_LINE - 1}}}_|.{{1,{BOX_LINE}}}", name)))


def _total(kernels: list[Kernel]) -> float:
    return sum(kernel.us_per_step for kernel in kernels)


def _hover(kernel: Kernel, every_step: str) -> str:
    time, calls = quantities.ms_of_us(kernel.us_per_step), quantities.count(kernel.calls_per_step)
    return lines(
        kernel.name,
        f"{time}{every_step}, {quantities.percent(kernel.share)} of the GPU's time",
        f"{calls} calls of {quantities.measured(kernel.mean_us)} µs",
        kernel.op or "",
        "" if kernel.location is None else kernel.location.shown,
    )
