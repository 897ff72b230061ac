"""Kernel names as people read them."""

from __future__ import annotations

import re

KERNEL_CAP = 60  # characters


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
