"""Kernels of language-model engines and kernel generators since 2024.

TensorRT-LLM, FlashInfer, vLLM, SGLang, DeepSeek's libraries, flash-linear-attention, CuTe DSL, Triton, Helion, aiter.

These entries are part of the table in ``kernel_names.py``: ``LLM_KERNELS`` come before its general entries,
``LAST_WORDS`` after them. A pattern describes a family. Its comment names where the family was seen.
"""

from __future__ import annotations

from traceopt.analyzer.vocabulary.kernels.kernel_entries import FUSED, Entry, by_name, entry

# Classes of CuTe DSL are named kernel_cutlass_kernel_<module><Class>_object_at__<arguments>_0: the words of the class
# are near the start.
_CUTE = r"kernel_cutlass_\w{0,160}?"

_LAYOUT_AND_CASTS: tuple[Entry, ...] = (
    # Scales of MXFP8 and NVFP4 products (Transformer Engine, torchao, FlashInfer), weights that are repacked on loading
    # (Marlin, Machete in vLLM; FP8 weights in DeepGEMM).
    entry(
        r"swizzle_(?:row|col)_scaling|scale_swizzle|unswizzle|block_scale_interleave|mx_blocked_layout|_repack_kernel|"
        r"machete::prepack|deep_gemm::(?:transpose|pack)|interleave_\w{0,30}weights|reorder_tensor_kernel|"
        r"SparseCompressor",
        "layout",
        words="swizzle interleave mx_blocked_layout repack prepack deep_gemm:: reorder_tensor compressor",
    ),
    # torchao to_mxfp8_dim1_kernel, vLLM and FlashInfer cvt_fp16_to_fp4, Transformer Engine cast_transpose; casts that
    # are named after the product that reads them (vLLM and SGLang: silu_mul_fp8_quant_deep_gemm); Hadamard transforms
    # (quack, hadacore, fast-hadamard-transform).
    entry(
        r"to_mxfp[48]|(?:silu|gelu|act)_mul_\w{0,40}(?:quant|scale)|cvt_\w{0,40}fp[48]|cast_\w{0,30}transpose|quant\w{0,60}_(?:deep_?gemm|cutlass)|"
        r"quantize_with_block_size|[qQ]uantize(?:Linear|Swizzled|Tile|Append)|"
        r"(?i:hadamard)(?:_?transform|_amax)|fast_hadamard|nvfp4::quantize",
        "elementwise",
        None,
        FUSED,
        "mxfp _mul_ cvt_ cast_ quant hadamard",
    ),
)

_ATTENTION_HELPERS: tuple[Entry, ...] = (
    # Combine the results of parts of the keys, or prepare row sums: FlashAttention 2 to 4, FlashMLA, FlashInfer, vLLM,
    # SGLang's Triton decode (stage 2), aiter (odo).
    entry(
        r"F(?:wd|orward)_?Combine|(?:fwd|mla|lse|splitkv?|attn|decode)_combine|_combine_lse|"
        r"[mM]erge_?(?:[aA]tt(?:entio)?n_?)?(?:[oO]ut|[sS]tates?)(?:_|K|I|L|\b)|[aA]ttention_merge|MergeStates|"
        r"AttentionSumKernel|(?i:fmha_?|mla_?)reduc(?:tion|er)|MlaReduction|flash_decode_stage2|"
        r"attn_decode\w{0,40}_reduce|_verify_\w{0,20}combine|_fwd_kernel_stage2|"
        r"(?:Bwd|[bB]ackward)_?[pP]reprocess|bwd_(?:kernel_)?preprocess|fmha_bwd_\w{0,40}_odo",
        "reduction",
        words="combine merge attentionsum reduc stage2 preprocess _odo",
    ),
    entry(
        r"(?:Bwd|[bB]ackward)_?[pP]ostprocess|bwd_(?:kernel_)?postprocess|fmha_bwd_\w{0,40}dq_convert",
        "elementwise",
        None,
        FUSED,
        "postprocess dq_convert",
    ),
    # FlashAttention 3 prepare_varlen_num_blocks, FlashMLA get_mla_metadata; caches of keys and values (FlashInfer).
    entry(
        r"prepare_varlen|PrepareScheduler|mla_metadata|sched_meta|mqa_logits_metadata|[mM]etadata_?[kK]ernel|"
        r"[aA]ppendPagedKV|[cC]oncat_?[aA]nd_?[cC]ache",
        "index",
        words="prepare_varlen preparescheduler metadata sched_meta appendpagedkv cache",
    ),
)

_LINEAR_ATTENTION: tuple[Entry, ...] = (
    # flash-linear-attention as used by Qwen3-Next and Kimi Linear, and Mamba 2 (chunk_state, chunk_scan).
    entry(r"chunk_\w{0,40}cumsum|chunk_cumprod|_state_passing_(?:fwd|bwd)|^_?selective_(?:scan|state)", "reduction"),
    entry(r"l2_?norm_(?:fwd|bwd)", "norm"),
    entry(r"(?:kda|gdn|gdn2)_gate_|gdn_gating|token_shift_(?:fwd|bwd)", "elementwise", None, FUSED),
    # One token against the state: matrix-vector work without Tensor Cores.
    entry(
        r"^_?fused_recurrent_|_recurrent_\w{0,60}(?:fwd|bwd|decode)|delta_rule_(?:packed_decode|update)|"
        r"(?:gdn|kda|Gdn|Kda)_?(?:\w{0,20}_)?[dD]ecode|_?linear_attn_decode",
        "attention",
        False,
        FUSED,
        "recurrent delta_rule gdn kda linear_attn",
    ),
    entry(
        r"^_?(?:fused_)?chunk(?:wise)?_\w{0,60}(?:fwd|bwd|kernel_[oh]\b|scan|state|scaled_dot)|"
        r"^_?chunk_(?:gated_|scan|state|scaled_dot|local_)|"
        r"gated_delta_(?:rule|net|product)|[dD]eltaRule|GatedDeltaNet|recompute_w_u|wy_repr|"
        r"solve_tril_|merge_\d+x\d+_to_\d+x\d+_inverse|^_?parallel_\w{0,60}(?:fwd|bwd)|parallel_nsa|"
        # lightning attention of MiniMax and Bailing (vLLM, SGLang); KDA and GDN in CuTe DSL and CUDA
        r"^_?fwd_(?:none_)?diag_kernel|^_?fwd_kv_(?:parallel|reduce)|seg_la_|lightning_att|"
        r"flash_kda|kda_(?:fwd|bwd|intra|prefill|fused)|gdn_(?:fwd|prefill)|Kda\w{0,20}Chunk|ChunkKda|_ttt_linear",
        "attention",
        True,
        FUSED,
        "chunk delta recompute_w_u wy_repr solve_tril inverse parallel_ diag_kernel fwd_kv_ seg_la_ lightning "
        "kda gdn ttt_linear",
    ),
)

_ATTENTION: tuple[Entry, ...] = (
    entry(  # FlashAttention 4, CUTLASS examples, FlashInfer
        _CUTE + r"(?:[aA]ttention|[aA]ttn(?!_?[rR]es)|fmha|FMHA|Fmha|(?<!m)mla(?!y)|M[lL][aA]_?[A-Z]|"
        r"Chunk[A-Z]{1,3}Kernel)",
        "attention",
        True,
        FUSED,
    ),
    entry(
        # TileLang, Helion and cuTile by their names; FlashMLA and SGLang's sparse attention; FlashInfer's mixed batches
        r"(?:tilelang|helion|cutile)_\w{0,60}(?:attention|attn|flash|fmha|mla)|"
        r"sparse_(?:attn|attention|mla)_\w{0,20}(?:fwd|bwd|prefill|decode)|(?:attn|mla)_fwd_\w{0,20}sparse|"
        r"_(?:gqa|mla|mha)_(?:\w{0,20}_)?(?:fwd|decode|prefill|paged|sparse)|PODWithKVCache|flash_splitkv_mla|[sS]m1\d\d\w{0,10}F[mM][hH][aA]|lean_att|"
        # aiter's assembly: mla_dec_stage1_bf16_..., pa_bf16_pertokenFp8_...
        r"mla_(?:dec|pfl)_stage\d|aiter\d{0,4}pa_(?:bf|fp)16",
        "attention",
        True,
        FUSED,
        "tilelang helion cutile sparse _gqa_ _mla_ _mha_ podwithkvcache flash_splitkv sm1 lean_att mla_ pa_",
    ),
)

_EXPERTS: tuple[Entry, ...] = (
    # Mixture of experts. Routing: TensorRT-LLM and FlashInfer, vLLM, SGLang.
    entry(
        r"moe::dev::routing|routing(?:Main|Indices|Renormalize|DeepSeek|Llama4|Custom|Init|Post)\w{0,60}[kK]ernel|"
        r"count_and_sort_\w{0,20}expert|moe_(?:\w{0,10}_)?align_|moe_fused_gate|fused_moe_router|[nN]oAuxTc|"
        r"BuildExpertMaps|(?:[eE]xpert|expert_)[pP]refix_?[sS]um|_routing_kernel|grouped_topk",
        "sort",
        words="routing count_and_sort align_ gate router noauxtc expertmaps prefix topk",
    ),
    entry(
        r"moe::dev::finalize|finalize(?:DeepSeek)?Kernel|[fF]inalizeMoe|[mM]oe_?[fF]inalize|moe_sum(?:_|\b)|"
        r"moe_fused_mul_sum|post_reorder_|_lora_shrink_reduce|reduce_shrink_split",
        "reduction",
        words="finalize moe_sum mul_sum post_reorder shrink",
    ),
    entry(
        r"moe::dev::activation|activationDeepSeek|do(?:Gated)?ActivationKernel|"
        r"(?:swiglu|situ|silu|gelu|act)\w{0,20}_and_mul",
        "elementwise",
        None,
        FUSED,
        "activation _and_mul",
    ),
    # Places of tokens and problem sizes of grouped products; Transformer Engine's permutation; SGLang, DeepGEMM.
    entry(
        r"moe::dev::permute|(?:expand|shuffle)InputRows|shuffle_rows|_row_id_map_|sort_chunks_by|chunk_sort_map|"
        r"^_?(?:moe_)?(?:un)?permute_kernel|permuteKernel|compute_(?:\w{0,20}_)?problem_sizes|expert_(?:\w{0,20}_)?offsets|"
        r"expert_num_tokens|group_gemm_(?:starts|args)|group_gemm_pre_compute|grouped_gemm_data|compute_src2dst|pre_reorder_|"
        r"compute_arg_sorts|computeStrides\w{0,30}Kernel",
        "index",
        words="permute rows row_id_map chunk problem_sizes offsets num_tokens group src2dst pre_reorder arg_sorts "
        "computestrides",
    ),
)

_PRODUCTS: tuple[Entry, ...] = (
    # Sums of split-K products: aiter's Triton kernels, quack.
    entry(r"gemm_\w{0,80}_reduce_kernel|split_?k_reduce|SplitKReduce", "reduction", words="gemm_ split"),
    # TensorRT-LLM's generated products: bmm_<result>_<A><B>_<accumulator>_t<tile>_... (B200 traces of FlashInfer,
    # SGLang, vLLM).
    entry(r"^(?:bmm|gemm)_(?:\w{0,12}_)?(?:Mx)?(?:E2m1|E4m3|E5m2|Bfloat16|Fp16|Int8)\w{0,40}_Fp32_", "gemm", True),
    entry(r"^bmm_(?:Mx)?(?:E2m1|E4m3|E5m2|Bfloat16|Fp16)", "gemm", True),
    entry(  # CuTe DSL: CUTLASS examples, quack, FlashInfer, SGLang
        _CUTE + r"(?:(?:[gG]emm|GEMM)(?!a|_?[vV])|[mM]atmul|MoE\w{0,40}Kernel|TiledMMA|MMAAtom)", "gemm", True, FUSED
    ),
    # Muon's products of a matrix with its transpose (modded-nanogpt, Dion).
    entry(r"^_?(?:XXT|XTX|ba_plus_cAA|ns_line_\d)_kernel", "gemm", True),
    # aiter's assembly, FlyDSL and composable kernel: fmoe_bf16_..., bf16gemm_fp32bf16_tn_..., f4gemm_bf16_...,
    # mfma_moe1_..., kernel_moe_gemm
    entry(
        r"^f4gemm_|(?:aiter|^)\w{0,4}(?:fmoe|(?:bf16|f[48]|i8)gemm|flatmm)|mfma_moe|kernel_moe_(?:mx)?gemm",
        "gemm",
        True,
        words="f4gemm fmoe gemm flatmm mfma_moe",
    ),
    # Kernels of Triton, Helion, cuTile and TileLang.
    entry(
        r"^(?:_helion|cutile|tilelang)_\w{0,60}(?:matmul|gemm|bmm|_mm)(?!a)|^triton_(?:b?mm|matmul|scaled_mm|gemm)_|"
        # Mamba 2; torchtitan's grouped products; unsloth; persistent products of vLLM's batch-invariant mode
        r"^_?bmm_(?:\w{0,20}_)?kernel|_bmm_(?:chunk|kernel)|_(?:cg|fbgemm)_grouped_gemm|_grouped_gemm_\w{0,20}kernel|grouped_mm_kernel|"
        r"(?:^|_)scaled_mm_kernel|^_?(?:\w{1,20}_)?matmul_\w{0,30}kernel|fused_moe_(?!preprocess|dispatch|align)\w{0,40}kernel|_kernel_(?:matmul|grouped_gemm)_fp8|"
        # triton_kernels of gpt-oss, formerly _matmul_ogs
        r"_matmul_[NT]{3}_|"
        # scores of DeepSeek's sparse attention
        r"mqa_logits",
        "gemm",
        True,
        words="helion cutile tilelang triton_ bmm_ gemm mm_kernel matmul fused_moe mqa_logits",
    ),
    # LoRA: vLLM's and SGLang's Triton kernels, Punica's bgmv and sgmv.
    entry(
        r"(?:^|_)lora_(?:shrink|expand)|^_?(?:sgemm|qkv|gate_up)_lora_[ab]|\bsgmv|_sgmv",
        "gemm",
        True,
        words="lora sgmv",
    ),
    entry(r"bgmv_|mul_mat_(?:vec_)?q|mul_mat_vec", "gemm", False),
    # DeepGEMM; Marlin outside its namespace; vLLM's and SGLang's small products
    entry(r"deep_gemm::|\bMarlin(?:Default)?<|tinygemm|qserve|gemm_w4a[48]|gemm_w8a8", "gemm", True),
    entry(r"gemm_half_q_half|moe_wna16|fused_a_gemm|router_gemm", "gemm", by_name),
)

LLM_KERNELS: tuple[Entry, ...] = (
    *_LAYOUT_AND_CASTS,
    *_ATTENTION_HELPERS,
    *_LINEAR_ATTENTION,
    *_EXPERTS,
    *_ATTENTION,
    *_PRODUCTS,
)

# Words that decide only if nothing else in the whole table does: Triton and CUDA kernels of vLLM, SGLang, Liger,
# unsloth and TensorRT-LLM with names of their own.
LAST_WORDS: tuple[Entry, ...] = (
    entry(r"[sS]ampl(?:ing|e_)|gumbel|rejection_", "rng"),
    entry(r"(?i:_norm|norm_)|Norm(?=[A-Z<(]|$)", "norm", None, FUSED),
    entry(
        r"(?i:absmax|amax|kl_?div)|_jsd_|_reduc(?:e|tion)(?:_|\b)|[rR]educ(?:e|tion)K|(?:^|_)(?:sum|mean|merge)_|"
        r"tv_distance|_combine_",
        "reduction",
        words="max div jsd reduc sum mean merge tv_distance combine",
    ),
    entry(
        r"(?i:kv_?cache|page_?table|block_table|slot_mapping|kv_buffer|_indices|_index_|offsets|token_ids|position|"
        r"metadata|bincount|histogram)|req_to_token|copy_page|swap_blocks|_draft_|eagle_|_tree_|seq_?lens|prepare_\w{0,30}input",
        "index",
        words="cache page table mapping buffer indic index offset token position meta count hist draft eagle tree "
        "block len input",
    ),
    entry(
        r"(?i:swiglu|geglu|situ_|swish|hadamard|fwht|dequant|bitmask|penalt|tanh|softplus)|and_mul|"
        r"(?:^|_)(?:add|mul|sub|div|scale|shift|gate|residual|mask|pad|pack|unpack|concat|convert|cast|copy|zero|cat|"
        r"bias|temperature|modulate|square|element|exp|apply|dyt|exact|approx|fg|DWf_DW_dfg)_(?:\w{1,40}_)?kernel|"
        r"Concat\w{0,20}Kernel|convert_\w{0,20}_kernel",
        "elementwise",
        None,
        FUSED,
        "swiglu geglu situ_ swish hadamard fwht dequant bitmask penalt tanh softplus and_mul _kernel concat",
    ),
)
