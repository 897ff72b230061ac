#!/usr/bin/env python3
"""Makes a large trace by repeating the events of a smaller one, one copy after the other in time.

python benchmarks/big_trace.py TRACE.json.gz MEGABYTES OUT.json.gz

Times, ids and step numbers continue from copy to copy, so the large trace looks like one long recording. Names and
shapes are the same as in the small trace.
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import msgspec
import numpy as np
from isal import igzip

_IDS = (
    "External id|correlation|Ev Idx|Python id|Python parent id|Record function id|Sequence number|id|"
    "wait_on_cuda_event_record_corr_id"
)
_COUNTED = re.compile(rb'("(?:ts|%b)":\s*|ProfilerStep#)([1-9]\d*)' % _IDS.encode())
_SAME_NUMBERS = {"Python parent id": "Python id", "wait_on_cuda_event_record_corr_id": "correlation"}
PAUSE_US = 10_000  # between two copies: time for the last kernels of a copy


class _Document(msgspec.Struct):
    events: msgspec.Raw = msgspec.field(name="traceEvents")


def enlarge(source: Path, target: Path, min_bytes: int) -> int:
    """Writes `target` with enough copies of `source` for `min_bytes` of JSON. Returns its size in bytes of JSON."""
    data = source.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    array = bytes(msgspec.json.decode(data, type=_Document).events)
    head, _, tail = data.partition(array)
    pieces: list[bytes] = _COUNTED.split(array.strip()[1:-1].strip())
    keys = [key.strip(b'": \t').decode() for key in pieces[1::3]]
    numbers = np.array(pieces[2::3], "S20").astype(np.int64)
    kinds, kind = np.unique([_SAME_NUMBERS.get(key, key) for key in keys], return_inverse=True)
    strides = np.array([_stride(name, numbers[kind == code]) for code, name in enumerate(kinds.tolist())])
    written = len(head) + len(tail) + 2
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    with igzip.open(unfinished, "wb", compresslevel=1) as out:
        out.write(head + b"[")
        copy = 0
        while written < min_bytes:
            pieces[2::3] = [b"%d" % number for number in (numbers + copy * strides[kind]).tolist()]
            text = b"".join(pieces)
            written += out.write(b",\n" + text if copy else text)
            copy += 1
        out.write(b"]" + tail)
    unfinished.replace(target)
    return written


def _stride(kind: str, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """How much a kind of number grows from copy to copy."""
    if kind in ("ts", "ProfilerStep#"):
        return int(numbers.max() - numbers.min()) + (PAUSE_US if kind == "ts" else 1)
    return int(numbers.max()) + 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    size = enlarge(Path(sys.argv[1]), Path(sys.argv[3]), int(float(sys.argv[2]) * 1e6))
    print(f"{size / 1e6:.1f} MB of JSON")
