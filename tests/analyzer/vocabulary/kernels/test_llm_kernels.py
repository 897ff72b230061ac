"""Families of kernels of language-model engines: invented members of each get its kind, Tensor Core use and type."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fixtures.real_traces import KERNELS, TRACES, load
from traceopt.analyzer.vocabulary.kernels.kernel_names import ELIGIBLE_KINDS, KernelClass, classify

ANY = "-"  # the type is not in these names

# Kind, Tensor Cores, type: names. None is in the list of the shared vocabulary; sizes and arguments are invented.
FAMILIES: list[tuple[str, bool | None, str | None, str]] = [
    # cuBLAS on Blackwell
    (
        "gemm",
        True,
        "bf16",
        """nvjet_sm103_tst_192x96_64x7_1x4_2cta_v_bz_splitK_bias_TNN
        nvjet_tst_64x8_64x16_4x1_v_bz_NNT
        nvjet_sm120_tst_mma_128x64_3_bias_TNT""",
    ),
    (
        "gemm",
        True,
        "fp8",
        """nvjet_sm100_qqtst_256x64_128x5_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_NNT
        nvjet_qrtst_64x32_128x8_1x2_h_bz_TNN
        nvjet_sm103_rqhsh_128x128_128x6_1x1_v_bz_TNT""",
    ),
    (
        "gemm",
        True,
        "fp4",
        """nvjet_sm103_ootst_256x128_256x4_4x1_2cta_h_bz_Avec16UE4M3_Bvec16UE4M3_bias_TNT
        nvjet_sm100_oohsh_64x64_256x6_1x2_v_bz_Avec16UE4M3_Bvec16UE4M3_NNT
        nvjet_sm120_oosss_128x128_256x3_v_Avec32UE8M0_Bvec32UE8M0_TNT""",
    ),
    # CUTLASS 3 with block scales
    (
        "gemm",
        True,
        "fp4",
        """cutlass3x_sm103_bstensorop_s128x192x96gemm_block_scaled_ue8m0xf4_ue8m0xf4_f32_f16_f16_128x192x768_0_tnn_align32
        cutlass3x_sm120_bstensorop_gemm_ue4m3xe2m1_ue4m3xe2m1_f32_void_bf16_128x128x128_tnt
        cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>,MainloopSm100TmaUmmaWarpSpecializedBlockScaled<4>,cute::tuple<cutlass::float_e2m1_t,cutlass::float_ue4m3_t>,cutlass::bfloat16_t>>(P)
        cutlass::device_kernel<flashinfer::gemm::DeviceGemmFp4GemmSm100_half_128_256>(P)""",
    ),
    (
        "gemm",
        True,
        "fp8",
        """cutlass3x_sm100_bstensorop_gemm_ue8m0xe5m2_ue8m0xe4m3_f32_void_f16_256x128x128_ntn
        cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_blockwise<cutlass::half_t,1,128,128>>(P)
        cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm10x<cutlass::gemm::kernel::GemmUniversal<cutlass::float_e4m3_t>>>(P)""",
    ),
    (
        "gemm",
        True,
        "int8",
        """cutlass::device_kernel<vllm::cutlass_3x_gemm<signed char,cutlass::half_t>>(int8_t)
        cutlass3x_sm90_tensorop_s64x64x32gemm_s8_s8_s32_void_f16_64x64x128_tnn
        _ZN5aiter40i8gemm_bf16_perTokenI8_BpreShuffle_32x192E""",
    ),
    # TensorRT-LLM's generated products and attention
    (
        "gemm",
        True,
        "fp4",
        """bmm_E2m1_E2m1E2m1_Fp32_Ab16_Bb16_Cb16_t128x32x512u2_s4_et128x32_m128x32x64_c1x1x1_rM_TN_silu_sm103a
        bmm_Fp16_E2m1E2m1_Fp32_t128x64x256_s5_et64x64_m128x64x64_cga2x1x1_TN_sm100f
        gemm_Bfloat16_MxE2m1MxE2m1_Fp32_Ab32_Bb32_t128x16x512_s6_sm100a""",
    ),
    (
        "gemm",
        True,
        "fp8",
        """bmm_Bfloat16_E4m3E4m3_Fp32_t128x64x128u2_s6_et64x64_m64x64x32_c1x1x1_rM_TN_transOut_noShfl_sm100f
        bmm_MxE4m3_MxE2m1MxE4m3_Fp32_Ab32_Bb32_Cb32_t128x8x512_s5_et128x8_m128x8x32_c1x1x1_sm100f
        gemm_Fp16_E5m2E4m3_Fp32_t64x256x128_s3_sm90a""",
    ),
    (
        "gemm",
        True,
        "bf16",
        """bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x16x128_s7_et128x16_m128x16x16_cga1x1x1_TN_sm100a
        bmm_Bfloat16_MxE2m1Bfloat16_Fp32_Ab32_t128x16x256_s5_sm100f
        gemm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x128x64_s4_sm103a""",
    ),
    (
        "attention",
        True,
        "bf16",
        """fmhaSm100fKernel_QkvBfloat16OBfloat16H64PagedKvSlidingOrChunkedCausalP32VarSeqQ128Kv128PersistentContext
        fmhaSm103aKernel_QBfloat16KvE4m3OBfloat16H128PagedKvCausalP16MultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen
        fmhaSm90Kernel_QkvBfloat16OBfloat16HQk192HV128SeparateQkvCausalVarSeqQ64Kv128""",
    ),
    (
        "attention",
        True,
        "fp8",
        """fmhaSm103aKernel_QkvE4m3OE4m3H128PagedKvCausalP64VarSeqQ128Kv128PersistentContext
        fmhaSm100fKernel_QE4m3KvE2m1OBfloat16H128PagedKvDenseP32VarSeqQ16Kv256
        fmhaSm100aKernel_QkvE5m2OBfloat16HQk576HV512HVPerCta256PagedKvDenseStaticTokenSparseP1""",
    ),
    # DeepGEMM
    (
        "gemm",
        True,
        "fp8",
        """voiddeep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0,128u,cutlass::float_e4m3_t>(int*)
        voiddeep_gemm::sm90_fp8_gemm_1d1d_impl<512u,128u>(float*)
        voiddeep_gemm::sm100_fp8_paged_mqa_logits<1u,64u,128u>(int)""",
    ),
    (
        "layout",
        None,
        ANY,
        """deep_gemm::transpose_and_pack_fp32_into_ue8m0<128u>, deep_gemm::pack_fp32_into_ue8m0<64u>""",
    ),
    # CuTe DSL
    (
        "gemm",
        True,
        ANY,
        """kernel_cutlass_kernel_flashinfergemmkernelsdense_blockscaled_gemm_sm103Sm103BlockScaledPersistentDenseGemmKernel_object_at__
        kernel_cutlass_kernel_quackgemm_act_sm120GemmActSm120_object_at__tensorptrgmem
        my_run_kernel_cutlass_kernel_moe_tileGroupedMatmul_object_at__TiledMMA_ThrLayoutVMNK21111000_""",
    ),
    (
        "attention",
        True,
        ANY,
        """kernel_cutlass_kernel_flash_attncuteflash_fwd_sm120FlashAttentionForwardSm120_object_at__tensor0000o
        kernel_cutlass_kernel_flashinfermla_decodeBlackwellMultiHeadLatentAttentionForwardFP8_object_at__TiledMMA
        kernel_cutlass_kernel_examplesfmhaHopperFusedMultiHeadAttentionBackward_object_at__""",
    ),
    (
        "norm",
        None,
        ANY,
        """kernel_cutlass_kernel_quackrmsnormRMSNormBackward_object_at__tensorptrf16gmem
        kernel_cutlass_kernel_flashinfernormkernelslayernormLayerNormKernel_object_at__
        kernel_cutlass_kernel_sglangnormGemmaRMSNormKernel_object_at__""",
    ),
    (
        "elementwise",
        None,
        ANY,
        """kernel_cutlass_kernel_flashinferquantizationkernelsmxfp8_quantizeMXFP8QuantizeLinearKernel_object_at__
        kernel_cutlass_kernel_quackhadamardHadamardTransform_object_at__tensor
        kernel_cutlass_kernel_ligergegluSwiGLUForward_object_at__""",
    ),
    # Muon, products of generators
    ("gemm", True, ANY, "ba_plus_cAA_kernel, _XXT_kernel, ns_line_1_kernel"),
    (
        "gemm",
        True,
        ANY,
        """_helion_matmul_bf16_layernorm, _helion_grouped_gemm_jagged, _helion_bmm, cutile_matmul_kernel""",
    ),
    ("gemm", True, ANY, "triton_mm_split_k, triton_bmm_small, triton_scaled_mm_rowwise"),
    ("gemm", True, ANY, "_bmm_chunk_fwd_kernel, _bmm_chunk_bwd_kernel, bmm_kernel_persistent"),
    ("gemm", True, ANY, "_cg_grouped_gemm_backward_dw_kernel, _grouped_gemm_dW_kernel, _fbgemm_grouped_gemm_ws"),
    ("gemm", True, ANY, "fused_moe_kernel_gptq_awq, fused_moe_persistent_kernel, _fused_moe_kernel_mxfp4_silu"),
    ("gemm", True, ANY, "_lora_shrink_kernel, _lora_expand_kernel_fp8, _sgemm_lora_a_kernel, _gate_up_lora_b_kernel"),
    (
        "gemm",
        True,
        "bf16",
        """_matmul_ogs_NTN_bf16xbf16xmxfp4_64x256x128x4, _p_matmul_ogs_TNN_bf16xbf16xbf16_128x128x64x1""",
    ),
    (
        "gemm",
        True,
        "fp8",
        """_p_matmul_ogs_NNT_fp8e5xfp8e5xmxfp4_128x256x128x1_swiglu, _matmul_NNT_bf16xmxfp8xmxfp4_16x128""",
    ),
    # aiter
    (
        "gemm",
        True,
        "fp4",
        """f4gemm_bf16_per1x32Fp4_BpreShuffle_96x640, _ZN5aiter47fmoe_bf16_pertokenMXfp4_g1u1_vs_silu_1tg_64x128E
        _gemm_afp4_wfp4_kernel_preshuffled_scales, Cijk_Alik_Bljk_F4HS_BH_UserArgs_MT128x256x256_MI16x16x1_SN""",
    ),
    (
        "gemm",
        True,
        "fp8",
        """_ZN5aiter36fmoe_fp8_blockscale_g1u1_subGU_256E, mfma_moe2_afp8_wfp8_bf16_t64x128, _gemm_a8wfp4_kernel
        Cijk_Alik_Bljk_F8B8HS_BH_UserArgs_MT64x64x128_MI16x16x1_SN""",
    ),
    ("gemm", True, "bf16", "_ZN5aiter38bf16gemm_fp32bf16_tn_48x64_bshuffle_E, _ZN5aiter24bf16gemm_bf16_tn_256x256E"),
    ("gemm", True, None, "_gemm_a16wfp4_kernel, _gemm_a16_wfp4_kernel"),
    (
        "reduction",
        None,
        ANY,
        """_gemm_afp4_wfp4_reduce_kernel, _batched_gemm_afp4_wfp4_reduce_kernel, _splitk_reduce_kernel""",
    ),
    # Quantised weights
    (
        "gemm",
        True,
        ANY,
        """void marlin::Marlin<__half,4l,128,2,4,8,true>, Marlin<__nv_bfloat16,1ul>
        voidmarlin_moe_wna16::MarlinDefault<__half>
        machete::MacheteKernel<cutlass::half_t>""",
    ),
    (
        "gemm",
        False,
        ANY,
        """kgemm_4bit_inference_naive<float,128,32>, void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true,4>
        mul_mat_vec_q<32,4>, bgmv_shrink_kernel<__half>""",
    ),
    (
        "layout",
        None,
        ANY,
        """void marlin::awq_marlin_repack_kernel<4,256>, gptq_marlin_repack_kernel<8>
        machete::prepack_B_kernel<1>""",
    ),
    # Linear attention and state-space models
    (
        "attention",
        True,
        ANY,
        """chunk_gated_delta_rule_fwd_kernel_h_blockdim64, chunk_bwd_kernel_dqkwg
        chunk_gla_fwd_A_kernel_intra_sub_inter
        chunk_kda_bwd_kernel_intra, recompute_w_u_fwd_kernel, chunk_scaled_dot_kkt_fwd_kernel, _chunk_scan_fwd_kernel
        _chunk_state_varlen_kernel, prepare_wy_repr_bwd_kernel, merge_16x16_to_64x64_inverse_kernel
        solve_tril_16x16_kernel
        parallel_attn_bwd_kernel_dkv, parallel_nsa_bwd_kernel_dq, _fwd_none_diag_kernel""",
    ),
    (
        "attention",
        False,
        ANY,
        """fused_recurrent_kda_fwd_kernel, fused_recurrent_fwd_kernel
        fused_recurrent_gated_delta_rule_packed_decode_kernel
        fused_sigmoid_gating_delta_rule_update_kernel, _linear_attn_decode_kernel, kda_packed_decode_kernel""",
    ),
    (
        "reduction",
        None,
        ANY,
        """chunk_local_cumsum_vector_kernel, _chunk_cumsum_bwd_kernel, _state_passing_bwd_kernel
        _selective_scan_update_kernel""",
    ),
    ("norm", None, ANY, "l2norm_fwd_kernel1, l2norm_bwd_kernel, layer_norm_gated_fwd_kernel"),
    ("elementwise", None, ANY, "fused_gdn_gating_kernel, kda_gate_fwd_kernel, token_shift_bwd_kernel_short"),
    # Attention of other engines, and its helpers
    (
        "attention",
        True,
        ANY,
        """tilelang_flash_mla_kernel, _helion_attention_fwd, cutile_fmha_fwd
        flashinfer::PODWithKVCacheTensorKernel<1>
        voidsm90::prefill::sparse_fwd::sparse_attn_fwd_kernel<cutlass::bfloat16_t>, kernel_unified_attention_2d_sinks
        _sparse_mla_decode_kernel, _ZN5aiter44mla_pfl_stage1_bf16_a16w16_causal_subQ128E, _bwd_kernel_dkdv
        flash_decoding_1""",
    ),
    (
        "reduction",
        None,
        ANY,
        """kernel_cutlass_kernel_flash_attncuteflash_bwd_preprocessFlashAttentionBackwardPreprocess_object_at__
        void flash::FlashAttnFwdCombine<cute::tuple<int>>, void vllm::merge_attn_states_kernel<float,128>
        flashinfer::MergeStatesKernel<8u>, smxx::decode::flash_fwd_mla_combine_kernel<64>, _fwd_kernel_stage2
        cutlass::fmha::kernel::Sm100FmhaMlaReductionKernel<float>, parallel_attn_bwd_kernel_preprocess""",
    ),
    (
        "elementwise",
        None,
        ANY,
        """void flash::FlashAttnBwdPostprocessConvertdQ<cute::tuple<int>>
        kernel_cutlass_kernel_flash_attncuteflash_bwd_postprocessFlashAttentionBackwardPostprocess_object_at__
        _ZN5aiter38fmha_bwd_hd64_dq_convert_bf16_rtne_groupE""",
    ),
    (
        "index",
        None,
        ANY,
        """void flash::prepare_varlen_num_blocks_kernel<4,true>, smxx::decode::get_mla_metadata_kernel
        flashinfer::AppendPagedKVCacheKernel<128u>, concat_and_cache_mla_rope_fused_kernel<float>""",
    ),
    # Expert parallelism and other collectives
    (
        "collective",
        None,
        ANY,
        """hybrid_ep::combine_kernel<hybrid_ep::config_t>, void dpsk::ep::intranode::combine<8,768,1024>
        uccl::ep::intranode::dispatch<4,512>, mori::moe::EpCombineInterNodeKernel<float>
        pplx::a2a::combine_recv_kernel<2>
        EpDispatchInterNodeV1Kernel, moeA2ACombineKernel<16>, voiddeep_ep::internode_ll::dispatch<true,7168>
        c10d::symmetric_memory::(anonymous)::barrier_kernel, c10d::symmetric_memory::one_shot_all_reduce_kernel<float>
        ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs), vllm::mnnvl_lamport_reduce_scatter_kernel<8>
        flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<2>, nvshmemi_proxy_quiet
        iris_all_to_all_kernel""",
    ),
    # Casts, scales, transforms
    (
        "elementwise",
        None,
        ANY,
        """to_mxfp4_dim0_kernel, triton_to_mxfp8_dim1_kernel, void vllm::cvt_fp16_to_fp4<__half,true>
        transformer_engine::(anonymous)::cast_transpose_general_kernel<false>
        hadacore::hadamard_transform_kernel<256>
        fast_hadamard_transform_kernel<128>, _silu_mul_fp8_quant_deep_gemm, _per_token_group_quant_8bit_colmajor
        tensorrt_llm::kernels::quantize_with_block_size<1>
        vllm::dynamic_per_token_scaled_fp8_quant_kernel<__half>""",
    ),
    (
        "layout",
        None,
        ANY,
        """transformer_engine::(anonymous)::swizzle_row_scaling_kernel<int,64,2>, triton_scale_swizzle_2d
        transformer_engine::swizzle_col_scaling_narrow_kernel, block_scale_interleave_kernel
        unswizzle_mxfp4_scale_kernel""",
    ),
    # Mixture of experts
    (
        "sort",
        None,
        ANY,
        """moe::dev::routing::routingRenormalize::routingIndicesClusterKernel<1>
        moe::dev::routing::routingInitExpertCounts
        routingIndicesHistogramKernel<4>, sgl::moe_align_block_size_small_batch_expert_kernel<int>
        lora_count_and_sort_expert_tokens_kernel<long>, kimi_k2_moe_fused_gate_kernel<384>
        tensorrt_llm::kernels::cutlass_kernels::blockExpertPrefixSumKernel<256>""",
    ),
    (
        "reduction",
        None,
        ANY,
        """moe::dev::finalize::finalizeKernelVecLoad<cutlass::bfloat16_t>
        moe_sum_reduce_kernel_warp_token_topk<float,8>
        tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<cutlass::half_t>
        deepep_post_reorder_triton_kernel""",
    ),
    (
        "elementwise",
        None,
        ANY,
        """moe::dev::activation::activationKernel<8>, swigluoai_and_mul_kernel, doActivationKernel<float>""",
    ),
    (
        "index",
        None,
        ANY,
        """_row_id_map_pass_3_kernel, _sort_chunks_by_idx_kernel, _moe_permute_kernel, compute_src2dst_triton_kernel
        tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<cutlass::half_t>
        moe::dev::permute::permuteKernel<1>
        compute_expert_blockscale_offsets, get_cutlass_batched_moe_problem_sizes::compute_problem_sizes<true>""",
    ),
    # Names of models are no matmuls
    ("norm", None, ANY, "_gemma_fused_add_rmsnorm_kernel, _gemma_rmsnorm_kernel, _gemma3n_layer_norm_kernel"),
    (
        "elementwise",
        None,
        ANY,
        """fusedQKNormRopeKernel<64,true>, _triton_qwen2vl_mrope, _triton_rope, apply_rotary_emb_kernel""",
    ),
    (
        "softmax",
        None,
        ANY,
        """liger_vocab_parallel_ce_forward_kernel, _grpo_loss_bwd_kernel, _sparsemax_forward_kernel""",
    ),
    ("rng", None, ANY, "rejection_greedy_sample_kernel, _gumbel_sample_kernel, TreeSpeculativeSamplingTargetOnly<1>"),
]
MEMBERS = [
    (name, kind, tensor_core, dtype)
    for kind, tensor_core, dtype, names in FAMILIES
    for name in re.split(r", |\n\s*", names)
]


@pytest.mark.parametrize(("name", "kind", "tensor_core", "dtype"), MEMBERS, ids=[m[0][:60] for m in MEMBERS])
def test_members_of_a_family(name: str, kind: str, tensor_core: bool | None, dtype: str | None) -> None:
    found = classify(name)
    assert (found.kind, found.tensor_core) == (kind, tensor_core)
    if dtype != ANY:
        assert found.dtype == dtype


def _rows() -> list[dict[str, str]]:
    """The shared list: name, class, Tensor Core use and type as an expert reads them; "-" where not said."""
    with KERNELS.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def _as_read(found: KernelClass) -> dict[str, str]:
    return {"class": found.kind, "tensor_core": str(found.tensor_core), "dtype": str(found.dtype)}


@pytest.mark.real_traces
def test_names_of_2025_and_2026_are_right() -> None:
    rows = _rows()
    assert len(rows) >= 120
    assert {row["name"] for row in rows}.isdisjoint(member[0] for member in MEMBERS)
    wrong = []
    for row in rows:
        found = _as_read(classify(row["name"]))
        if any(row[key] not in ("-", value) for key, value in found.items()):
            wrong.append((row["name"][:80], found))
    assert len(wrong) <= 0.05 * len(rows), wrong


def _kernels(path: Path) -> list[dict[str, Any]]:
    try:
        document = load(path)
    except (OSError, ValueError):
        return []  # no trace, or damaged on purpose
    events = document.get("traceEvents", []) if isinstance(document, dict) else document
    return [e for e in events if isinstance(e, dict) and str(e.get("cat", "")).lower() == "kernel" and e["ph"] == "X"]


# torch.cuda._sleep: a kernel that only waits, which is no known kind of work. It fills HTA's event_sync trace.
NO_WORK = "spin_kernel"


@pytest.mark.real_traces
def test_little_gpu_time_of_real_traces_is_of_unknown_kind() -> None:
    shares, waiting = {}, set()
    for path in sorted(TRACES.rglob("*.gz")):
        time: Counter[str] = Counter()
        for event in _kernels(path):
            unknown = classify(event["name"]).kind == "other"
            idle = NO_WORK in event["name"]
            waiting |= {path.name} if idle else set()
            time["other" if unknown and not idle else "known"] += float(event.get("dur", 0))
        if time.total():
            shares[path.name] = time["other"] / time.total()
    assert len(shares) >= 25
    assert {name: share for name, share in shares.items() if share > 0.02} == {}
    assert waiting <= {"event_sync_trace.json.gz"}


def test_eligible_kinds_of_the_families_say_whether_they_use_tensor_cores() -> None:
    assert {kind for kind, uses, *_ in FAMILIES if uses is not None} <= ELIGIBLE_KINDS
