"""Names of operators, annotations and dtypes, as PyTorch and Kineto spell them in traces of 2021 to 2026.

A predicate returns False for unknown names. Calls of the runtimes are in runtime_calls.py, Python frames of libraries
in library_frames.py, what torch.compile writes in torch_compile.py.
"""

from __future__ import annotations

import re
from typing import Any


def _words(*texts: str) -> frozenset[str]:
    return frozenset(" ".join(texts).split())


_COLLECTIVE_PREFIXES = (
    "nccl:",
    "ncclx:",
    "gloo:",
    "hccl:",
    "mpi:",
    "ucc:",
    "xccl:",
    "rccl:",
    "c10d::",
    "_c10d_functional::",
    "_c10d_functional_autograd::",
    "symm_mem::",
    "torchcomms",
    "deep_ep::",
    "_C_custom_ar::",  # vLLM's custom all-reduce
)


# Operators of engines around a collective: vllm::all_reduce, sglang::inplace_all_reduce, sgl_kernel::all_reduce,
# vllm::flashinfer_trtllm_fused_allreduce_norm
_ENGINE_COLLECTIVE = re.compile(
    r"(?:vllm|sglang|sgl_kernel|aiter|flashinfer|trtllm)::\w{0,60}"
    r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)(?:_\w{1,60})?$"
)


def is_dataloader(name: str) -> bool:
    """A wait for the next batch: ``enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__``."""
    return name.startswith("enumerate(DataLoader") or name in (
        "_SingleProcessDataLoaderIter.__next__",
        "_MultiProcessingDataLoaderIter.__next__",
    )


def is_multiprocess_dataloader(name: str) -> bool:
    """Waiting for the next batch of a loader with worker processes."""
    return is_dataloader(name) and "_MultiProc" in name


def is_single_process_dataloader(name: str) -> bool:
    """Loading the next batch in the training process: the loader has no workers."""
    return is_dataloader(name) and "_SingleProc" in name


def is_collection(name: str) -> bool:
    """The range that capture opens while Python collects garbage."""
    return name == "traceopt: gc"


def is_optimizer_step(name: str) -> bool:
    """``Optimizer.step#SGD.step``."""
    return name.startswith("Optimizer.step#")


def is_zero_grad(name: str) -> bool:
    """``Optimizer.zero_grad#SGD.zero_grad``."""
    return name.startswith("Optimizer.zero_grad#")


def is_collective_annotation(name: str) -> bool:
    """A host-side row of a collective: ``nccl:all_reduce``, ``c10d::allreduce_``, ``record_param_comms``."""
    return (
        name.startswith(_COLLECTIVE_PREFIXES)
        or name == "record_param_comms"
        or _ENGINE_COLLECTIVE.match(name) is not None
    )


_POINT_TO_POINT = re.compile(r"(?:c10d::|nccl:)(?:send|recv)")


def is_point_to_point(name: str) -> bool:
    """A send or receive between two ranks: ``c10d::recv_``, ``nccl:send 0->1``."""
    return _POINT_TO_POINT.match(name) is not None


def is_receive(name: str) -> bool:
    """A receive among those: ``c10d::recv_``."""
    return name.startswith("c10d::recv")


def is_split_exchange(name: str) -> bool:
    """An all-to-all of one tensor, whose arguments have the sizes of its parts: ``c10d::alltoall_base_``."""
    return name == "c10d::alltoall_base_"


def is_symmetric_memory(name: str) -> bool:
    """An operator on symmetric memory, which copies between GPUs: ``symm_mem::_low_contention_all_gather``."""
    return name.startswith("symm_mem::")


def is_backward(name: str) -> bool:
    """The root of a backward operator: ``autograd::engine::evaluate_function: MmBackward0``."""
    return name.startswith("autograd::engine::evaluate_function")


def is_double_backward(name: str) -> bool:
    """The gradient of a gradient: ``TanhBackwardBackward0``. torch.compile refuses to make code for it."""
    return "BackwardBackward" in name


RECURRENT_LAYERS = _words("aten::lstm aten::gru aten::rnn_tanh aten::rnn_relu")
RECURRENT_CELLS = _words("aten::lstm_cell aten::gru_cell aten::rnn_tanh_cell aten::rnn_relu_cell")


def is_index_backward(name: str) -> bool:
    """The backward operator of ``x[i]`` or ``x[a:b]``: ``autograd::engine::evaluate_function: SelectBackward0``."""
    return is_backward(name) and name.rpartition(" ")[2].startswith(("SelectBackward", "SliceBackward"))


DATA_PARALLEL_FUNCTIONS = _words("Broadcast BroadcastBackward Scatter ScatterBackward Gather GatherBackward")
"""The autograd functions of torch.nn.parallel, as the profiler names them."""

EMBEDDINGS = _words("aten::embedding aten::embedding_bag")
EMBEDDING_BACKWARD = "aten::embedding_dense_backward"
ROW_PICKS = _words("aten::index aten::embedding")
"""The `LOOKUPS` whose backward pass calls `INDEXING_BACKWARD` or `EMBEDDING_BACKWARD`; others have operators of their
own.
"""

INDEXING_BACKWARD = _words("aten::_index_put_impl_ aten::index_put_ aten::_unsafe_index_put")
"""Operators that the backward node of ``x[indices]`` calls; a script's own ``x[indices] = y`` calls them as well."""

SAMPLING_BACKWARD = _words(
    "aten::grid_sampler_2d_backward aten::grid_sampler_3d_backward aten::cudnn_grid_sampler_backward "
    "aten::upsample_linear1d_backward aten::upsample_bilinear2d_backward aten::upsample_bicubic2d_backward "
    "aten::upsample_trilinear3d_backward aten::_upsample_bilinear2d_aa_backward "
    "aten::_upsample_bicubic2d_aa_backward"
)
"""Operators that add each gradient to the pixels which a sample was interpolated from."""


def is_index_tensor_backward(name: str) -> bool:
    """The backward operator of ``x[indices]``: ``autograd::engine::evaluate_function: IndexBackward0``."""
    return is_backward(name) and name.rpartition(" ")[2].startswith(("IndexBackward", "UnsafeIndexBackward"))


FORWARD_ONLY: frozenset[str] = _words(
    "aten::linear aten::conv1d aten::conv2d aten::conv3d aten::conv_transpose2d aten::layer_norm aten::rms_norm "
    "aten::batch_norm aten::group_norm aten::scaled_dot_product_attention aten::dropout aten::embedding"
)
"""Operators that models call but backward formulas do not: below a backward node they are recomputation."""

VIEWS: frozenset[str] = _words(
    "aten::detach detach aten::alias aten::view aten::_unsafe_view aten::squeeze aten::unsqueeze aten::expand "
    "aten::as_strided aten::t aten::transpose aten::permute"
)
"""Operators that make another view of a tensor, which takes next to no time."""

MOVES: frozenset[str] = VIEWS | _words(
    "aten::to aten::_to_copy aten::copy_ aten::type_as aten::clone aten::contiguous aten::detach_ aten::lift_fresh "
    "aten::reshape aten::_reshape_alias aten::flatten aten::unflatten aten::expand_as aten::pin_memory "
    "aten::_pin_memory aten::is_pinned aten::empty aten::empty_like aten::empty_strided aten::zeros aten::zeros_like "
    "aten::ones aten::ones_like aten::full aten::arange"
)
"""Operators that compute nothing of a tensor: casts, copies, views, and new tensors."""

SOLVERS: frozenset[str] = _words(
    "aten::inverse aten::linalg_inv aten::linalg_inv_ex aten::cholesky aten::linalg_cholesky aten::linalg_cholesky_ex "
    "aten::cholesky_solve aten::cholesky_inverse aten::linalg_solve aten::linalg_solve_ex aten::_linalg_solve_ex "
    "aten::linalg_lu_factor aten::linalg_lu_factor_ex aten::linalg_solve_triangular aten::triangular_solve "
    "aten::det aten::linalg_det aten::_linalg_det aten::logdet aten::slogdet aten::linalg_slogdet "
    "aten::_linalg_slogdet"
)
"""Linear algebra for which cuBLAS and cuSOLVER have kernels that take a whole batch of small matrices."""

DECOMPOSITIONS: frozenset[str] = _words(
    "aten::svd aten::linalg_svd aten::_linalg_svd aten::linalg_svdvals aten::linalg_pinv aten::linalg_eigh "
    "aten::_linalg_eigh aten::linalg_eigvalsh aten::linalg_eig aten::linalg_eigvals aten::linalg_qr aten::linalg_lstsq"
)
"""Linear algebra that may run one matrix of a batch after the other on a GPU."""

EXPANSIONS: frozenset[str] = _words("aten::expand aten::expand_as aten::broadcast_to aten::repeat aten::tile")
"""Operators that repeat a tensor along dimensions of size 1, with or without a copy."""

PRODUCT_CALLS: frozenset[str] = _words(
    "aten::linear aten::matmul aten::mm aten::addmm aten::bmm aten::einsum aten::tensordot"
)
"""Matmuls as a script calls them. Recurrent layers are not among them: an embedding cannot replace their product."""

CLASS_LOSSES: frozenset[str] = _words("aten::cross_entropy_loss aten::nll_loss_nd aten::nll_loss")
"""Losses over the logits of classes: tokens, classes, further dimensions."""

LOOKUPS: frozenset[str] = _words("aten::embedding aten::embedding_bag aten::index aten::index_select")
"""Operators that read rows of a table, as a script calls them."""

JOINS: frozenset[str] = _words("aten::cat aten::concat aten::stack")
"""Operators that make one tensor of several."""

INDEXING: frozenset[str] = _words("aten::select aten::slice aten::narrow")
"""Operators that pick a part of a tensor at a place that the profiler records."""

CHOICES: frozenset[str] = _words("aten::argmax aten::argmin aten::max aten::min aten::topk aten::multinomial")
"""Operators that say where in a tensor something is."""

SPLITS: frozenset[str] = _words("aten::unbind aten::split aten::chunk aten::tensor_split")
"""Operators that split a tensor into its parts."""

PICKS: frozenset[str] = SPLITS | INDEXING | _words("aten::index aten::index_select")
"""Operators that take a part of a tensor."""

_ARITHMETIC: frozenset[str] = _words(
    "aten::add aten::sub aten::rsub aten::mul aten::div aten::pow aten::neg aten::abs aten::exp aten::log aten::sqrt "
    "aten::rsqrt aten::sin aten::cos aten::sigmoid aten::tanh aten::relu aten::leaky_relu aten::elu aten::gelu "
    "aten::silu aten::softplus aten::clamp aten::clamp_min aten::clamp_max aten::where aten::lerp aten::addcmul "
    "aten::addcdiv aten::sign aten::sgn aten::square aten::masked_fill aten::nan_to_num aten::maximum aten::minimum"
)
_SCALE_AND_MASK: frozenset[str] = _words(
    "aten::add aten::sub aten::rsub aten::mul aten::div aten::where aten::masked_fill"
)


def is_arithmetic(name: str) -> bool:
    """An operator that computes something of each element: ``aten::relu``, ``aten::add_``."""
    return name.removesuffix("_") in _ARITHMETIC


def is_attention(name: str) -> bool:
    """Fused attention, forward or backward: ``aten::_scaled_dot_product_flash_attention_for_cpu``."""
    return "attention" in name and name.startswith("aten::")


def is_scale_or_mask(name: str) -> bool:
    """Arithmetic that scales or masks the scores of attention, as fused attention does, too."""
    return name.removesuffix("_") in _SCALE_AND_MASK


RANDOM: frozenset[str] = _words(
    "aten::normal_ aten::uniform_ aten::bernoulli_ aten::random_ aten::exponential_ aten::geometric_ aten::randperm"
)
"""Operators that draw random numbers: a CPU does that in one thread."""


def is_softmax(name: str) -> bool:
    """The operator of the forward pass that computes it, not those that call it."""
    return name in ("aten::_softmax", "aten::_safe_softmax")


def is_softmax_backward(name: str) -> bool:
    return name == "aten::_softmax_backward_data"


def is_dropout(name: str) -> bool:
    return name in ("aten::dropout", "aten::native_dropout", "aten::native_dropout_backward")


CONVOLUTION_CALLS: frozenset[str] = _words("aten::conv1d aten::conv2d aten::conv3d")
"""Convolutions as a model calls them: input, weight, bias, ...; each calls one of CONVOLUTION_OPS."""

CONVOLUTION_OPS: frozenset[str] = _words("aten::convolution aten::convolution_backward")
"""The operators behind all convolutions, forward and backward."""


def is_padding(name: str) -> bool:
    """F.pad: a circular one slices and copies."""
    return name in ("aten::pad", "aten::_pad_circular")


def is_channels_first_padding(name: str) -> bool:
    """A padding that gives a channels-first tensor, whatever it gets. Zero padding keeps the layout."""
    return name.startswith(("aten::_pad_circular", "aten::reflection_pad", "aten::replication_pad"))


def is_convolution(name: str) -> bool:
    """An operator of a convolution, forward or backward, also of one library: ``aten::cudnn_convolution_backward``."""
    return name.startswith("aten::") and "conv" in name


BATCH_NORMS: frozenset[str] = _words(
    "aten::batch_norm aten::_batch_norm_impl_index aten::cudnn_batch_norm aten::native_batch_norm"
)


# Those that launch the kernels. With the suffix "_backward" they are the operators of the backward pass.
BATCH_NORM_OPS: frozenset[str] = _words("aten::cudnn_batch_norm aten::native_batch_norm aten::miopen_batch_norm")


def is_gradient_accumulation(name: str) -> bool:
    """The node that adds to a parameter's gradient: ``autograd::engine::evaluate_function: ...::AccumulateGrad``."""
    return name.endswith("AccumulateGrad")


def is_collective_call(name: str) -> bool:
    """The operator that starts a collective, or waits for it: ``c10d::allreduce_``."""
    return name.startswith("c10d::")


def is_gradient_bucket_copy(name: str) -> bool:
    """DistributedDataParallel moves gradients into a bucket or back: ``torch::distributed::reducer::mul_out``,
    ``torch.distributed.ddp.reducer::copy_bucket_to_grad``.
    """
    return "reducer::" in name and "distributed" in name


def is_search_for_unused(name: str) -> bool:
    """DistributedDataParallel follows the autograd graph, to find parameters without a gradient:
    ``torch.distributed.ddp.reducer::search_unused_parameters``.
    """
    return name.endswith("reducer::search_unused_parameters")


_CPU_MATH = ("aten::mkldnn_", "aten::_mkl_", "mkldnn::", "aten::_scaled_dot_product_flash_attention_for_cpu")


def is_cpu_math(name: str) -> bool:
    """An operator of oneDNN or MKL, which computes on the CPU: ``aten::mkldnn_convolution``."""
    return name.startswith(_CPU_MATH)


CAST_CALL = "aten::_to_copy"  # what Tensor.to, .double() and the like call: the tensor, the type, ...
_DOUBLE = "7"  # of c10::ScalarType


def casts_to_double(values: list[Any] | None) -> bool:
    """Whether these "Concrete Inputs" of a `CAST_CALL` ask for FP64."""
    return values is not None and len(values) > 1 and str(values[1]) == _DOUBLE


SCALAR_READ = "aten::item"
HOST_READ = "aten::_local_scalar_dense"  # what each read of one value calls
NONZERO = "aten::nonzero"  # the places at which a tensor is not 0
CONDITION = "aten::is_nonzero"  # an `if` or `while` asks for the value of a tensor
VECTOR_NORM = "aten::linalg_vector_norm"  # what Tensor.norm and torch.linalg.norm call
# On other devices, autograd differentiates the matmul inside aten::linear.
_MPS_ONLY = re.compile(
    r"(?:autograd::engine::evaluate_function: )?LinearBackward0$"
    r"|aten::(?:linear_backward$|_?mps_|_lstm_mps|lstm_mps_|\w+_for_mps$)"
)
_GPU_ONLY = re.compile(
    r"aten::(?:cudnn_(?!is_acceptable)|_cudnn_(?!init)|miopen_|_scaled_dot_product_(?:cudnn|efficient)_attention"
    r"|_(?:efficient|flash)_attention_|_thnn_fused_)"  # torch 2.1 has _scaled_dot_product_flash_attention on a CPU
    r"|triton_(?:poi|per|red|tem|for|mm)_"
)


def is_mps_only(name: str) -> bool:
    """An operator that only Apple's MPS runs: ``aten::linear_backward``."""
    return _MPS_ONLY.match(name) is not None


def is_gpu_only(name: str) -> bool:
    """An operator that no CPU can run: ``aten::cudnn_convolution``."""
    return _GPU_ONLY.match(name) is not None


def is_tensor_allocation(name: str) -> bool:
    """The operator behind most new tensors."""
    return name in ("aten::empty", "aten::empty_strided")


_DTYPES = {
    "float": "fp32",
    "double": "fp64",
    "c10::Half": "fp16",
    "half": "fp16",
    "c10::BFloat16": "bf16",
    "bfloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "c10::Float8_e8m0fnu": "fp8",
    "c10::Float4_e2m1fn_x2": "fp4",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "short int": "int16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "long long": "int64",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


def profiler_dtype(text: str) -> str | None:
    """The dtype of a tensor in our spelling, from the profiler's "Input type"; None for scalars, lists and unknown
    types.

    The profiler writes the C++ type: "float", "c10::Half", "long" (ROCm and 2021) or "long int". "Int", "Double" and
    "Scalar" are Python scalars, not tensors.
    """
    return _DTYPES.get(text)
