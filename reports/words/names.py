"""Names of kernels and of places in code, short enough for a table."""

from __future__ import annotations

import re

from traceopt.result.finding import Location
from traceopt.result.quantities import NOT_RECORDED

PATH_CAP = 36  # characters of a path that is given in full elsewhere
KERNEL_CAP = 60


def is_name(text: str) -> bool:
    """Whether `text` names code or an event, and so is set in a fixed-width font; a phrase is not."""
    return " " not in text or any(mark in text for mark in ("::", "(", "<", "_"))


def where(location: Location | None) -> str:
    return NOT_RECORDED if location is None else str(location)


def short_path(path: str) -> str:
    """The end of a path, cut before a folder where possible: "…/adapters/pipeline/model.py:40"."""
    if len(path) <= PATH_CAP:
        return path
    ends = (path[start:] for start, char in enumerate(path) if char == "/")
    return "…" + next((end for end in ends if len(end) < PATH_CAP), path[1 - PATH_CAP :])


def short_kernel_name(name: str) -> str:
    """A kernel's own name without return type, namespaces, template arguments and parameters.

    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>(int, ...)" is
    "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, ...>" in KERNEL_CAP characters at most.
    """
    short = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    if "<" in short or "::" in short:
        short = short.partition("(")[0] or short
        short = re.sub(r"\b(?:\w+::)+", "", short)
    return short if len(short) <= KERNEL_CAP else short[: KERNEL_CAP - 1] + "…"
