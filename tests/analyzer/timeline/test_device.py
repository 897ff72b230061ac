"""The device of a trace: vendor, name, architecture, memory; unknown and unsupported devices are recognized."""

from __future__ import annotations

from typing import Any

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.device import TraceDevice
from traceopt.document.run_section import gpu_runtime
from traceopt.result.words.vendors import AMD, CPU, NVIDIA, OTHER, Vendor
from traceopt.testing.events import Json, annotation, document, kernel, op, read, runtime, span

A100 = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_097_971_712}
A100 |= {"computeMajor": 8, "computeMinor": 0, "numSms": 108}
MI300X = {"id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 206_141_652_992}
MI300X |= {"computeMajor": 9, "computeMinor": 4, "numSms": 304}


def device_of(*events: Json, listed: list[Any] | None = None) -> TraceDevice:
    header = {} if listed is None else {"deviceProperties": listed}
    return Facts(read(document([annotation("ProfilerStep#0", 0, 1000), *events], **header))).device


def test_a_known_one() -> None:
    device = device_of(kernel("gemm", 100, 10, 1), listed=[A100])
    assert (device.vendor, device.name, device.count) == (NVIDIA, "NVIDIA A100-SXM4-80GB", 1)
    assert (device.compute_capability, device.memory_bytes, device.multiprocessors) == ("8.0", 85_097_971_712, 108)
    assert device.accelerator is not None
    assert device.accelerator.peak("bf16") == 312
    assert device.unsupported is None


def test_the_one_that_works_is_described() -> None:
    other = {**A100, "id": 1, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9}
    assert device_of(kernel("gemm", 100, 10, 1, device=1), listed=[A100, other]).name == "NVIDIA H100 80GB HBM3"
    assert device_of(kernel("gemm", 100, 10, 1, device=5), listed=[A100]).name == "NVIDIA A100-SXM4-80GB"


def test_a_new_nvidia_has_an_architecture_but_no_peaks() -> None:
    device = device_of(kernel("gemm", 100, 10, 1), listed=[{**A100, "name": "NVIDIA X900", "computeMajor": 13}])
    assert device.accelerator is None
    assert device.arch is not None
    assert device.arch.has_tensor_cores


def test_nothing_listed() -> None:
    device = device_of(kernel("gemm", 100, 10, 1))
    assert (device.vendor, device.name, device.arch, device.accelerator) == (NVIDIA, None, None, None)
    assert (device.memory_bytes, device.compute_capability) == (None, None)


@pytest.mark.parametrize(
    ("kernels", "name"),
    [
        (["volta_sgemm_128x64_nt", "void cudnn::wgrad_alg0_engine<float>(int)"], "sm_70"),
        (["volta_sgemm_128x64_nt", "ampere_sgemm_128x64_nn"], "sm_80"),
        (["void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(Params)"], "sm_80"),
        (["void cutlass_80_tensorop(x)", "sm90_xmma_gemm_bf16bf16"], "sm_90"),
        (["nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT"], "sm_90"),
        (["void cutlass::device_kernel<flash::FlashAttnFwdSm90<X>>(Params)"], "sm_90"),
        (["fmha_cutlassF_f16_aligned_64x64_rf_sm75(Params)"], "sm_75"),
        (["Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_ISA942_IU1"], "gfx942"),
        (["miopenGcnAsmConv1x1U_gfx90a_fp16"], "gfx90a"),
        (["void prism75(smem_256)"], None),
        (["Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_ISA000_IU1", "gemm"], None),
    ],
)
def test_kernels_tell_the_architecture_of_a_device_that_is_not_listed(kernels: list[str], name: str | None) -> None:
    events = [kernel(one, 100 + 10 * row, 10, row) for row, one in enumerate(kernels)]
    arch = device_of(*events).arch
    assert (arch.name if arch is not None else None) == name
    assert device_of(*events, listed=[A100]).arch == device_of(events[0], listed=[A100]).arch


@pytest.mark.parametrize(
    "listed",
    [
        [None],
        ["A100"],
        [{}],
        [{"name": None, "computeMajor": "8", "totalGlobalMem": -1, "numSms": 0}],
        [{"name": ["A100"], "computeMajor": 10**30, "computeMinor": 0, "totalGlobalMem": True, "numSms": 2**64}],
    ],
)
def test_odd_properties(listed: list[Any]) -> None:
    device = device_of(kernel("gemm", 100, 10, 1), listed=listed)
    assert (device.name, device.memory_bytes, device.multiprocessors, device.arch) == (None, None, None, None)


@pytest.mark.parametrize(
    ("events", "listed"),
    [
        ([kernel("gemm", 100, 10, 1), runtime("hipLaunchKernel", 50, 5, 1)], None),
        ([kernel("gemm", 100, 10, 1)], [MI300X]),
    ],
)
def test_amd(events: list[Json], listed: list[Any] | None) -> None:
    device = device_of(*events, listed=listed)
    assert device.vendor is AMD
    assert (device.accelerator is not None) == (listed is not None)


@pytest.mark.parametrize("name", ["attn_fwd.kd", "igemm_fwd_gtcx_nhwc_fp32_bx0", "aiter_fused_moe_kernel_bf16"])
def test_kernels_tell_the_vendor_of_a_device_that_is_not_listed(name: str) -> None:
    assert device_of(kernel(name, 100, 10, 1), runtime("cudaLaunchKernel", 50, 5, 1)).vendor is AMD


def test_cpu_only() -> None:
    device = device_of(op("aten::mm", 100, 10))
    assert (device.vendor, device.name, device.unsupported) == (CPU, None, None)


@pytest.mark.parametrize(
    "name",
    [
        "aten::cudnn_convolution",
        "aten::_cudnn_rnn",
        "aten::miopen_batch_norm",
        "aten::_efficient_attention_forward",
        "aten::_flash_attention_forward",
        "aten::_thnn_fused_lstm_cell",
        "triton_poi_fused_add_0",
    ],
)
def test_operators_tell_a_gpu_whose_work_was_not_recorded(name: str) -> None:
    facts = Facts(read([annotation("ProfilerStep#0", 0, 1000), op(name, 100, 10)]))
    assert (facts.device.vendor, facts.device.label, facts.has_gpu) == (NVIDIA, "NVIDIA GPU", False)
    assert facts.quality.gpu_expected


@pytest.mark.parametrize(
    "name", ["aten::_fused_rms_norm", "aten::cudnn_is_acceptable", "aten::_scaled_dot_product_flash_attention"]
)
def test_operators_of_a_cpu_run(name: str) -> None:
    assert device_of(op(name, 100, 10)).vendor is CPU


@pytest.mark.parametrize("name", ["aten::linear_backward", "LinearBackward0", "aten::_mps_convolution"])
def test_operators_tell_apples_device(name: str) -> None:
    device = device_of(op(name, 100, 10), listed=[])
    assert (device.vendor, device.unsupported, device.label) == (OTHER, "Apple MPS", "Apple MPS")
    assert device_of(op(name, 100, 10), kernel("gemm", 100, 10, 1)).vendor is NVIDIA


@pytest.mark.parametrize(("us", "vendor"), [(280, OTHER), (15, OTHER), (1, CPU)])
def test_long_reads_of_single_values_tell_a_device(us: float, vendor: Vendor) -> None:
    reads = [op("aten::item", 500 * i, us) for i in range(20)]
    assert device_of(*reads).vendor is vendor
    run = {"models": [{"devices": {"cpu": 2}}]}
    assert Facts(read([annotation("ProfilerStep#0", 0, 10_000), *reads], traceopt=run)).device.vendor is CPU


@pytest.mark.parametrize(("process", "device"), [("/device:TPU:0", "Google TPU"), ("/device:GPU:0", "a GPU, by XProf")])
def test_processes_of_xprof(process: str, device: str) -> None:
    rows = [{"ph": "M", "pid": 3, "name": "process_name", "args": {"name": process}}]
    rows += [{"ph": "X", "pid": 3, "tid": 1, "ts": 100.0 * i, "dur": 90.0, "name": f"fusion.{i}"} for i in range(9)]
    facts = Facts(read(rows))
    assert (facts.device.vendor, facts.device.unsupported) == (OTHER, device)


@pytest.mark.parametrize(
    ("on", "vendor", "label"),
    [
        ("cuda:0", NVIDIA, "NVIDIA H100"),
        ("cpu", CPU, "CPU"),
        ("mps:0", OTHER, "Apple MPS"),
        ("xla:0", OTHER, "an XLA device"),
        ("meta", CPU, "CPU"),
    ],
)
def test_the_recorded_device_of_the_parameters(on: str, vendor: Vendor, label: str) -> None:
    gpus = [{"name": "NVIDIA H100", "memory_bytes": 2**36, "capability": [9, 0]}]
    run = {"environment": {"gpus": gpus}, "models": [{"devices": {on: 53, "cpu": 2}}]}
    device = Facts(read([annotation("ProfilerStep#0", 0, 1000), op("aten::mm", 100, 10)], traceopt=run)).device
    assert (device.vendor, device.label) == (vendor, label)
    assert device.compute_capability == ("9.0" if on == "cuda:0" else None)


@pytest.mark.parametrize(
    ("major", "half", "compiles"), [(6, "float16", False), (7, "float16", True), (8, "bfloat16", True)]
)
def test_what_follows_from_the_compute_capability(major: int, half: str, *, compiles: bool) -> None:
    device = device_of(kernel("gemm", 100, 10, 1), listed=[{"id": 0, "computeMajor": major, "computeMinor": 0}])
    assert (device.half, device.compiles) == (half, compiles)


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("mtia_ccp_events", "MTIA"),
        ("xpu_runtime", "Intel XPU"),
        ("privateuse1_runtime", "a private-use device"),
        ("hpu_op", "Gaudi (HPU)"),
    ],
)
def test_foreign_devices_are_named(category: str, name: str) -> None:
    facts = Facts(read([annotation("ProfilerStep#0", 0, 1000), span(category, "work", 100, 10)]))
    assert (facts.device.vendor, facts.device.unsupported) == (OTHER, name)
    assert not facts.has_gpu


def test_overrides_give_peaks() -> None:
    trace = read(document([annotation("ProfilerStep#0", 0, 1000), kernel("gemm", 100, 10, 1)], deviceProperties=[A100]))
    plain, own = Facts(trace).device, Facts(trace, {"a100": {"bf16": 250.0}}).device
    assert plain.accelerator is not None
    assert plain.accelerator.peak("bf16") == 312
    assert own.accelerator is not None
    assert (own.accelerator.peak("bf16"), own.accelerator.peak("tf32")) == (250, 156)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ({"cuda_runtime_version": 12040, "cuda_driver_version": 12090}, "CUDA 12.4"),
        ({"cuda_runtime_version": 11080}, "CUDA 11.8"),
        ({"hip_runtime_version": 60443483}, "ROCm 6.4"),
        ({"hip_runtime_version": 70253211}, "ROCm 7.2"),
        ({"cuda_runtime_version": "12.4"}, None),
        ({"cuda_runtime_version": 0}, None),
        ({}, None),
    ],
)
def test_the_runtime_library_by_its_number(header: dict[str, Any], name: str | None) -> None:
    assert gpu_runtime(Facts(read(document([annotation("ProfilerStep#0", 0, 1000)], **header)))) == name
