"""The requirement of the fused kernels that a call of scaled_dot_product_attention does not meet, and the fix."""

from __future__ import annotations

from typing import Any

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.work.attention import SDPA
from traceopt.result.finding import Fix

MAX_HEAD = 256  # largest head size that the flash kernels support
DROPOUT_INPUT = 4  # after query, key, value and mask
UNKNOWN = Fix(
    "The trace does not show the reason. It may be nested tensors, a mask that needs a gradient, or a disabled kernel.",
    "with torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):\n"
    "    out = F.scaled_dot_product_attention(q, k, v)  # warns why neither backend runs",
)


def gpu_requirement(facts: Facts, calls: I8) -> Fix:
    """Why no fused kernel of a GPU could run the first of these calls."""
    settings = facts.captured.environment
    if settings.sdp_flash is False and settings.sdp_memory_efficient is False:
        return Fix(
            "The script disables flash and memory-efficient attention.",
            "torch.backends.cuda.enable_mem_efficient_sdp(True)",
        )
    sizes, types, _ = _inputs(facts, calls)
    unmet = _unmet_by_inputs(sizes, types) or _unmet_by_types_and_mask(sizes, types)
    return Fix(*unmet) if unmet is not None else UNKNOWN


def cpu_requirement(facts: Facts, calls: I8) -> tuple[Fix, bool] | None:
    """Why the CPU's fused kernel could not run the first of these calls, and whether the fix ends its dropout; None if
    the trace does not show the reason.
    """
    if facts.captured.environment.sdp_flash is False:
        return Fix("The script disables flash attention.", "torch.backends.cuda.enable_flash_sdp(True)"), False
    sizes, types, values = _inputs(facts, calls)
    if (dropout := _number(values, DROPOUT_INPUT)) > 0:
        fix = Fix(
            f"The CPU's fused kernel does not support dropout of the attention weights; this call has {dropout:g}. Set "
            "that dropout to 0 and keep the model's other dropout layers. For nn.TransformerEncoderLayer, set "
            "layer.self_attn.dropout.",
            "out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0)\n"
            "# or: layer.self_attn.dropout = 0.0  # nn.MultiheadAttention",
        )
        return fix, True
    unmet = _unmet_by_inputs(sizes, types)
    return (Fix(*unmet), False) if unmet is not None else None


def _inputs(facts: Facts, calls: I8) -> tuple[list[Any], list[str | None], list[Any]]:
    """Shapes, dtypes and values of the inputs of the operator that made the first of these calls; empty if they were
    not recorded. A value is text, "" for a tensor.
    """
    call = facts.slices.ancestor(calls[:1], facts.regions.named(lambda name: name == SDPA, OP))
    row = int(facts.slices.row[call[0]]) if call[0] >= 0 else -1
    ops = facts.trace.ops
    if row < 0 or ops.dims[row] < 0:
        return [], [], []
    types = [op_names.profiler_dtype(str(name)) for name in _list(facts, int(ops.types[row]))[:4]]
    return _list(facts, int(ops.dims[row]))[:4], types, _list(facts, int(ops.concrete[row]))


def _unmet_by_inputs(sizes: list[Any], types: list[str | None]) -> tuple[str, str] | None:
    """What query, key and value lack for any fused kernel, and the line to change."""
    tensors = [size for size in sizes[:3] if isinstance(size, list)]
    if len(tensors) < 3 or len(types) < 3:
        return None
    if any(len(size) != 4 for size in tensors):
        text = f"The fused kernels need four dimensions (batch, heads, tokens, size); the query has {len(tensors[0])}."
        return text, "q, k, v = (t.unflatten(0, (batch, heads)) for t in (q, k, v))"
    if len(set(types[:3])) > 1:
        text = f"Query, key and value have different dtypes ({', '.join(str(name) for name in types[:3])})."
        return text, "k, v = k.to(q.dtype), v.to(q.dtype)"
    return None


def _unmet_by_types_and_mask(sizes: list[Any], types: list[str | None]) -> tuple[str, str] | None:
    """What query, key, value and mask lack for the fused kernels of a GPU, and the line to change."""
    tensors = [size for size in sizes[:3] if isinstance(size, list)]
    if len(tensors) < 3 or len(types) < 3:
        return None
    if types[0] == "fp64":
        return "The fused kernels do not support float64.", "q, k, v = q.float(), k.float(), v.float()"
    head = tensors[0][3]
    if isinstance(head, int) and head > MAX_HEAD:
        text = f"The head size {head} exceeds {MAX_HEAD}. More heads of a smaller size are another model."
        return text, f"num_heads = hidden // {MAX_HEAD}"
    masked = len(sizes) > 3 and isinstance(sizes[3], list) and len(sizes[3]) > 0
    mask_type = types[3] if masked and len(types) > 3 else None
    if masked and mask_type not in (types[0], "bool"):
        return f"The mask is {mask_type}, but the query is {types[0]}.", "mask = mask.to(q.dtype)"
    if masked and isinstance(sizes[3][-1], int) and sizes[3][-1] % 8:
        text = (
            f"The mask's last dimension ({sizes[3][-1]}) is not a multiple of 8, which older PyTorch versions require."
        )
        return text, "mask = F.pad(mask, (0, -mask.shape[-1] % 8))[..., : mask.shape[-1]]"
    return None


def _number(values: list[Any], index: int) -> float:
    """A scalar input; 0 if it is no number."""
    try:
        return float(values[index])
    except (IndexError, TypeError, ValueError):
        return 0.0


def _list(facts: Facts, code: int) -> list[Any]:
    return (listed(facts.trace.texts[code]) if code >= 0 else None) or []
