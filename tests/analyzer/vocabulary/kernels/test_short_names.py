"""Kernel names as people read them: short, whatever stands in them."""

from __future__ import annotations

import pytest

from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name

SHORT = [
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<fl"
        "oat>, at::detail::Array"
        "<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
        "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
    ),
    (
        "void at::native::elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel"
        "_impl_nocast<at::native::"
        "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() con"
        "st::{lambda()#7}::operator()"
        "() const::{lambda(float)#1}>(at::TensorIteratorBase&)::{lambda(int, bool)#1}>(int)",
        "elementwise_kernel_manual_unroll<128, direct_copy_kernel_cuda>",
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<floa"
        "t, float, float, at::native::"
        "binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int)",
        "vectorized_elementwise_kernel<4, MulFunctor<float>>",
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>(P)",
        "reduce_kernel<512, MeanOps<float>>",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(P::Params)",
        "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8",
    ),
    (
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16>(P)",
        "gemvx::kernel<int>",
    ),
    (
        "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmhaBatchPrefillPipelineQRKS",
        "ck_tile::kentry<FmhaBatchPrefillWithPagedKVCacheKernel>",
    ),
    ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8EEEvPT0_PT_", "add_rmsnorm_quant_kernel"),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9>(P)",
        "softmax_warp_forward<float>",
    ),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"),
    ("volta_sgemm_64x64_nt", "volta_sgemm_64x64_nt"),
    ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
    ("", ""),
]


@pytest.mark.parametrize(("name", "short"), SHORT, ids=[s[1][:40] for s in SHORT])
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
