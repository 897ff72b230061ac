"""Kernel names of real traces get the right kind, Tensor Core use and dtype; hostile names do no harm."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.real_traces import TRACES, expected, load
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.analyzer.vocabulary.kernels.kernel_names import _TABLE, ELIGIBLE_KINDS, FUSIBLE_KINDS, KINDS, classify

# Name, kind, Tensor Cores, dtype, alignment. Seen in: V = V100, A = A100, H = H100, M = MI300X/MI210 traces
# of kineto, HTA and TraceLens; others are documented names of the library.
CASES: list[tuple[str, str, bool | None, str | None, int | None]] = [
    # cuBLAS and CUTLASS, Volta to Blackwell
    ("volta_sgemm_64x64_nt", "gemm", False, "fp32", None),  # V
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "gemm", True, "fp16", None),
    ("volta_h884gemm_256x128_ldg8_nn", "gemm", True, "fp16", None),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "gemm", True, "fp16", None),
    ("ampere_sgemm_32x32_sliced1x4_tn", "gemm", False, "fp32", None),  # A
    ("ampere_gcgemm_64x64_nt", "gemm", False, "fp32", None),  # A
    ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "gemm", True, "bf16", None),
    ("ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_32x3_nn", "gemm", True, "fp16", None),
    ("ampere_h16816gemm_256x128_ldg8_stages_32x3_tn", "gemm", True, "fp16", None),
    (
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>"
        "(cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1::Params)",
        "gemm",
        True,
        "tf32",
        1,
    ),  # A
    (
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>"
        "(cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1::Params)",
        "gemm",
        True,
        "bf16",
        1,
    ),  # H
    ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", "gemm", False, "fp32", 1),  # A
    ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8", "gemm", True, "bf16", 8),
    ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", "gemm", True, "fp64", 1),
    ("cutlass_80_tensorop_i16832gemm_s8_128x128_64x4_tn_align16", "gemm", True, "int8", 16),
    (
        "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_void_f16_128x128x64_tnn",
        "gemm",
        True,
        "fp16",
        None,
    ),
    ("cutlass3x_sm100_tensorop_s128x128x8gemm_tf32_tf32_f32_f32_f32_128x128x32", "gemm", True, "tf32", None),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "gemm", True, "fp16", None),
    ("nvjet_tst_192x192_64x3_1x2_h_bz_coopB_TNN", "gemm", True, "bf16", None),
    ("nvjet_sm100_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "gemm", True, "bf16", None),
    ("nvjet_qqtst_128x128_128x6_1x1_v_bz_TNT", "gemm", True, "fp8", None),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_kernel",
        "gemm",
        False,
        "fp32",
        None,
    ),
    (
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel",
        "gemm",
        True,
        "tf32",
        None,
    ),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute_kernel__5x_cublas",
        "gemm",
        True,
        "bf16",
        None,
    ),  # H
    (
        "sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x64_stage3_tensor16x8x32",
        "gemm",
        True,
        "fp8",
        None,
    ),
    ("void sgemm_largek_lds64<true, true, 6, 3, 4, 5, 2, 66>(float*)", "gemm", False, "fp32", None),  # V
    (
        "void gemmk1_kernel<float, 256, 5, false, false, false, false>(cublasGemmk1Params)",
        "gemm",
        False,
        "fp32",
        None,
    ),
    (
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16>(P)",
        "gemm",
        False,
        "bf16",
        None,
    ),  # H
    ("void gemm_kernel(int)", "gemm", None, None, None),
    (
        "void splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(P)",
        "reduction",
        None,
        "fp32",
        None,
    ),  # A
    # cuDNN
    ("volta_scudnn_128x64_relu_interior_nn_v1", "conv", False, "fp32", None),  # V
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv", False, "fp32", None),  # V
    ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "conv", False, "fp32", None),  # A
    ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "conv", True, "fp16", None),
    ("turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "conv", True, "fp16", None),
    (
        "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false>(int)",
        "conv",
        False,
        "fp32",
        None,
    ),
    (
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)",
        "conv",
        False,
        "fp32",
        None,
    ),
    (
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(P)",
        "conv",
        False,
        "fp32",
        None,
    ),  # V
    ("void fft2d_r2c_32x32<float, false, 5u, true>(float2*)", "conv", False, "fp32", None),  # A
    (
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_"
        "warpsize2x2x1_g1_tensor16x8x8_alignc4_execute_kernel_cudnn",
        "conv",
        True,
        "tf32",
        None,
    ),  # A
    (
        "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_64x128_32x3_nhwc_align4>(P)",
        "conv",
        True,
        "tf32",
        4,
    ),  # A
    (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(P)",
        "conv",
        True,
        "bf16",
        8,
    ),  # H
    (
        "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22Implicit"
        "GemmMultistageINS_4gemm9GemmShapeILi128ELi128ELi32EEENS_10tfloat32_tE",
        "conv",
        True,
        "tf32",
        None,
    ),  # A
    (
        "void cask_cudnn::computeOffsetsKernel<false, false>(cask_cudnn::ComputeOffsetsParams)",
        "index",
        None,
        None,
        None,
    ),
    (
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(P)",
        "layout",
        None,
        "fp32",
        None,
    ),  # A
    (
        "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16>(P)",
        "layout",
        None,
        "bf16",
        None,
    ),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(P)", "norm", None, "fp32", None),  # V
    # Attention
    (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, "
        "128, 128, 4, false, false, "
        "cutlass::bfloat16_t>>(pytorch_flash::Flash_fwd_params)",
        "attention",
        True,
        "bf16",
        None,
    ),  # H
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(P)", "attention", True, "fp32", None),
    ("fmha_cutlassF_f16_notaligned_64x64_rf_sm50(P)", "attention", False, "fp16", None),
    ("fmha_cutlassB_bf16_aligned_128x64_k128_sm80(P)", "attention", True, "bf16", None),
    (
        "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<cutlass::bfloat16_t>>>(P)",
        "attention",
        True,
        "bf16",
        None,
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128",
        "attention",
        True,
        "fp16",
        None,
    ),
    (
        "void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64>>(P)",
        "reduction",
        None,
        None,
        None,
    ),
    ("attn_fwd", "attention", True, None, None),  # M
    ("sage_fwd", "attention", True, None, None),  # M
    ("kernel_unified_attention_3d", "attention", True, None, None),  # M
    (
        "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmh"
        "aBatchPrefillPipeline"
        "ProblemIDF16bDF16bDF16bffE",
        "attention",
        True,
        "bf16",
        None,
    ),  # M
    ("_ZN5aiter38fmha_fwd_hd128_bf16_causal_rtne_groupE", "attention", True, "bf16", None),
    ("void vllm::paged_attention_v2_kernel<__nv_bfloat16, 128, 16>(P)", "attention", False, "bf16", None),
    ("void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16>(P)", "attention", True, "bf16", None),
    # AMD
    (
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1_SN_LDSB1",
        "gemm",
        True,
        "bf16",
        None,
    ),  # M
    (
        "Cijk_Ailk_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x288x64_MI16x16x1_SN",
        "gemm",
        True,
        "bf16",
        None,
    ),  # M
    ("Cijk_Ailk_Bljk_HHS_BH_MT128x64x64_MI32x32x8x1_SN", "gemm", True, "fp16", None),
    ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN", "gemm", True, "fp32", None),  # MI250
    ("Cijk_Ailk_Bljk_SB_MT64x64x16_SE_K1_TT4_4_WG16_16_1", "gemm", False, "fp32", None),
    ("Cijk_Alik_Bljk_S_MX_B_Bias_HA_S_SAV_UserArgs_MT128x128x32_MI32x32x1_SN", "gemm", True, "tf32", None),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2", "conv", True, "bf16", None),  # M
    ("naive_conv_ab_nonpacked_fwd_nchw_half_double_half", "conv", False, "fp16", None),
    ("miopenSp3AsmConv_v21_1_2_gfx9_fp32_f2x3_stride1", "conv", False, "fp32", None),
    ("Im2d2Col_v2", "conv", False, None, None),  # M
    (
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28Gridwise"
        "Gemm_xdl_cshuffle_v3INS_13tensor_layout4gemm8RowMajorENS6_11ColumnMajorES7_ttfttNS0_12element_wise",
        "conv",
        True,
        "bf16",
        None,
    ),  # M
    ("batched_transpose_32x32_half", "layout", None, "fp16", None),  # M
    ("transpose_CNHW2NCHW_V2_2D_WG_off64", "layout", None, None, None),  # M
    ("SubTensorOpWithCastTensor1d", "copy", None, None, None),  # M
    ("MIOpenBatchNormFwdTrainSpatialNorm", "norm", None, None, None),  # M
    ("void rocblas_gemvn_kernel<64, 4, long, float>(P)", "gemm", False, "fp32", None),
    ("wvSplitK_hf_sml_", "gemm", False, None, None),
    # Templates whose words could mislead
    (
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>, "
        "MainloopSm90TmaGmmaGather<cutlass::float_e4m3_t>, RmsNormEpilogue, PermuteCopy>>(P)",
        "gemm",
        True,
        "fp8",
        None,
    ),
    ("kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensorptrbf16", "norm", None, "bf16", None),
    (
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensorptrbf16",
        "attention",
        True,
        "bf16",
        None,
    ),
    # Triton
    ("triton_poi_fused__to_copy_1", "elementwise", None, None, None),  # M
    ("triton__0d1d23d", "elementwise", None, None, None),  # A
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "norm", None, None, None),  # M
    ("triton_per_fused__softmax_div_3", "softmax", None, None, None),
    ("triton_per_fused_sum_1", "reduction", None, None, None),
    ("triton_tem_fused_mm_0", "gemm", True, None, None),
    ("triton_tem_fused_flex_attention_2", "attention", True, None, None),
    ("triton_poi_fused_all_reduce_wait_tensor_add_0", "elementwise", None, None, None),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "gemm", True, "bf16", None),  # M
    ("_finalize_matmul_scatter_bf16", "reduction", None, "bf16", None),  # M
    ("fused_moe_kernel", "gemm", True, None, None),
    # Everything else
    (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>(P)",
        "softmax",
        None,
        "bf16",
        None,
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(P)",
        "softmax",
        None,
        "fp32",
        None,
    ),
    (
        "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<a"
        "t::native::direct_copy_"
        "kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const>>(int)",
        "copy",
        None,
        None,
        None,
    ),
    (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)",
        "copy",
        None,
        "fp32",
        None,
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float>>>(P)",
        "reduction",
        None,
        "fp32",
        None,
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<fl"
        "oat>, at::detail::Array"
        "<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
        "elementwise",
        None,
        "fp32",
        None,
    ),
    (
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
        "optimizer",
        None,
        "fp32",
        None,
    ),  # A
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(a"
        "nonymous namespace)::"
        "TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunct"
        "or<float, 2, 2, 0>>(P)",
        "optimizer",
        None,
        "fp32",
        None,
    ),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "collective", None, None, None),  # M
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "collective", None, "fp32", None),  # A
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(P)", "collective", None, "bf16", None),
    ("multimem_all_reduce_kernel", "collective", None, None, None),
    (
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>(P)",
        "index",
        None,
        None,
        None,
    ),  # A
    (
        "void split_embedding_codegen_forward_unweighted_kernel<c10::Half, float>(P)",
        "embedding",
        None,
        "fp16",
        None,
    ),
    ("void rotary_embedding_kernel<c10::BFloat16, true>(P)", "elementwise", None, "bf16", None),  # M
    (
        "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>>(P)",
        "sort",
        None,
        None,
        None,
    ),
    (
        "void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(P)",
        "pool",
        None,
        "fp32",
        None,
    ),
    (
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float>(P)",
        "rng",
        None,
        "fp32",
        None,
    ),
    ("Memcpy HtoD (Pageable -> Device)", "copy", None, None, None),
    ("Memset (Device)", "memset", None, None, None),
    ("at::cuda::(anonymous namespace)::spin_kernel(long)", "other", None, None, None),  # A
    ("", "other", None, None, None),
]


@pytest.mark.parametrize(("name", "kind", "tensor_core", "dtype", "alignment"), CASES, ids=[c[0][:50] for c in CASES])
def test_known_names(name: str, kind: str, tensor_core: bool | None, dtype: str | None, alignment: int | None) -> None:
    found = classify(name)
    assert (found.kind, found.tensor_core, found.dtype, found.alignment) == (
        kind,
        tensor_core,
        dtype,
        alignment,
    )


def test_fused_marks_products_of_fusion() -> None:
    assert classify("triton_poi_fused_add_0").fused
    assert classify("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(P)").fused
    assert classify("void multi_tensor_apply_kernel<M, AdamFunctor<float>, float>(int)").fused
    assert not classify("volta_sgemm_64x64_nt").fused
    assert not classify("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>(int)").fused


def test_kind_sets_are_kinds() -> None:
    assert ELIGIBLE_KINDS < KINDS
    assert FUSIBLE_KINDS < KINDS
    assert not ELIGIBLE_KINDS & FUSIBLE_KINDS


HOSTILE = [
    "a" * 1_000_000,
    "flash_" * 200_000,
    "triton_red_" + "_" * 1_000_000,
    "fbgemm_gpu::" * 90_000,
    "xmma_gemm" * 110_000,
    "<" * 1_000_000,
    "(" * 500_000 + ")" * 500_000,
    "void f<" + "a<" * 400_000 + ">" * 400_001 + "(int)",
    "Cijk_Alik_Bljk_" + "_S" * 500_000,
    "_ZN" + "9" * 1_000_000,
    "_ZN" + "1a" * 500_000,
    "multi_tensor_apply_kernel" * 40_000,
    "kernel_cutlass_" * 70_000,
    "chunk_quant_" * 90_000,
    "bmm_E2m1_" * 110_000,
    "cutlass3x_gemm_" * 70_000,
    "\x00\ud800\U0001f600" * 300_000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=[ascii(h[:16]) for h in HOSTILE])
def test_hostile_names_of_a_megabyte_take_time_by_their_length(name: str) -> None:
    """(A quadratic pattern takes minutes here.)"""
    assert classify(name).kind in KINDS
    assert len(short_name(name)) <= 100


FRAGMENTS = st.sampled_from(
    [
        "<",
        ">",
        "(",
        ")",
        "{",
        "}",
        "::",
        ",",
        " ",
        "void ",
        "_ZN",
        "operator()",
        "at::native::",
        "elementwise_kernel",
    ]
)


@given(st.one_of(st.text(), st.lists(st.one_of(FRAGMENTS, st.text(max_size=5))).map("".join)))
def test_any_text_is_classified_and_shortened(name: str) -> None:
    found = classify(name)
    assert found.kind in KINDS
    assert found.tensor_core is None or found.kind in ELIGIBLE_KINDS
    assert len(short_name(name)) <= 100


@pytest.mark.real_traces
@pytest.mark.parametrize(
    ("path", "figures"),
    [
        pytest.param(path, entry["figures"], id=path)
        for path, entry in expected().items()
        if entry["figures"].get("gpu_time_by_kind_pct")
    ],
)
def test_real_traces_agree_with_the_reference(path: str, figures: dict[str, Any]) -> None:
    document = load(TRACES / path)
    events = [e for e in document["traceEvents"] if str(e.get("cat", "")).lower() == "kernel"]
    time_of: Counter[str] = Counter()
    used = unknown = other = 0.0
    aligned: Counter[str] = Counter()
    for event in events:
        found, duration = classify(event["name"]), float(event.get("dur", 0))
        time_of[found.kind] += duration
        used += duration * (found.tensor_core is True)
        unknown += duration * (found.eligible and found.tensor_core is None)
        # torch.cuda._sleep fills the event_sync trace; it is no known kind of work
        other += duration * (found.kind == "other" and "spin_kernel" not in event["name"])
        if found.alignment is not None:
            aligned[f"align{found.alignment}"] += 1
    total = time_of.total()
    eligible = sum(time_of[kind] for kind in ELIGIBLE_KINDS)

    assert other < 0.01 * total
    assert unknown < 0.01 * total
    reference = figures["tensor_cores"]
    # vLLM: the reference takes reduce_segments, reshape_and_cache_flash and finalize_matmul for products.
    tolerance = 4 if "vllm_decode" in path else 0.5
    assert 100 * used / total == pytest.approx(reference["pct_of_kernel_time"], abs=tolerance)
    assert dict(aligned) == {name: calls for name, (calls, _) in figures["gemm"]["kernel_align_suffix"].items()}
    by_kind = figures["gpu_time_by_kind_pct"]
    products = sum(by_kind.get(kind, 0.0) for kind in ELIGIBLE_KINDS)
    gpu_copies = by_kind.get("gpu_memcpy", 0.0) + by_kind.get("gpu_memset", 0.0)
    assert 100 * eligible / total == pytest.approx(100 * products / (100 - gpu_copies), abs=4 if tolerance == 4 else 3)
    # The reference's "eligible" is the time of all kernels under a GEMM or convolution operator, layout
    # changes included, attention not; it is near nothing where the file lacks operators or their links.
    if reference["eligible_pct_of_kernel_time"] > 60:
        products = 100 * (time_of["gemm"] + time_of["conv"]) / total
        assert products == pytest.approx(reference["eligible_pct_of_kernel_time"], abs=12.5)
    assert 100 * time_of["collective"] / total == pytest.approx(
        100 * by_kind.get("nccl", 0.0) / (100 - gpu_copies), abs=1
    )


@pytest.mark.slow
@pytest.mark.parametrize("entry", [entry for entry in _TABLE if entry.words], ids=lambda entry: entry.words[0])
@settings(max_examples=100)
@given(st.data())
def test_a_name_that_matches_has_one_of_the_words(entry: Any, data: st.DataObject) -> None:
    name = data.draw(st.from_regex(entry.pattern, alphabet=st.characters(codec="ascii")))
    assert entry.matches(name, name.lower())
    assert all(word == word.lower() for word in entry.words)
