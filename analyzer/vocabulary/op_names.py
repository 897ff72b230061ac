"""Names on the host side of a trace: PyTorch operators, annotations, runtime and driver calls, profiler dtypes.

This is the only place that knows how PyTorch, Kineto, CUDA, HIP and Level Zero spell them. The names are those in
traces of 2021 to 2026; a predicate returns False for unknown names.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal

from traceopt.result.words.vendors import VENDORS


def _words(*texts: str) -> frozenset[str]:
    return frozenset(" ".join(texts).split())


# Annotations and operator-like rows -------------------------------------------------------------------------

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
_COMPILE_MARKS = (
    "TorchDynamo Cache Lookup",  # a lookup, not a compilation: see is_compile
    "_compile.compile_inner",
    "compile_inner",
    "entire_frame_compile",
    "backend_compile",
    "inductor_compile",
    "compile_fx",
    "compile_file",
    "GraphLowering.",
    "Scheduler.codegen",
    "async_compile",
    "AsyncCompile",
    "CachingAutotuner.benchmark",
    "create_aot_dispatcher_function",
    "aot_dispatch",
    "triton_compile",
    "TritonCompile",
)

_DYNAMO_TIMED = " (dynamo_timed)"
"""End of the names of torch.compile's own phases: ``PyCodegen (dynamo_timed)``, ``CUDAGraphNode.record (...)``."""


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
_DATA_PARALLEL_FRAME = re.compile(
    r"torch/nn/parallel/(?:replicate|scatter_gather|comm)\.py\(\d+\): (?:replicate|scatter|gather)"
)
_DATA_PARALLEL_MODULE = re.compile(
    r"torch/nn/parallel/data_parallel\.py\(\d+\): forward|^nn\.Module: DataParallel_\d+$"
)


def is_data_parallel_frame(name: str) -> bool:
    """A Python frame that copies a model or a batch between GPUs, or collects the results."""
    return _DATA_PARALLEL_FRAME.search(name) is not None


def is_data_parallel_module(name: str) -> bool:
    """The Python frame of a call of nn.DataParallel."""
    return _DATA_PARALLEL_MODULE.search(name) is not None


EMBEDDING_BACKWARD = "aten::embedding_dense_backward"
ROW_PICKS = _words("aten::index aten::embedding")
"""Operators that pick rows of a tensor."""
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


def is_recompute_frame(name: str) -> bool:
    """A frame that recomputes a checkpointed part, or its hook: ``torch/utils/checkpoint.py(1500): recompute_fn``."""
    return name.endswith((": recompute_fn", ": unpack_hook")) and "torch/utils/checkpoint.py(" in name


def is_checkpoint_frame(name: str) -> bool:
    """The Python frame of the call that checkpoints: ``torch/utils/checkpoint.py(355): checkpoint``."""
    return name.endswith(": checkpoint") and "torch/utils/checkpoint.py(" in name


FORWARD_ONLY: frozenset[str] = _words(
    "aten::linear aten::conv1d aten::conv2d aten::conv3d aten::conv_transpose2d aten::layer_norm aten::rms_norm "
    "aten::batch_norm aten::group_norm aten::scaled_dot_product_attention aten::dropout aten::embedding"
)
"""Operators that models call but backward formulas do not: below a backward node they are recomputation."""


MOVES: frozenset[str] = _words(
    "aten::to aten::_to_copy aten::copy_ aten::type_as aten::clone aten::contiguous aten::detach detach aten::detach_ "
    "aten::alias aten::lift_fresh aten::view aten::reshape aten::_reshape_alias aten::_unsafe_view aten::flatten "
    "aten::unflatten aten::squeeze aten::unsqueeze aten::expand aten::expand_as aten::as_strided aten::t "
    "aten::transpose aten::permute aten::pin_memory aten::_pin_memory aten::is_pinned aten::empty aten::empty_like "
    "aten::empty_strided aten::zeros aten::zeros_like aten::ones aten::ones_like aten::full aten::arange"
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


SPLITS: frozenset[str] = _words("aten::unbind aten::split aten::chunk aten::tensor_split")
"""Operators that split a tensor into its parts."""

PICKS: frozenset[str] = SPLITS | _words("aten::select aten::slice aten::index aten::index_select aten::narrow")
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


INDEXING: frozenset[str] = _words("aten::select aten::slice aten::narrow")
"""Operators that pick a part of a tensor at a place that the profiler records."""


def is_scale_or_mask(name: str) -> bool:
    """Arithmetic that scales or masks the scores of attention, as fused attention does, too."""
    return name.removesuffix("_") in _SCALE_AND_MASK


RANDOM: frozenset[str] = _words(
    "aten::normal_ aten::uniform_ aten::bernoulli_ aten::random_ aten::exponential_ aten::geometric_ aten::randperm"
)
"""Operators that draw random numbers: a CPU does that in one thread."""


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


def is_deep_copy_frame(name: str) -> bool:
    """The Python frame of ``copy.deepcopy``: ``copy.py(128): deepcopy``."""
    return name.endswith(": deepcopy") and "copy.py(" in name


_PANDAS_ROWS = re.compile(
    r"(?:^|/)pandas/core/(?:indexing\.py\(\d+\): __(?:get|set)item__|frame\.py\(\d+\): iter(?:rows|tuples))$"
)
_MODULE_CAST = re.compile(r"torch/nn/modules/module\.py\(\d+\): (?:bfloat16|cpu|cuda|double|float|half|to|type)$")


def is_pandas_row_frame(name: str) -> bool:
    """pandas reads a row or a cell: ``pandas/core/indexing.py(1327): __getitem__``, ``iterrows``."""
    return _PANDAS_ROWS.search(name) is not None


def is_sample_frame(name: str) -> bool:
    """The Python frame of ``random.sample``: ``random.py(385): sample``."""
    return name.endswith(": sample") and name.rpartition("/")[2].startswith("random.py(")


def is_sample_draw_frame(name: str) -> bool:
    """`random.sample` chooses an item: ``random.py(245): _randbelow_with_getrandbits``."""
    return ": _randbelow" in name and name.rpartition("/")[2].startswith("random.py(")


def is_module_cast_frame(name: str) -> bool:
    """A module casts or moves all its weights: ``torch/nn/modules/module.py(1191): double``."""
    return _MODULE_CAST.search(name) is not None


def is_sampler_frame(name: str) -> bool:
    """A DataLoader asks its sampler what to read next: ``torch/utils/data/dataloader.py(714): _next_index``."""
    return name.endswith(": _next_index") and "torch/utils/data/dataloader.py(" in name


def is_data_frame(name: str) -> bool:
    """Code of a DataLoader, or of a data set that returns an item: ``data.py(12): __getitem__``."""
    return "torch/utils/data/dataloader.py(" in name or name.endswith(": __getitem__")


def is_new_iterator_frame(name: str) -> bool:
    """The loop begins to read a DataLoader: ``torch/utils/data/dataloader.py(492): __iter__`` calls ``_get_iterator``,
    or ``_reset`` if the workers persist.
    """
    return name.endswith((": _get_iterator", ": _reset")) and "torch/utils/data/dataloader.py(" in name


def is_next_batch_frame(name: str) -> bool:
    """The loop asks an iterator for a batch: ``torch/utils/data/dataloader.py(720): __next__``."""
    return name.endswith(": __next__") and "torch/utils/data/dataloader.py(" in name


def is_engine_frame(name: str) -> bool:
    """The Python frame in which the autograd engine works: ``<built-in method run_backward of torch._C...>``."""
    return name.startswith("<built-in method run_backward")


_CPU_MATH = ("aten::mkldnn_", "aten::_mkl_", "mkldnn::", "aten::_scaled_dot_product_flash_attention_for_cpu")


def is_cpu_math(name: str) -> bool:
    """An operator of oneDNN or MKL, which computes on the CPU: ``aten::mkldnn_convolution``."""
    return name.startswith(_CPU_MATH)


CAST_CALL = "aten::_to_copy"  # what Tensor.to, .double() and the like call: the tensor, the type, ...
_DOUBLE = "7"  # of c10::ScalarType


def casts_to_double(values: list[Any] | None) -> bool:
    """Whether these "Concrete Inputs" of a `CAST_CALL` ask for FP64."""
    return values is not None and len(values) > 1 and str(values[1]) == _DOUBLE


VECTOR_NORM = "aten::linalg_vector_norm"  # what Tensor.norm and torch.linalg.norm call
MPS_ONLY = "aten::linear_backward"  # on other devices autograd differentiates the matmul inside aten::linear
_GPU_ONLY = re.compile(r"aten::(?:cudnn_(?!is_acceptable)|_cudnn_(?!init)|miopen_|_scaled_dot_product_cudnn_attention)")


def is_gpu_only(name: str) -> bool:
    """An operator that no CPU can run: ``aten::cudnn_convolution``."""
    return _GPU_ONLY.match(name) is not None


def is_compile(name: str) -> bool:
    """A compilation by TorchDynamo, AOTAutograd, Inductor or Triton; not the execution of compiled code."""
    if name.startswith(("TorchDynamo Cache Lookup", "Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledF")):
        return False
    return (
        name.startswith("TorchDynamo")
        or name.endswith(_DYNAMO_TIMED)
        or any(mark in name[:200] for mark in _COMPILE_MARKS)
    )


# Seen in 2022-23: fallback_function, fused__autocast_to__15680171862954066917, TensorExprGroup, CudaFusionGroup.
_JIT_COMPILED = re.compile(
    r"^(?:fallback_function$|fused_\w{0,200}_\d{6,}$|(?:prim::)?(?:TensorExpr|CudaFusion)\w*Group)"
)


def is_jit_compiled(name: str) -> bool:
    """Code that a TorchScript fuser has compiled, at its first call."""
    return _JIT_COMPILED.match(name) is not None


def is_compiled_code(name: str) -> bool:
    """An annotation or operator around the execution of code that torch.compile made."""
    return name.startswith(("Torch-Compiled Region", "## Call CompiledFxGraph")) or name in (
        "CompiledFunction",
        "CompiledFunctionBackward",
    )


_COMPILED_REGION = re.compile(r"^Torch-Compiled Region: (?P<frame>\d+)/(?P<compiled>\d+)")


def is_compiled_lookup(name: str) -> bool:
    """Dynamo's check of the guards, before each call of compiled code."""
    return name == "TorchDynamo Cache Lookup"


def is_compiled_entry(name: str) -> bool:
    """What runs between the check of the guards and the compiled code itself."""
    return name in ("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue")


def compiled_region(name: str) -> tuple[str, int] | None:
    """Frame and compilation number of a region: ("3", 1) for ``Torch-Compiled Region: 3/1``; None for other names."""
    match = _COMPILED_REGION.match(name)
    return (match["frame"], int(match["compiled"])) if match else None


# Runtime and driver calls -----------------------------------------------------------------------------------

_CUDA = re.compile(r"(?:cuda|cu)(?=[A-Z])")


def _calls(names: str) -> frozenset[str]:
    """The calls with these names, and with those of runtimes that follow CUDA's: cudaMemcpy is hipMemcpy."""
    calls = _words(names)
    prefixes = [vendor.call_prefix for vendor in VENDORS if vendor.call_prefix is not None]
    return calls | {_CUDA.sub(prefix, call) for call in calls if _CUDA.match(call) for prefix in prefixes}


_VERSION_SUFFIX = re.compile(r"(?:_v\d{1,5}|R0\d{3})?(?:_ptsz|_ptds|_spt)?$")

_BLOCKING = _calls(
    # synchronizeStream and synchronize: MTIA
    "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cudaThreadSynchronize cudaMemcpy "
    "cudaMemcpy2D cudaMemcpy3D cudaMemcpyToSymbol cudaMemcpyFromSymbol cudaMemcpyPeer cudaFree cudaFreeHost "
    "cuCtxSynchronize cuStreamSynchronize cuEventSynchronize cuMemcpy cuMemcpyDtoH cuMemcpyHtoD cuMemcpyDtoD "
    "cuMemFree cuMemFreeHost hipMemcpyWithStream hipHostFree synchronizeStream synchronize "
    "zeEventHostSynchronize zeCommandQueueSynchronize zeFenceHostSynchronize zeCommandListHostSynchronize "
    "urEventWait urQueueFinish piEventsWait piQueueFinish aclrtSynchronizeStream aclrtSynchronizeDevice"
)
_COPIES = _calls(
    "cudaMemcpyAsync cudaMemcpy2DAsync cudaMemcpy3DAsync cudaMemcpyPeerAsync cudaMemcpyBatchAsync cuMemcpyAsync "
    "cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuMemcpyDtoDAsync cuMemcpyPeerAsync"
)
_FILLS = _calls("cudaMemsetAsync cudaMemset cudaMemset2DAsync cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async")
_GRAPH_LAUNCHES = _calls("cudaGraphLaunch cuGraphLaunch")
_STREAM_WAITS = _calls("cudaStreamWaitEvent cuStreamWaitEvent")
_KERNEL_LAUNCHES = _calls(
    "cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cudaLaunchCooperativeKernelMultiDevice "
    "cudaLaunch cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel hipExtLaunchKernel "
    "hipExtModuleLaunchKernel hipModuleLaunchKernel hipModuleLaunchCooperativeKernel "
    "hipExtLaunchMultiKernelMultiDevice hipLaunchByPtr hipDrvLaunchKernelEx zeCommandListAppendLaunchKernel "
    "zeCommandListAppendLaunchCooperativeKernel urEnqueueKernelLaunch urEnqueueKernelLaunchWithArgsExp "
    "piEnqueueKernelLaunch"
)
_EVENT_WAITS = _calls("cudaEventSynchronize cuEventSynchronize")
_DEVICE_ALLOCATIONS = _calls(
    "cudaMalloc cudaMallocAsync cudaMallocManaged cudaMallocPitch cudaMalloc3D cudaMallocFromPoolAsync cudaFree "
    "cudaFreeAsync cudaMemPoolTrimTo cuMemAlloc cuMemAllocAsync cuMemAllocManaged cuMemAllocPitch cuMemFree "
    "cuMemFreeAsync cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cuMemAddressReserve "
    "cuMemAddressFree hipExtMallocWithFlags zeMemAllocDevice zeMemAllocShared zeMemFree urUSMDeviceAlloc urUSMFree"
)
_PINNED_ALLOCATIONS = _calls(
    "cudaMallocHost cudaHostAlloc cudaHostRegister cudaHostUnregister cudaFreeHost cuMemAllocHost cuMemHostAlloc "
    "cuMemHostRegister cuMemHostUnregister cuMemFreeHost hipHostMalloc hipHostFree zeMemAllocHost urUSMHostAlloc"
)
_MODULE_LOADS = _calls(
    "cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuLibraryLoadData "
    "cuLibraryLoadFromFile cuLibraryGetKernel cuLibraryGetModule cuLinkCreate cuLinkAddData cuLinkComplete "
    "cuModuleGetFunction cudaLibraryLoadData cudaModuleLoadData __hipRegisterFatBinary __cudaRegisterFatBinary "
    "zeModuleCreate urProgramBuild"
)
_CAPTURES = _calls(
    "cudaStreamBeginCapture cudaStreamBeginCaptureToGraph cudaStreamEndCapture cudaGraphInstantiate "
    "cudaGraphInstantiateWithFlags cudaGraphInstantiateWithParams cudaGraphExecUpdate cuStreamBeginCapture "
    "cuStreamEndCapture cuGraphInstantiate cuGraphInstantiateWithFlags"
)


@lru_cache(maxsize=4096)
def runtime_call(name: str) -> str:
    """A runtime or driver call without version and stream suffix: ``cuMemFree`` for ``cuMemFree_v2_ptsz``."""
    return _VERSION_SUFFIX.sub("", name[:200])


def is_blocking_sync(name: str) -> bool:
    """The call returns when earlier GPU work is done: synchronize calls, synchronous copies, cudaFree."""
    return runtime_call(name) in _BLOCKING


def is_event_wait(name: str) -> bool:
    """The call waits until the GPU has reached an event: ``cudaEventSynchronize``."""
    return runtime_call(name) in _EVENT_WAITS


def is_copy(name: str) -> bool:
    """The call copies memory, blocking or not."""
    call = runtime_call(name)
    return call in _COPIES or (call in _BLOCKING and "emcpy" in call)


def is_launch(name: str) -> bool:
    """The call puts work on the GPU: a kernel, a graph, a copy or a fill."""
    call = runtime_call(name)
    return call in _KERNEL_LAUNCHES or call in _GRAPH_LAUNCHES or call in _FILLS or is_copy(call)


def is_capture_begin(name: str) -> bool:
    """From this call on, launches are recorded into a graph instead of run."""
    return "StreamBeginCapture" in runtime_call(name)


def is_capture_end(name: str) -> bool:
    """The call ends a capture."""
    return "StreamEndCapture" in runtime_call(name)


def launched_kind(name: str) -> Literal["kernel", "copy", "fill"] | None:
    """What the call puts on the GPU; None for a graph, or if it launches nothing."""
    call = runtime_call(name)
    if call in _KERNEL_LAUNCHES:
        return "kernel"
    if call in _FILLS:
        return "fill"
    return "copy" if is_copy(call) else None


def is_kernel_launch(name: str) -> bool:
    """The call launches one kernel."""
    return runtime_call(name) in _KERNEL_LAUNCHES


def counts_threads(name: str) -> bool:
    """The call's grid counts threads, not blocks (seen on MI300X: rocBLAS, MIOpen)."""
    return runtime_call(name) == "hipExtModuleLaunchKernel"


def is_graph_launch(name: str) -> bool:
    """The call launches a captured graph of kernels."""
    return runtime_call(name) in _GRAPH_LAUNCHES


def is_stream_wait(name: str) -> bool:
    """The call makes a stream wait for an event, not the host."""
    return runtime_call(name) in _STREAM_WAITS


def is_device_allocation(name: str) -> bool:
    """The call allocates, maps or frees memory of the device."""
    return runtime_call(name) in _DEVICE_ALLOCATIONS


def is_pinned_allocation(name: str) -> bool:
    """The call allocates, pins or frees memory of the host that the device can access."""
    return runtime_call(name) in _PINNED_ALLOCATIONS


def is_allocation(name: str) -> bool:
    """The call allocates or frees memory of the driver: of the device, or pinned memory of the host."""
    return is_device_allocation(name) or is_pinned_allocation(name)


def is_tensor_allocation(name: str) -> bool:
    """The operator behind most new tensors."""
    return name in ("aten::empty", "aten::empty_strided")


def is_empty_cache_frame(name: str) -> bool:
    """The Python frame of `torch.cuda.empty_cache()`, or of the builtin that it calls."""
    return name.endswith(": empty_cache") or "_emptyCache" in name


def is_module_load(name: str) -> bool:
    """The call loads or links device code."""
    return runtime_call(name) in _MODULE_LOADS


def is_stream_capture(name: str) -> bool:
    """The call captures or instantiates a graph. Queries such as ``cudaStreamIsCapturing`` do not count."""
    return runtime_call(name) in _CAPTURES


# Data types -------------------------------------------------------------------------------------------------

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
