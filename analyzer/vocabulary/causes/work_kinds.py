"""The kinds of the GPU's own work, one row each: what people call it, and how operators and kernels show it."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.analyzer.vocabulary.kernels.kernel_names import classify


class WorkKind(Struct, frozen=True):
    """`label` starts a sentence; `plural`: its verb. Work is of this kind if the name of its kernel matches
    `kernel_names` ("": none), or else that of its operator `operators`, or else if its kernel is of one of the
    `kernels` kinds (`KernelClass.kind`).

    `faster` says what to look at if the work is far below the peak, `instead` what may do the same with less of it.
    """

    label: str
    plural: bool = False
    operators: str = ""
    kernels: tuple[str, ...] = ()
    faster: str = ""
    instead: str = ""
    kernel_names: str = ""
    is_named: bool = False  # the label is the name of an operator or kernel


_LIBRARY = "Another shape, kernel or library may be faster."

# The operator decides before the kernel, because kernels have few kinds: the matmuls of an LSTM are a part of it.
MATMULS = WorkKind("Matmuls", True, kernels=("gemm",), faster=_LIBRARY)
# naive_conv_ab_nonpacked_fwd_nchw_half_double_half of MIOpen
NAIVE_CONVOLUTIONS = WorkKind(
    "Naive convolutions",
    True,
    kernel_names=r"^naive_conv_",
    instead="MIOpen falls back to its naive_conv kernels if it finds no faster ones. Try the other memory format, "
    "another type, a newer ROCm, or MIOPEN_FIND_MODE=1, which times all kernels.",
)
# conv_depthwise2d_grad_weight_kernel of PyTorch, which runs NCHW tensors: cuDNN's run channels_last
DEPTHWISE_CONVOLUTIONS = WorkKind(
    "Depthwise convolutions",
    True,
    kernel_names=r"conv_depthwise[23]d",
    instead="PyTorch's own kernels compute them. For channels_last it calls cuDNN's, which may be faster.",
)
WORK_KINDS = (
    NAIVE_CONVOLUTIONS,
    DEPTHWISE_CONVOLUTIONS,
    WorkKind("Mixture of experts", False, r"(?i)moe|fused_experts"),
    WorkKind("Recurrent layers", True, r"_cudnn_rnn|miopen_rnn|aten::(?:lstm|gru|rnn_)|_thnn_fused_(?:lstm|gru)"),
    WorkKind(
        "Attention",
        False,
        r"scaled_dot_product|flash_attn|_(?:flash|efficient|cudnn)_attention|flex_attention",
        ("attention",),
        "Another head size, mask, kernel or library may be faster.",
    ),
    WorkKind(
        "Embedding lookups",
        True,
        r"aten::_?embedding",
        ("embedding",),
        instead="If their vectors are summed or averaged, nn.EmbeddingBag does not write each of them.",
    ),
    WorkKind(
        "Dequantization",
        False,
        r"(?i)dequanti[sz]|MatMul(?:4Bit|8bitLt)",  # bitsandbytes; the matmul itself is an operator of PyTorch
        instead="With more rows, from a larger batch, fewer weights are dequantized for each sample.",
    ),
    WorkKind("State-space scans", True, r"(?i)mamba|selective_?(?:scan|state)"),
    WorkKind("Grid sampling", False, r"grid_sampl"),
    WorkKind("Interpolation", False, r"upsample_|interpolate"),
    WorkKind(
        "Additions at indices",
        True,
        r"aten::_?(?:scatter_(?:add|reduce)|index_(?:add|reduce))",
        instead="If the indices stay the same, as the edges of a graph do, sort them once: torch.sparse.mm and "
        "torch.segment_reduce add sorted rows without atomics.",
    ),
    WorkKind(
        "Indexing",
        False,
        r"aten::_?(?:unsafe_)?(?:index|take|gather|scatter|masked_(?:select|scatter)|nonzero|put|select_backward)",
        ("index",),
    ),
    WorkKind("Linear algebra", False, r"aten::_?(?:linalg_(?!vector_norm)|cholesky|triangular_solve|lu_|svd|symeig)"),
    WorkKind("Fourier transforms", True, r"aten::_?fft_"),
    WorkKind("Convolutions", True, r"convolution", ("conv",), "Another shape, layout or library may be faster."),
    MATMULS,
    WorkKind("Normalization", False, kernels=("norm",)),
    WorkKind("Softmax", False, kernels=("softmax",)),
    WorkKind("The optimizer", False, kernels=("optimizer",)),
    WorkKind("Pooling", False, kernels=("pool",)),
    WorkKind("Sorting", False, kernels=("sort",)),
    WorkKind("Random numbers", True, kernels=("rng",)),
    WorkKind("Reductions", True, kernels=("reduction",)),
    WorkKind("Layout conversions", True, kernels=("layout",)),
    WorkKind("Casts and copies", True, kernels=("copy", "memset")),
    WorkKind("Pointwise operators", True, kernels=("elementwise",)),
)
_KERNELS = tuple((re.compile(kind.kernel_names), kind) for kind in WORK_KINDS if kind.kernel_names)
_OPERATORS = tuple((re.compile(kind.operators), kind) for kind in WORK_KINDS if kind.operators)
_OF_KERNEL = {name: kind for kind in WORK_KINDS for name in kind.kernels}


@lru_cache(maxsize=8192)
def work_kind(operator: str, kernel: str) -> WorkKind:
    """The kind of a kernel and of the operator that launched it ("": unknown, so that its own name has to tell). Work
    of no known kind has the name of its operator, or else of its kernel.
    """
    known = next((kind for pattern, kind in _KERNELS if pattern.search(kernel)), None)
    known = known or next((kind for pattern, kind in _OPERATORS if pattern.search(operator or kernel)), None)
    found = known or _OF_KERNEL.get(classify(kernel).kind)
    return found or WorkKind(operator or short_name(kernel), is_named=True)
