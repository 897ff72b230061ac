"""One entry of a table of kernel names, and Tensor Core use read from a name."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

# Tensor Core use from the name of a gemm, conv or attention kernel. NO is checked first: "cutlass_80_simt_sgemm" has a
# Tensor Core architecture in its name but does not use them.
NO_TENSOR_CORE = re.compile(
    # CUTLASS SIMT (also mangled MmaSimt), sm80_xmma_..._ffma_ (FP32 on A100 and H100)
    r"simt|Simt|_ffma|\bffma|"
    # volta_sgemm_64x64_nt (V100), ampere_sgemm_* (A100), ampere_gcgemm
    r"(?<![a-z\d])[sdcz]gemm|gcgemm|scgemm|"
    r"(?:maxwell|volta|pascal)_(?:fp16_)?hgemm|"  # packed half arithmetic without HMMA
    r"scudnn|hcudnn|"  # volta_scudnn_*, cudnn_ampere_scudnn_* (kineto and HTA traces)
    r"(?:im|ex)plicit_convolve|convolve_sgemm|(?:dgrad|wgrad)_(?:alg\w{0,80}_)?engine|(?:d|w)grad2d|"
    r"[wW]inograd|fft2d|fft1d|im2col|Im2d2Col|Col2Im|col2im|vol2col|"  # transforms of other algorithms
    r"(?i:gemv)|gemmk1|gemmSN|dot_kernel|largek_lds|"  # matrix-vector and small SIMT kernels of cuBLAS and engines
    r"naive_conv|conv_depthwise|depthwise|causal_conv|grouped_direct_kernel|"
    r"miopenSp3AsmConv|[gG]cnAsmConv|MIOpenConv|"  # MIOpen's vector-unit convolutions
    r"rocblas_(?:gemm|gemv|dot)|_dl_|wvSplitK(?!Q)|LLGemm|magma_|"
    # bitsandbytes (4-bit matrix-vector), GPTQ and exllama (packed half arithmetic), llama.cpp (dp4a), Punica's LoRA
    r"kgemm_4bit|gemm_half_q_half|mul_mat_(?:vec_)?q|bgmv|router_gemm_kernel|"
    r"paged_attention_v[12]_|fmha_cutlass[FB]_\w{1,80}?_sm(?:50|60)\b"
)
# Products of a vector or of a few rows, attention of one new token, and depthwise convolutions: they read each weight,
# cache entry or channel for little arithmetic, so memory limits them (cuBLAS, rocBLAS, vLLM on ROCm, bitsandbytes,
# exllama, llama.cpp, Punica, PyTorch).
MEMORY_BOUND_PRODUCT = re.compile(
    r"(?i:gemv)|gemmk1|dot_kernel|wvSplitK|LLGemm|LLMM1|kgemm_4bit|gemm_half_q_half|mul_mat_vec|bgmv|"
    r"paged_attention_v[12]_|decode_attention|flash_decod|single_query_cached|conv_depthwise"
)
_TENSOR_CORE = re.compile(
    # cutlass_80_tensorop_*, MmaTensorOp, cutlass3x_sm100_bstensorop_*, sm80_xmma_..._tensor16x8x8
    r"tensor_?op|TensorOp|tensor\d+x\d+x\d+|"
    # s884, h884, s1688, s16816, i16832 (sm_70-sm_89)
    r"[a-z]\d{3,6}(?:tf32|bf16|f16)?(?:gemm|cudnn|fprop|dgrad|wgrad)|"
    r"[a-z]\d+x\d+x\d+(?:gemm|fprop|dgrad|wgrad)|"  # cutlass3x_sm90_tensorop_s64x128x16gemm_*
    # Hopper on; cutlass_3x_gemm is vLLM's wrapper, Fp4GemmSm100 FlashInfer's
    r"nvjet|cutlass_?3x|sm(?:9|1\d)\d[a-z]?_xmma|warpgroupsize|MainloopSm(?:9|1\d)\d|[Ss]m(?:90|1\d\d)\w{0,80}gemm|"
    r"[gG]emm_?[sS]m(?:90|1\d\d)|"
    r"w?gmma|hmma|imma|qmma|[^xe]mma_|wmma|tfloat32|tcgen05|umma|"
    r"_MI\d+x\d+|_?xdl|mfma|gtcx|"  # Tensile with MFMA (MI200, MI300), composable kernel, MIOpen igemm
    r"fmha_v2|[mM]arlin|machete|deep_?gemm|fp[48]_gemm|GemmUniversal|flatmm|Flatmm|wvSplitKQ"
)


def by_name(name: str) -> bool | None:
    """Tensor Core use of a gemm, conv or attention kernel, from patterns in its name."""
    if NO_TENSOR_CORE.search(name):
        return False
    if name.startswith(("Cijk_", "Custom_Cijk_")):
        return "_MI" in name and _TENSOR_CORE.search(name) is not None
    return True if _TENSOR_CORE.search(name) else None


TensorCore = bool | Callable[[str], bool | None] | None
FUSED = True


class Entry(Struct, frozen=True):
    """One entry of a table: names that match ``pattern`` are of ``kind``."""

    pattern: re.Pattern[str]
    kind: str
    tensor_core: TensorCore = None
    fused: bool = False
    words: tuple[str, ...] = ()
    """In lower case; every matching name contains one of them. A prefilter for slow patterns without a fixed start."""

    def matches(self, name: str, lower: str) -> bool:
        """Whether the entry matches. ``lower`` is the name in lower case."""
        return (not self.words or any(map(lower.__contains__, self.words))) and self.pattern.search(name) is not None


def entry(pattern: str, kind: str, tensor_core: TensorCore = None, fused: bool = False, words: str = "") -> Entry:
    """An entry from the text of its pattern; ``words`` are separated by spaces."""
    return Entry(re.compile(pattern), kind, tensor_core, fused, tuple(words.split()))
