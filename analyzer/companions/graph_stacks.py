"""Reads the Python stacks of the launches that a CUDA graph recorded (`torch.cuda.graph_annotations`, PyTorch 2.15).

`dump_kernel_py_stacks(path)` writes gzipped JSON: for each node of a graph, numbered as CUPTI numbers it, the frames of
the user's code from the innermost out.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import DecodeError
from msgspec.json import decode

from traceopt.analyzer.reading.decompression import TextBlocks
from traceopt.analyzer.reading.limits import TooLargeError
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.vocabulary.python_frames import is_place, parse_frame
from traceopt.errors import InputError
from traceopt.result.finding import Location

MOST_BYTES = 256 << 20  # of text: a million nodes with 250 characters each


def read_graph_stacks(files: Sequence[TraceSource], warnings: list[str]) -> dict[int, Location]:
    """The line that launched each node of a graph. Keys: the graph's number in the upper 32 bits, the node's below. A
    node of which the files say different lines is left out. Raises InputError if no file can be read.
    """
    sites: dict[int, Location | None] = {}
    unreadable: list[str] = []
    for file in files:
        try:
            stacks = _stacks(file)
        except InputError as error:
            unreadable.append(str(error))
            continue
        site_of = {stack: _site(stack) for stack in set(stacks.values())}
        for key, stack in stacks.items():
            if key.isdecimal() and (site := site_of[stack]) is not None:
                node = int(key)
                sites[node] = site if sites.get(node, site) == site else None
    if len(unreadable) == len(files):
        raise InputError(unreadable[0])
    warnings += unreadable
    return {node: site for node, site in sites.items() if site is not None}


def _stacks(file: TraceSource) -> dict[str, str]:
    try:
        with file.open() as stream:
            blocks = TextBlocks(stream, most_bytes=MOST_BYTES)
            found = decode(b"".join(blocks), type=dict[str, str])
    except (DecodeError, UnicodeDecodeError, TooLargeError) as error:
        raise InputError(f"{file.label} cannot be read as launch stacks of CUDA graphs: {error}") from None
    if blocks.damage is not None:
        raise InputError(f"{file.label}: {blocks.damage}")
    return found


def _site(stack: str) -> Location | None:
    """The innermost line that a report may name, of frames such as "/home/me/train.py:12:forward"."""
    for frame in stack.split("\n"):
        file, _, place = frame.rpartition(":")[0].rpartition(":")
        name = f"{file}({place}): {frame.rpartition(':')[2]}"
        if is_place(name):
            return parse_frame(name)
    return None
