"""The kinds of companions: files recorded beside a trace, told by their names and their first bytes."""

from __future__ import annotations

import re
import zlib
from typing import Literal

from msgspec import Struct

START_BYTES = 4096
_GZIP = b"\x1f\x8b"

TRIALS_FILE = "tried.jsonl"  # of `traceopt try`, in the folder of several runs: not searched for in that of a trace

KindName = Literal[
    "memory_snapshot", "compile_log", "flight_recorder", "gpu_samples", "measured_rates", "graph_stacks", "trials"
]


class Kind(Struct, frozen=True):
    """`names` matches the names of the files that the search of a folder looks into, `start` their first bytes.

    `of_all_ranks`: the files of all ranks only make sense together. `gzip`: the file may be compressed.
    """

    name: KindName
    what: str
    names: str
    start: str
    of_all_ranks: bool = False
    gzip: bool = False


_PICKLE = r"\x80[\x02-\x05]"

KINDS = (
    Kind(
        "memory_snapshot",
        "a memory snapshot of PyTorch's CUDA allocator",
        names=r".*\.(pickle|pkl)",
        start=_PICKLE + r".*(device_traces|segments|allocator_settings)",
    ),
    Kind(
        "flight_recorder",
        "a dump of the NCCL flight recorder",
        names=r"[^.]+|.*\.(pickle|pkl|bin|json|dump)|.*rank[-_]?[0-9]+",
        start=(
            _PICKLE + r".*(pg_config|pg_status|nccl_version|comm_lib_version|record_id)"
            r"|\s*\{(?!.*\"(schemaVersion|traceEvents|distributedInfo)\").*\"(record_id|collective_seq_id|pg_status)\""
        ),
        of_all_ranks=True,
    ),
    Kind(
        "compile_log",
        "a log of torch.compile (TORCH_TRACE)",
        names=r".*\.log(\.gz)?",
        start=r"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ .{0,200}?\] \{",
        gzip=True,
    ),
    Kind(
        "gpu_samples",
        "samples of the GPU by traceopt run",
        names=r".*\.gpu_samples\.jsonl",
        start=r"\{\"traceopt_gpu_samples\"",
    ),
    Kind(
        "measured_rates",
        "rates that traceopt measured on the device",
        names=r".*\.rates\.json",
        start=r"\{\"traceopt_rates\"",
    ),
    Kind(
        "graph_stacks",
        "launch stacks of CUDA graphs (dump_kernel_py_stacks)",
        names=r".*\.(json|gz)",
        start=r"\s*\{\s*\"\d{10,20}\"\s*:\s*\"[^\"]{1,1000}:\d+:",
        gzip=True,
    ),
)


def kind_named(name: str) -> bool:
    """Whether a file of this name may be a companion."""
    return any(re.fullmatch(kind.names, name, re.IGNORECASE | re.DOTALL) for kind in KINDS)


def kind_of(start: bytes) -> KindName | None:
    """The kind of a file with these first bytes; None if it is none that is known."""
    compressed = start.startswith(_GZIP)
    searched = _inflated(start) if compressed else start[:START_BYTES]
    kinds = (kind for kind in KINDS if kind.gzip or not compressed)
    return next((kind.name for kind in kinds if re.match(kind.start.encode(), searched, re.DOTALL)), None)


def _inflated(start: bytes) -> bytes:
    """The first bytes of a compressed file's content; empty if it is damaged."""
    try:
        return zlib.decompressobj(wbits=31).decompress(start, START_BYTES)
    except zlib.error:
        return b""


def is_of_all_ranks(name: KindName) -> bool:
    """Whether the files of all ranks have to be read together."""
    return any(kind.of_all_ranks for kind in KINDS if kind.name == name)


def what_is(name: KindName) -> str:
    """ "a memory snapshot of PyTorch's CUDA allocator"."""
    return next(kind.what for kind in KINDS if kind.name == name)
