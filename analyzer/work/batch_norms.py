"""Batch norms of pictures and volumes on the device: how long each takes, and how much memory it has to move."""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES
from traceopt.analyzer.work.gemms import Gemms

FORWARD_PASSES = 3  # over the tensor: for the statistics, then reading and writing
BACKWARD_PASSES = 5  # the tensor and its gradient for their sums, then both and the result
MOST_BYTES = 2**48  # of a tensor in any real program
_CHANNELS_LAST = ("channels_last", "nhwc", "NHWC", "NDHWC", "ndhwc")


class BatchNorms(Struct, frozen=True):
    """Calls of training-time batch norms on tensors with channels first, in the order of the trace.

    `call` is the call that each row of the device's work belongs to, -1 if to none. `least_bytes` is what each call
    moves if it reads and writes its tensors as rarely as its algorithm can. Shapes: (len(gpu.work),) and (calls,).
    """

    call: I8
    least_bytes: I8

    @property
    def work(self) -> Mask:
        return np.asarray(self.call >= 0)


def find_batch_norms(gemms: Gemms) -> BatchNorms:
    """Empty without recorded sizes and types. A call with a kernel for channels last is left out."""
    trace, slices, links, gpu = gemms.trace, gemms.slices, gemms.links, gemms.gpu
    ops = trace.ops
    passes = np.array([_passes(name) for name in trace.names] or [0])
    known: I8 = np.flatnonzero((passes[ops.name] > 0) & trace.sized & (ops.types >= 0))
    bytes_of = {
        pair: _tensor_bytes(trace.texts[pair[0]], trace.texts[pair[1]])
        for pair in {(int(ops.dims[row]), int(ops.types[row])) for row in known}
    }
    rows = [row for row in known if bytes_of[int(ops.dims[row]), int(ops.types[row])]]
    if not rows:
        return BatchNorms(np.full(len(gpu.work), -1, np.int64), np.empty(0, np.int64))
    calls = slices.of(OP, len(ops))[np.array(rows, np.int64)]
    number = np.full(len(slices), -1, np.int64)
    number[calls] = np.arange(len(calls))
    owner = slices.ancestor(links.launch_slice, number >= 0)
    call = np.where((owner >= 0) & gpu.is_kernel, number[owner], -1)
    last = np.array([any(word in name for word in _CHANNELS_LAST) for name in trace.names] or [False])
    other = np.zeros(len(calls) + 1, bool)
    other[distinct_values(call[(call >= 0) & last[gpu.work.name]])] = True
    least = [int(passes[ops.name[row]]) * bytes_of[int(ops.dims[row]), int(ops.types[row])] for row in rows]
    return BatchNorms(np.where(other[call], -1, call), np.array(least, np.int64))


def _passes(name: str) -> int:
    """How often the operator passes over its tensor; 0 if it is no batch norm."""
    if name in op_names.BATCH_NORM_OPS:
        return FORWARD_PASSES
    return BACKWARD_PASSES if name.removesuffix("_backward") in op_names.BATCH_NORM_OPS else 0


def _tensor_bytes(dims: str, types: str) -> int:
    """Size of the first input, if it has two or three spatial dimensions; else 0."""
    sizes, names = listed(dims), listed(types)
    if not sizes or not names:
        return 0
    first = sizes[0]
    if not isinstance(first, list) or len(first) not in (4, 5) or not all(type(n) is int and n > 0 for n in first):
        return 0
    total = prod(map(int, first)) * int(DTYPE_BYTES.get(op_names.profiler_dtype(str(names[0])) or "", 0))
    return total if total <= MOST_BYTES else 0
