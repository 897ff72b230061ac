"""What an NVTX range is: an operator of PyTorch (torch.autograd.profiler.emit_nvtx), or an annotation."""

from __future__ import annotations

import json
import re

from msgspec import Struct

# emit_nvtx appends ", seq = 12, op_id = 345, sizes = [[2, 3]], input_op_ids = [(1, 0)]", each part only if known.
_SUFFIX = re.compile(r", (?:seq|op_id|sizes) = ")
_MOST = 2**31 - 1
_SEQUENCE = re.compile(r", seq = (\d{1,18})")
_SIZES = re.compile(r", sizes = (\[[\[\]0-9, -]*\])")
_OPERATOR = re.compile(r"[a-z_][A-Za-z0-9_]*::|[A-Za-z0-9_]*Backward[A-Za-z0-9_]*$|autograd::")
_VERSION = re.compile(r"(?:_ptsz|_ptds)?_v\d{4,6}$")
_CAST = re.compile(r"\((?:unsigned )?(?:int|long|short|char|bool|long long)\)(?=-?\d)")


class Range(Struct, frozen=True):
    """`dims`: JSON of the shapes of the inputs, "" if not recorded; `sequence`: autograd's number, or -1."""

    name: str
    is_operator: bool
    dims: str = ""
    sequence: int = -1


def read_range(text: str) -> Range:
    """The range of an NVTX text."""
    found = _SUFFIX.search(text)
    if found is None:
        return Range(text, False)
    name, suffix = text[: found.start()], text[found.start() :]
    sequence, sizes = _SEQUENCE.match(suffix), _SIZES.search(suffix)
    is_operator = _OPERATOR.match(name) is not None
    number = min(int(sequence[1]), _MOST) if sequence else -1
    return Range(name, is_operator, _as_json(sizes[1]) if sizes else "", number)


def _as_json(sizes: str) -> str:
    try:
        shapes = json.loads(sizes)
    except (ValueError, RecursionError):
        return ""
    return json.dumps(shapes) if isinstance(shapes, list) else ""


def call_name(text: str) -> str:
    """ "cudaLaunchKernel_v7000" as Kineto names it: "cudaLaunchKernel"."""
    return _VERSION.sub("", text)


def kernel_name(text: str) -> str:
    """A kernel as Kineto names it: template arguments without the casts "(int)128"."""
    return _CAST.sub("", text).replace("<unnamed>::", "(anonymous namespace)::")
