"""Host-side names: operators, annotations, runtime calls and dtypes as real traces spell them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fixtures.real_traces import TRACES, load
from traceopt.analyzer.vocabulary import op_names as ops
from traceopt.analyzer.vocabulary import runtime_calls

LAUNCHES = (
    "cudaLaunchKernel cudaLaunchKernelExC cuLaunchKernel cuLaunchKernelEx cudaGraphLaunch "
    "hipLaunchKernel hipGraphLaunch hipExtModuleLaunchKernel hipModuleLaunchKernel hipExtLaunchKernel "
    "cudaMemcpyAsync cudaMemsetAsync hipMemcpyAsync hipMemsetAsync hipMemcpyWithStream cudaMemcpy "
    "hipMemset cudaLaunchKernel_ptsz urEnqueueKernelLaunch urEnqueueKernelLaunchWithArgsExp"
)
BLOCKING = (
    "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cuStreamSynchronize "
    "hipDeviceSynchronize hipStreamSynchronize hipEventSynchronize hipMemcpyWithStream cudaMemcpy "
    "cudaFree hipFree cuMemFree_v2 cudaStreamSynchronize_ptsz"
)
PREDICATES: list[tuple[Callable[[str], bool], str, str]] = [
    (runtime_calls.is_launch, LAUNCHES, "cudaEventRecord cudaStreamWaitEvent cudaMalloc cudaStreamSynchronize INVALID"),
    (runtime_calls.is_kernel_launch, "cudaLaunchKernel hipExtModuleLaunchKernel", "cudaGraphLaunch cudaMemcpyAsync"),
    (
        runtime_calls.is_blocking_sync,
        BLOCKING,
        "cudaMemcpyAsync cudaStreamWaitEvent cudaEventQuery cudaFreeAsync hipMemcpyAsync",
    ),
    (runtime_calls.is_copy, "cudaMemcpyAsync cudaMemcpy hipMemcpyWithStream", "cudaMemsetAsync cudaFree"),
    (
        runtime_calls.is_allocation,
        "cudaMalloc cudaFree cudaHostAlloc hipMalloc cuMemCreate cuMemMap",
        "cudaMemcpyAsync",
    ),
    (
        runtime_calls.is_device_allocation,
        "cudaMalloc hipFree cuMemFree_v2",
        "cudaHostAlloc cudaFreeHost cudaMemcpyAsync",
    ),
    (runtime_calls.is_pinned_allocation, "cudaHostAlloc hipHostFree cudaHostRegister", "cudaMalloc cudaFree"),
    (runtime_calls.is_module_load, "cuModuleLoadData cuLibraryLoadData hipModuleLoadData", "cudaFuncGetAttributes"),
    (
        runtime_calls.is_stream_capture,
        "cudaStreamBeginCapture_v2 cudaGraphInstantiate",
        "cudaStreamIsCapturing cudaGraphLaunch",
    ),
]


@pytest.mark.parametrize(("predicate", "true", "false"), PREDICATES, ids=[p[0].__name__ for p in PREDICATES])
def test_runtime_calls(predicate: Callable[[str], bool], true: str, false: str) -> None:
    assert [name for name in true.split() if not predicate(name)] == []
    assert [name for name in false.split() if predicate(name)] == []


def test_annotations() -> None:
    assert ops.is_dataloader("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    assert ops.is_dataloader("enumerate(DataLoader)#_MultiProcessingDataLoa")
    assert not ops.is_dataloader("DistributedDataParallel.forward")
    assert ops.is_multiprocess_dataloader("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    assert not ops.is_multiprocess_dataloader("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    assert ops.is_optimizer_step("Optimizer.step#FusedAdam.step")
    assert not ops.is_optimizer_step("Optimizer.zero_grad#SGD.zero_grad")
    assert ops.is_zero_grad("Optimizer.zero_grad#SGD.zero_grad")
    assert ops.is_backward("autograd::engine::evaluate_function: AddmmBackward0")
    assert not ops.is_backward("AddmmBackward0")
    for name in (
        "nccl:all_reduce",
        "gloo:all_reduce",
        "c10d::allreduce_",
        "record_param_comms",
        "hccl:broadcast",
        "ncclx:all_gather_into_tensor",
        "symm_mem::_low_contention_all_gather",
        "torchcomms::all_reduce",
        "_c10d_functional_autograd::all_to_all_single",
        "deep_ep::internode_dispatch",
        "vllm::all_reduce",
        "vllm::flashinfer_trtllm_fused_allreduce_norm",
        "sglang::outplace_all_reduce",
        "sgl_kernel::all_reduce",
    ):
        assert ops.is_collective_annotation(name)
    for name in ("aten::all", "vllm::moe_forward", "sgl_kernel::fp8_scaled_mm", "symm_memory"):
        assert not ops.is_collective_annotation(name)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("float", "fp32"),
        ("double", "fp64"),
        ("c10::Half", "fp16"),
        ("c10::BFloat16", "bf16"),
        ("c10::Float8_e4m3fn", "fp8"),
        ("signed char", "int8"),
        ("long int", "int64"),
        ("long", "int64"),
        ("Scalar", None),
        ("Int", None),
        ("Double", None),
        ("GenericList", None),
        ("", None),
    ],
)
def test_profiler_dtypes(text: str, dtype: str | None) -> None:
    assert ops.profiler_dtype(text) == dtype


@pytest.mark.real_traces
def test_real_traces_hold_no_unknown_waits_launches_or_dtypes() -> None:
    """Every runtime call that sounds like a wait, launch or allocation is known, and every tensor dtype."""
    sounds: list[tuple[str, Callable[[str], bool]]] = [
        ("Synchronize", runtime_calls.is_blocking_sync),
        ("LaunchKernel", runtime_calls.is_launch),
        ("GraphLaunch", runtime_calls.is_launch),
        ("Memcpy", runtime_calls.is_copy),
        ("Memset", runtime_calls.is_launch),
        ("Malloc", runtime_calls.is_allocation),
        ("ModuleLoad", runtime_calls.is_module_load),
    ]
    runtime: set[str] = set()
    dtypes: set[str] = set()
    for path in sorted(TRACES.rglob("*.gz")):
        document = load(path)
        for event in document.get("traceEvents", []) if isinstance(document, dict) else []:
            category = str(event.get("cat", "")).lower()
            if category in ("runtime", "cuda_runtime", "cuda_driver"):
                runtime.add(event["name"])
            elif category in ("cpu_op", "operator"):
                dtypes.update((event.get("args") or {}).get("Input type") or [])
    unknown = [name for name in runtime for sound, known in sounds if sound in name and not known(name)]
    assert unknown == []
    # Python scalars and containers are capitalized; the rest are tensor types
    assert [d for d in dtypes if d and not d[0].isupper() and ops.profiler_dtype(d) is None] == []
