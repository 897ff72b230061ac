"""What a process does in a run of reinforcement learning, by the names at the start of its trace."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Literal

from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.vocabulary.op_names import is_backward, is_optimizer_step
from traceopt.analyzer.vocabulary.phases.rl_phases import phase_of_annotation
from traceopt.analyzer.vocabulary.phases.serving_steps import engine_of_frame, serving_step
from traceopt.errors import InputError

ProcessTask = Literal["train", "generate"]

_TEXT_BYTES = 8 << 20  # several steps of most models
_GZIP = b"\x1f\x8b"
_NAME = re.compile(rb'"name"\s*:\s*"([^"\\]{1,200})"')


def find_task(source: TraceSource) -> ProcessTask | None:
    """None if the start of the trace shows neither; a process that also trains is a trainer. Not for Nsight exports."""
    if source.process is not None:
        return None
    try:
        text = source.head(_TEXT_BYTES)
        if text.startswith(_GZIP):
            text = zlib.decompressobj(wbits=31).decompress(text, _TEXT_BYTES)
    except (OSError, InputError, zlib.error):
        return None
    names = [name.decode("utf-8", "replace") for name in set(_NAME.findall(text))]
    if any(map(_trains, names)):
        return "train"
    return "generate" if any(map(_generates, names)) else None


def find_tasks(sources: Sequence[TraceSource]) -> list[ProcessTask | None]:
    """Of each source. Read in parallel, because remote files are slow one after the other."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(find_task, sources))


def _trains(name: str) -> bool:
    return is_backward(name) or is_optimizer_step(name) or phase_of_annotation(name) == "train"


def _generates(name: str) -> bool:
    return serving_step(name) is not None or engine_of_frame(name) is not None or phase_of_annotation(name) == "rollout"
