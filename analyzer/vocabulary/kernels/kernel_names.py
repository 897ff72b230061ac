"""GPU kernel names: which kind of work a name stands for, and whether it runs on Tensor Cores.

Every kernel-name pattern of the project is in ``_TABLE`` below, which includes the entries of ``llm_kernels.py``.
Nothing else matches kernel names. The first entry that matches decides. "Tensor Core" includes AMD's matrix cores
throughout.

Choices worth knowing:

- ``kind`` is what the kernel itself does. A helper kernel of a matmul that multiplies nothing has its own kind
  (``splitKreduce`` is a reduction, ``computeOffsets`` an index table), so that it never counts against Tensor Core use.
  The data transforms of a Winograd, im2col or FFT convolution are ``conv`` without Tensor Cores: another algorithm
  would not need them.
- ``copy`` is everything that moves bytes and changes at most dtype, layout or place: ``direct_copy`` and the other copy
  functors of PyTorch (dtype casts, ``.contiguous()``), ``CatArrayBatchedCopy``, MIOpen's cast kernel. Fusion removes
  them like pointwise work, see ``FUSIBLE_KINDS``. NCHW<->NHWC conversions by a library are ``layout``.
- ``tensor_core`` is None ("unknown") unless the name shows it; for other kinds it is always None.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from traceopt.analyzer.vocabulary.kernels.kernel_dtypes import ALIGN, element_dtype, product_dtype
from traceopt.analyzer.vocabulary.kernels.kernel_entries import FUSED, NO_TENSOR_CORE, Entry, by_name, entry
from traceopt.analyzer.vocabulary.kernels.llm_kernels import LAST_WORDS, LLM_KERNELS


def words(*texts: str) -> frozenset[str]:
    return frozenset(" ".join(texts).split())


KINDS: frozenset[str] = words(
    "gemm conv attention norm softmax elementwise reduction layout embedding optimizer collective copy "
    "memset index pool rng sort other"
)
"""Every value of ``KernelClass.kind``."""

ELIGIBLE_KINDS: frozenset[str] = frozenset(("gemm", "conv", "attention"))
"""Kinds whose work could run on Tensor Cores."""

FUSIBLE_KINDS: frozenset[str] = frozenset(("elementwise", "copy", "norm", "softmax", "reduction", "rng"))
"""Memory-bound kinds that a fusing compiler merges into their neighbors."""

MAX_NAME_CHARS = 16_384
"""Only this much of a name is matched: mangled CUTLASS names have up to a few thousand characters."""


class KernelClass(Struct, frozen=True):
    """What a kernel's name shows."""

    kind: str
    """One of ``KINDS``."""
    tensor_core: bool | None
    """Runs on Tensor Cores: yes, no, or unknown; None for kinds where the question makes no sense."""
    dtype: str | None
    """Type of the multiplied or processed elements: fp64, fp32, tf32, fp16, bf16, fp8, int8; or None."""
    alignment: int | None
    """Operand alignment in elements, from CUTLASS's ``align1/2/4/8`` suffix."""
    fused: bool
    """The kernel is fused: Inductor, fused attention, fused optimizer or normalization."""

    @property
    def eligible(self) -> bool:
        """Whether this work could run on Tensor Cores."""
        return self.kind in ELIGIBLE_KINDS


def is_inductor(name: str) -> bool:
    """A kernel that torch.compile generated: ``triton_poi_fused_add_0``."""
    return _INDUCTOR.match(name) is not None


def is_gradient(name: str) -> bool:
    """A kernel that only a backward pass launches. The kernels that compute the gradient of a convolution's input also
    compute a transposed convolution, so that those of convolutions count only for the gradient of the weight.
    """
    pattern = _WEIGHT_GRADIENT if classify(name).kind == "conv" else _GRADIENT
    return pattern.search(name[:MAX_NAME_CHARS]) is not None


def is_index_accumulation(name: str) -> bool:
    """A kernel that adds rows at sorted indices: ``indexing_backward_kernel_stride_1``."""
    return "indexing_backward_kernel" in name


# GeluBackwardCUDAKernelImpl, softmax_warp_backward, layer_norm_grad_input_kernel: A4000; flash_bwd_dq_dk_dv: H100
def is_nccl(name: str) -> bool:
    """A collective of NCCL or RCCL that is not on symmetric memory."""
    return _NCCL.match(name) is not None


_NCCL = re.compile(r"(?:void )?(?:nccl|rccl)(?!Symk)")
_GRADIENT = re.compile(r"[bB]ackward|grad_input|wgrad|(?:flash|attn|fmha|ln|norm|ce|loss)_bwd")
_WEIGHT_GRADIENT = re.compile(r"wgrad|bwd_weight|_wrw")


def says_batched(name: str) -> bool:
    """A matmul kernel whose name says that it computes a batch: ``gemmSN_NN_kernel..BatchedParams``."""
    return _BATCHED.search(name[:MAX_NAME_CHARS]) is not None


_BATCHED = re.compile(r"(?i:batched|batch_?gemm|bmm)")
_INDUCTOR = re.compile(r"triton_(?:poi|per|red|mix|spl|tem|tpl|for)_")
_ATTENTION = r"(?:flex_)?attention|sdpa|scaled_dot_product|flash"

# Repeats in unanchored patterns are bounded, so that searching stays linear on hostile names.
_TABLE: tuple[Entry, ...] = (
    # Copies and fills, as named by Kineto ("Memcpy HtoD (Pageable -> Device)") and ROCm's own kernels.
    entry(r"^(?i:memset)|__amd_rocclr_fillBuffer", "memset"),
    entry(r"^(?i:memcpy)|__amd_rocclr_copyBuffer|recat_copy_async", "copy"),
    # Inductor: triton_<heuristic>_fused_<ops>_<n>; before everything else, because <ops> may contain any word.
    entry(rf"^triton_(?:tem|tpl)_\w*(?:{_ATTENTION})", "attention", True, FUSED),
    entry(r"^triton_(?:tem|tpl)_\w*convolution", "conv", True, FUSED),
    entry(r"^triton_(?:tem|tpl)_", "gemm", True, FUSED),
    entry(r"^triton_for_", "optimizer", None, FUSED),  # foreach loops compiled into one kernel
    entry(r"^triton_(?:per|red|mix|spl)_\w*softmax", "softmax", None, FUSED),
    # flux, MI300X; rms norm = mean, rsqrt
    entry(r"^triton_(?:per|red|mix)_\w*(?:norm|rsqrt)", "norm", None, FUSED),
    entry(r"^triton_(?:per|red|mix|spl)_", "reduction", None, FUSED),
    # triton__0d1d23d: 2023 name (A100, hta)
    entry(r"^triton_poi_|^triton__?\d", "elementwise", None, FUSED),
    # nvFuser, by the scheduler that made the kernel
    entry(r"\bnvfuser_(?:reduction|inner|outer|no_op_reduction)", "reduction", None, FUSED),
    entry(r"\bnvfuser_", "elementwise", None, FUSED),
    # Collectives: kernels that wait for other ranks. nccl: V100, A100 (hta); ncclDevKernel_Generic: MI300X.
    entry(
        r"^(?:void )?(?:nccl|rccl)|ncclDevKernel|ncclKernel|ncclSymk|multimem_|cross_device_reduce|msccl|"
        r"nvshmem|"
        r"(?i:(?:one|two)_?shot_?all_?reduce|all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|lamport)|"
        r"userbuffers_|deep_ep::|quickreduce|oneccl|"
        # Expert parallelism: DeepEP and its forks, UCCL, MORI (AMD), pplx, TensorRT-LLM's NVLink all-to-all
        r"hybrid_ep::|(?:dpsk|uccl)::ep::|\bmori::|Ep(?:Dispatch|Combine)\w{0,60}Kernel|pplx::a2a|[mM]oeA2A|a2a_pack|"
        r"internode(?:_ll)?::|intranode::|low_latency_(?:dispatch|combine)|"
        r"symmetric_memory::.{0,60}barrier|_blockwise_barrier|mnnvl|rocshmem",
        "collective",
        words="ccl multimem_ reduce nvshmem gather all lamport userbuffers_ ep a2a mori:: node low_latency barrier "
        "mnnvl rocshmem",
    ),
    *LLM_KERNELS,
    # Attention: helpers first, because they multiply nothing.
    entry(
        r"flash_\w{0,80}bwd_dot_do_o|flash_fwd_splitkv_combine|attention\w{0,80}_reduce|^reduce_segments",
        "reduction",
    ),
    entry(
        r"flash_bwd_convert|sage_quant|FlashAttnBwdPostprocess|FlashAttnBwdPreprocess",
        "elementwise",
        None,
        FUSED,
    ),
    # sglang, vllm on MI300X
    entry(r"reshape_and_cache|concat_and_cache|store_?kv_?cache|kv_indices", "index"),
    entry(
        # A100, H100 (nsfw, FA2 and FA3)
        r"fmha_cutlass[FB]_|flash_(?:fwd|bwd|attn|mla)|_flash_attn|flash::|FlashAttn|"
        r"cudnn_generated_fort_native_sdpa|cutlass::fmha|fmhaSm|fmha_v2",
        "attention",
        lambda name: NO_TENSOR_CORE.search(name) is None,
        FUSED,
    ),
    entry(
        # aotriton on MI300X (Qwen, xdit), aiter
        r"^_?attn_(?:fwd|bwd)|^_attn_|^_?bwd_kernel_(?:dk_?dv|dq|fused|split)|flash_decod|"
        r"^sage_(?:fwd|attn)|sageattn|qk_int\d?_sv|"  # flux on MI300X
        # ck_tile and aiter (sglang Qwen3)
        r"[fF]mha_?(?:[fF]wd|[bB]wd|[bB]atch|[pP]refill|[dD]ecode|[kK]ernel)|"
        r"unified_attention|_fwd_grouped_kernel_stage1|^_fwd_kernel$|"  # vllm, sglang
        r"PrefillWith\w{0,80}KV|SinglePrefill|paged_attention_ll4mi|mla_(?:prefill|decode)",
        "attention",
        True,
        FUSED,
        words="attn bwd_kernel_ flash_decod sage qk_int mha attention _fwd_ prefill mla_",
    ),
    entry(
        r"paged_attention|DecodeWith\w{0,80}KV|^_fwd_kernel_stage|(?i:attention)|^xqa|kernel_mha",
        "attention",
        by_name,
        FUSED,
        words="attention decodewith _fwd_kernel_stage xqa kernel_mha",
    ),
    # Embedding tables (DLRM jobs on A100, hta) and FBGEMM, which has "gemm" in its name but multiplies nothing.
    # rotary_embedding_kernel is not a table lookup; fusedQKNormRopeKernel (TensorRT-LLM, SGLang), mrope (Qwen2-VL)
    entry(r"(?i:rotary|rope_|mrope)|Rope(?=[A-Z]|\b)|_rope\b", "elementwise", None, FUSED, "rotary rope"),
    entry(r"fbgemm_gpu::.{0,300}(?:[qQ]uantize|FP8|_to_float|to_half)", "elementwise"),
    entry(r"fbgemm_gpu::.{0,300}(?:permute|bucketize|offsets|cumsum|gather|index)", "index"),
    entry(
        r"split_embedding|(?i:embedding)|permute_pooled_embs|linearize_index|bounds_check_indices|fbgemm_gpu::",
        "embedding",
    ),
    # Optimizers: foreach and fused multi-tensor kernels.
    entry(r"multi_tensor_apply_kernel.{0,400}?(?:CopyFunctor|Copy<)", "copy"),  # _foreach_copy_ (FSDP, EMA)
    entry(
        r"multi_tensor_apply_kernel.{0,400}?(?:FusedAdam|FusedSgd|FusedAdagrad|AdamFunctor|LAMB|Lamb)",
        "optimizer",
        None,
        FUSED,
    ),
    entry(r"multi_tensor|LpNormFunctor|L2NormFunctor", "optimizer"),
    entry(
        r"[fF]used_?[aA]dam|[aA]dam[wW]?_?(?:[kK]ernel|[fF]unctor|update|cuda)|(?i:lamb)(?:Stage|_cuda|Functor|_kernel)|"
        r"SGDFunctor|kOptimizer|kPrecondition|sgd_kernel|adagrad_kernel|lion_kernel|muon_",
        "optimizer",
        None,
        FUSED,
    ),
    # Helpers of matmuls that multiply nothing.
    entry(
        r"splitKreduce|ReduceSplitK|splitk_reduce|PostGSU|Cijk_[A-Z]+_(?:GA|Post|Bias)|reduce_1Block|"
        r"reduce_wgrad|finalize_matmul|SplitKReduce|nll_loss|NLLCriterion",
        "reduction",
    ),
    entry(
        r"cask_cudnn\w{0,80}::compute|compute\w{0,80}Offsets|kern_precompute_indices|compute_gemm_pointers|"
        r"_combined_routing|bitmatrix|resolve_future_token|compute_position|compute_cuda_kernel|find_long_segments",
        "index",
    ),
    # Unmistakable matmuls, before words in their template arguments ("gather", "norm", "copy") can mislead.
    entry(
        r"(?:cutlass|xmma|ck16tensor|ck::).{0,600}?(?:[cC]onv(?!ert|ex|ey|ent|erg)|fprop|dgrad|wgrad|cudnn|"
        r"bwd_weight)",
        "conv",
        by_name,
    ),
    entry(
        r"^nvjet|^sm\d{2,3}[a-z]?_xmma|^(?:Custom_)?Cijk_A|"
        r"^(?:void |_ZN\d)?(?:cutlass|\d?ck16tensor|ck::).{0,600}?(?i:gemm|tensorop|simt)",
        "gemm",
        by_name,
    ),
    # Layout conversions by a library: cuDNN (A100 in nccl_parser_config, H100), MIOpen (MI300X, MI210),
    # cuBLAS.
    entry(
        r"(?i:nchw_?to_?nhwc|nhwc_?to_?nchw|nhwc2nchw|nchw2nhwc|ncdhw_?to|ndhwc_?to|FoldedNhwc|nh?[cw]+AddPadding)|"
        r"batched_transpose_|transpose_(?:CNHW|NCHW|packed|readWrite)|tensorTransform|(?i:transpose_?kernel)|"
        r"permute_?021|cudnn::ops::transpose",
        "layout",
        words="nhwc ncdhw ndhwc addpadding transpose tensortransform permute",
    ),
    # Copies on the GPU.
    entry(
        r"(?:direct|float\w{0,80}|bfloat16\w{0,80})_copy_kernel|bfloat16tofloat32_copy|copy_device_to_device|CatArrayBatched|"
        r"copy_kernel|SubTensorOpWithCastTensor|cat_cuda|split_with_sizes_copy|chunk_cat|conj_kernel",
        "copy",
    ),
    # Softmax: cunn_SoftMaxForward is capitalised (H100, MI300X), softmax_warp_forward (A100, MI300X).
    entry(
        r"(?i:soft_?max|cross_?entropy|sparsemax|logsumexp)|_ce_(?:fwd|bwd|forward|backward|tvd)|_?grpo_(?:loss|fwd|bwd)",
        "softmax",
        words="soft cross sparsemax logsumexp _ce_ grpo",
    ),
    # Normalisation: cuDNN bn_*, MIOpen, PyTorch (perf_model, MI300X), aiter add_rmsnorm_quant, ck_tile
    # Rmsnorm2d.
    entry(
        r"(?i:add_?rms_?norm|fused_add|norm_quant|rmsnorm2d|ln_fwd|ln_bwd|layer_norm_fwd|rms_norm_fwd)",
        "norm",
        None,
        FUSED,
        words="norm fused_add ln_fwd ln_bwd",
    ),
    entry(
        r"bn_(?:fw|bw)_|(?i:(?:batch|layer|rms|group|instance|weight)_?norm)|RowwiseMoments|GammaBeta|"
        r"Compute(?:Backward)?FusedParams|ComputeInternalGradients|[wW]elford|cudnn_generated_fort_native_(?:ln|rms|norm)",
        "norm",
        words="bn_ norm rowwisemoments gammabeta fusedparams internalgradients welford fort_native",
    ),
    # Pooling and resampling windows.
    entry(
        r"(?i:max_?pool|avg_?pool|average_?pool|pooling|unpool|upsample|interpolate)",
        "pool",
        words="pool upsample interpolate",
    ),
    # Random numbers and dropout.
    entry(
        r"distribution_elementwise|(?i:dropout|philox|curand|bernoulli|randperm|random)",
        "rng",
        words="distribution dropout philox rand bernoulli",
    ),
    # Sorting and selection.
    entry(
        r"(?i:radix_?sort|merge_?sort|segmented_?sort|bitonic|moe_?sort|sort_kernel|sortKeyValue|top_?k|radix_?select|"
        r"kthvalue|gathermedian)|moe_align_block",
        "sort",
        words="sort bitonic top select kthvalue gathermedian moe_align_block",
    ),
    entry(r"(?:rocprim|cub|thrust).{0,300}(?:sort|Sort)", "sort"),
    # Gathers, scatters, indexing.
    entry(
        r"index_elementwise|gpu_index_kernel|index(?:Select|Func|Add|Copy|ing_)|index_(?:put|select|add|copy|fill)|"
        r"(?i:gather|scatter)|masked_select|take_kernel|nonzero|DeviceSelect|DevicePartition|DeviceCompact|"
        r"to_dense_representation|searchsorted|bucketize|flip_|roll_cuda|tri[lu]_|repeat_interleave|(?i:unpermute|permute_)",
        "index",
        words="index gather scatter select take_kernel nonzero devicepartition devicecompact to_dense searchsorted "
        "bucketize flip_ roll_cuda tril_ triu_ repeat_interleave permute",
    ),
    # Mamba (mamba_ssm, causal_conv1d): one kernel for the recurrence, and one for a convolution of each channel alone.
    entry(r"selective_scan", "reduction", None, FUSED),
    entry(r"causal_conv1d", "elementwise", None, FUSED),
    # Reductions and scans.
    entry(
        r"reduce_kernel<|DeviceReduce|DeviceScan|DeviceSegmentedReduce|scan_config|tensor_kernel_scan|reduce_config|"
        r"(?i:cumsum|cumprod|argmax|argmin|segment_reduce|reduce_sum)|^sum_|block_reduce",
        "reduction",
        words="reduce scan cumsum cumprod argmax argmin sum_",
    ),
    # Pointwise work of PyTorch: before the matmuls, whose words may occur in a functor.
    entry(
        r"elementwise_kernel|elementwise_grid_stride|arange_cuda_out|kernelPointwiseApply|pointwise_",
        "elementwise",
    ),
    entry(
        r"act_and_mul|(?i:swiglu|geglu)_?(?:fwd|bwd|kernel|forward|backward)",
        "elementwise",
        None,
        FUSED,
        words="act_and_mul glu",
    ),
    # Convolutions: cuDNN on V100 and A100, CUTLASS, MIOpen igemm and composable kernel on MI210 and MI300X.
    entry(
        r"[cC]onv(?!ert|ex|ey|ent|erg)|(?:16|84|88)cudnn|[sh]cudnn|fprop|dgrad|wgrad|[wW]inograd|"
        r"fft[12]d_|igemm_(?:fwd|bwd|wrw)|im2col|col2im|Im2d2Col|Col2Im|vol2col|bwd_weight",
        "conv",
        by_name,
    ),
    # Matmuls by hand-written Triton kernels.
    entry(
        r"_matmul_ogs|fused_moe_kernel|(?i:fp8_matmul|int8_matmul|block_scaled_mm)|^_?(?:batched_)?matmul_kernel|"
        # _matmul_ogs_NNT_bf16xbf16xmxfp4_*: vllm, MI300X
        r"^_?(?:grouped_|batched_)?gemm_\w{0,80}kernel|^_?mm_kernel",
        "gemm",
        True,
        words="matmul fused_moe_kernel block_scaled_mm gemm_ mm_kernel",
    ),
    # Matmuls: cuBLAS, cuBLASLt, CUTLASS, nvjet, Tensile, rocBLAS, composable kernel, quantized kernels.
    entry(
        # "gemma" is a model's name; cutlass::bfloat16_t and the like are types, and TensorRT-LLM has cutlass_kernels::
        r"(?<!kernel_)cutlass(?!_kernels::|::(?:bfloat|half|t?float|u?int|[aA]rray))|"
        r"(?i:gemm)(?!a(?![a-z]))|(?i:gemv|matmul)|nvjet|Cijk_A|dot_kernel|xmma|wvSplitK|marlin|"
        r"machete|[fF]latmm|fmoe|FusedMoe",
        "gemm",
        by_name,
    ),
    # Other pointwise work.
    entry(
        # cuBLAS, cuDNN, MIOpen
        r"scal_kernel|axpy|scalePackedTensor|epilogue::impl::globalKernel|SubTensorOp|Op(?:Tensor|[1-5]dTensor)|"
        r"(?i:silu|gelu|relu|sigmoid|quant|elementwise|cast_|bias_|clamp|(?<!pre)fill_|_fill|memset)|dot_product_interaction|"
        r"transform_config|TransformKernel|for_each|amp_",
        "elementwise",
    ),
    *LAST_WORDS,
)

_UNKNOWN = entry("", "other")


@lru_cache(maxsize=32_768)
def _classify(name: str) -> KernelClass:
    lower = name.lower()
    found = next((row for row in _TABLE if row.matches(name, lower)), _UNKNOWN)
    tensor_core = found.tensor_core(name) if callable(found.tensor_core) else found.tensor_core
    align = ALIGN.search(name) if found.kind in ELIGIBLE_KINDS else None
    dtype = product_dtype(name) if found.kind in ELIGIBLE_KINDS else element_dtype(name)
    return KernelClass(
        kind=found.kind,
        tensor_core=tensor_core,
        dtype=dtype,
        alignment=int(align[1]) if align else None,
        fused=found.fused,
    )


def classify(name: str) -> KernelClass:
    """The class of the kernel called ``name``. Never raises; an unknown name is of kind ``other``. Cached."""
    return _classify(name[:MAX_NAME_CHARS])


# sin_kernel_cuda, pow_tensor_scalar_kernel_impl, GeluCUDAKernelImpl (ATen)
_MATH_FUNCTION = re.compile(
    r"(?<![A-Za-z\d])a?(?:sin|cos|tan)h?_kernel|"
    r"(?<![A-Za-z\d])(?:exp2?|expm1|log(?:2|10|1p)?|erfc?|sigmoid|softplus|pow_\w{1,20}|"
    r"(?i:gelu\w{0,20}?|silu))_?(?i:kernel)"
)


def is_math_function(name: str) -> bool:
    """Whether a pointwise kernel computes a function that takes many operations for each number, such as sin."""
    return _MATH_FUNCTION.search(name) is not None
