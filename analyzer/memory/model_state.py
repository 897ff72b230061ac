"""What a model and its optimizer keep on the device between steps, from element counts.

`traceopt run` records the counts. Other traces show them by shapes: in every backward pass, each trainable parameter
accumulates one gradient of its own size and type.
"""

from __future__ import annotations

import re
from math import prod
from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.run_log.run_settings import Captured
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.vocabulary import op_names

ACCUMULATE = "torch::autograd::AccumulateGrad"
_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "int8": 1, "uint8": 1}
_PROFILER_BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
# Tensors of a parameter's size and type that each optimizer keeps per parameter. SGD keeps one with momentum.
_STATES = {
    **dict.fromkeys(("adam", "adamw", "nadam", "radam", "adamax", "lamb", "fusedadam", "fusedlamb"), 2.0),
    **dict.fromkeys(("sgd", "rmsprop", "adagrad", "adadelta", "lion", "muon", "asgd", "rprop"), 1.0),
    "adafactor": 0.0,
}
_OPTIMIZER = re.compile(r"^Optimizer\.step#(\w+)\.step")


class ModelState(Struct, frozen=True):
    """Bytes of one rank's copy if nothing is sharded. `state_bytes` is None for an unknown optimizer."""

    parameters: int  # elements
    parameter_bytes: int
    gradient_bytes: int
    state_bytes: int | None
    optimizer: str | None  # class name
    source: Literal["recorded", "shapes"]  # shapes: trainable parameters only


def find_model_state(trace: Trace, slices: Slices, passes: Intervals, captured: Captured) -> ModelState | None:
    """The state of the model; None if neither counts nor shapes were recorded, or nothing is trained."""
    optimizer = _optimizer_class(trace)
    return _recorded(captured, optimizer) or _from_gradients(trace, slices, passes, optimizer)


def state_multiple(optimizer: str | None) -> float | None:
    """Elements of optimizer state per parameter element; None for an unknown optimizer class."""
    short = (optimizer or "").rpartition(".")[2].lower()
    if "8bit" in short:
        plain = _STATES.get(short.replace("8bit", "").removeprefix("paged"))
        return None if plain is None else plain / 4  # one byte instead of FP32's four
    return _STATES.get(short)


def _optimizer_class(trace: Trace) -> str | None:
    names = (trace.names[code] for code in distinct_values(trace.annotations.name))
    return next((match[1] for name in names if (match := _OPTIMIZER.match(name))), None)


def _recorded(captured: Captured, optimizer: str | None) -> ModelState | None:
    """From the counts that `traceopt run` wrote into the trace; gradients have the type of the parameters."""
    elements = sum(sum(model.dtypes.values()) for model in captured.models)
    if not elements:
        return None
    size = sum(_BYTES.get(dtype, 4) * count for model in captured.models for dtype, count in model.dtypes.items())
    trained = min(elements, sum(one.parameters or 0 for one in captured.optimizers))
    gradient = size * trained // elements
    multiple = state_multiple(optimizer)
    return ModelState(
        parameters=elements,
        parameter_bytes=size,
        gradient_bytes=gradient,
        state_bytes=None if multiple is None else round(multiple * gradient),
        optimizer=optimizer,
        source="recorded",
    )


def _from_gradients(trace: Trace, slices: Slices, passes: Intervals, optimizer: str | None) -> ModelState | None:
    ops = trace.ops
    if ACCUMULATE not in trace.names or not len(passes):
        return None
    rows = np.flatnonzero((ops.name == trace.names.index(ACCUMULATE)) & (ops.dims >= 0))
    pairs, group = np.unique(np.stack((ops.dims[rows], ops.types[rows])), axis=1, return_inverse=True)
    sizes = np.array([_elements(trace, dims, types) for dims, types in pairs.T.tolist()] or [(0, 0)])  # distinct shapes
    at = np.searchsorted(passes.start, slices.start[slices.of(OP, len(ops))[rows]], side="right") - 1
    inside = at >= 0
    if not inside.any():
        return None
    each = sizes[group.reshape(-1)[inside]]
    elements, size = (np.bincount(at[inside], weights=each[:, i], minlength=len(passes)) for i in (0, 1))
    whole = int(elements.argmax())  # the fullest pass: a file may begin or end inside one
    if not elements[whole]:
        return None
    multiple = state_multiple(optimizer)
    return ModelState(
        parameters=int(elements[whole]),
        parameter_bytes=int(size[whole]),
        gradient_bytes=int(size[whole]),
        state_bytes=None if multiple is None else round(multiple * size[whole]),
        optimizer=optimizer,
        source="shapes",
    )


def _elements(trace: Trace, dims: int, types: int) -> tuple[int, int]:
    """Elements and bytes of one gradient."""
    shapes = listed(trace.texts[dims])
    names = listed(trace.texts[types]) if types >= 0 else None
    shape = shapes[0] if shapes else None
    if not isinstance(shape, list) or not all(isinstance(n, int) and 0 <= n < 2**40 for n in shape):
        return 0, 0
    dtype = op_names.profiler_dtype(str(names[0])) if names else None
    count = min(prod(shape), 2**50)
    return count, count * _PROFILER_BYTES.get(dtype or "fp32", 4)
