"""Calls of runtimes and drivers, as CUDA, HIP and Level Zero name them in traces of 2021 to 2026."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from traceopt.result.words.vendors import VENDORS

_CUDA = re.compile(r"(?:cuda|cu)(?=[A-Z])")


def _calls(names: str) -> frozenset[str]:
    """The calls with these names, and with those of runtimes that follow CUDA's: cudaMemcpy is hipMemcpy."""
    calls = frozenset(names.split())
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
_DEVICE_SYNCS = _calls("cudaDeviceSynchronize cudaThreadSynchronize cuCtxSynchronize")
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
_STREAM_SYNCS = _calls("cudaStreamSynchronize cuStreamSynchronize")
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
# Rows of the category "overhead", as Kineto names CUPTI's kinds. "Command Buffer Full" is a launch that waits.
_LOADING_OVERHEAD = frozenset({"Runtime Triggered Module Loading", "Lazy Function Loading", "Driver Compiler"})
_PROFILER_OVERHEAD = frozenset(
    {"Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource", "UVM Activity Init"}
)
OVERHEADS = _LOADING_OVERHEAD | _PROFILER_OVERHEAD
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


def is_device_sync(name: str) -> bool:
    """The call returns when all earlier work of the current device is done."""
    return runtime_call(name) in _DEVICE_SYNCS


def is_stream_sync(name: str) -> bool:
    """The call returns when all earlier work of a stream is done."""
    return runtime_call(name) in _STREAM_SYNCS


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


def is_module_load(name: str) -> bool:
    """The call loads or links device code."""
    return runtime_call(name) in _MODULE_LOADS or name in _LOADING_OVERHEAD


def is_profiler_overhead(name: str) -> bool:
    """The profiler's own work, in the midst of a call or an operator: ``Activity Buffer Request``."""
    return name in _PROFILER_OVERHEAD


def is_stream_capture(name: str) -> bool:
    """The call captures or instantiates a graph. Queries such as ``cudaStreamIsCapturing`` do not count."""
    return runtime_call(name) in _CAPTURES
