"""Element types and operand alignment from kernel names."""

from __future__ import annotations

import re

_TEMPLATE_TYPES = re.compile(
    r"(?i:bfloat16|bf16)|DF16b|Half\b|half_t|__half|_half\b|fp16|DF16_|(?<=lambda\()double|double(?!\))|float(?!8|4)"
)
ALIGN = re.compile(r"_align(\d{1,2})(?!\d)")
_XMMA_TYPES = re.compile(
    r"_((?:bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|u8))(?:bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|i32|u8)(?=_)"
)
_CIJK_TYPE = re.compile(r"Cijk_A[il]{2}k_B[jl]{2}k_(\w{1,8}?)(?=_)(?:_(\w{1,3}?)(?=_))?")
# Names that spell the type of both operands. The result has its own type, which says nothing about the product.
_TWO_OPERANDS: tuple[re.Pattern[str], ...] = (
    # CUTLASS 3: ...gemm_<A>_<B>_<accumulator>_<C>_<result>, with types of scales ..._ue8m0xf4_ue8m0xf4_... (H100, B200)
    re.compile(
        r"cutlass3x_\w{0,80}?gemm_(?:block_scaled_)?(?:ue\dm\dx)?([a-z]{1,2}\d{1,2}(?:m\d)?)_"
        r"(?:ue\dm\dx)?([a-z]{1,2}\d{1,2}(?:m\d)?)_"
    ),
    # TensorRT-LLM: bmm_<result>_<A><B>_Fp32_..., bmm_Bfloat16_MxE2m1MxE4m3_Fp32_... (B200)
    re.compile(r"^(?:bmm|gemm)_[A-Za-z\d]{3,10}_([A-Z]\w{2,26}?)_Fp32_"),
    # TensorRT-LLM: fmhaSm100fKernel_QkvE4m3OBfloat16..., ..._QBfloat16KvE4m3OBfloat16... (B200)
    re.compile(r"fmhaSm\w{0,8}Kernel_Q(\w{2,30}?)O(?=Bf|Fp|E[245])"),
    # triton_kernels: _matmul_ogs_NNT_<result>x<A>x<B>_..., bf16xbf16xmxfp4 (MI300X)
    re.compile(r"matmul_(?:ogs_)?[NT]{3}_(?:mx)?[a-z]+\d\w{0,4}?x((?:mx)?[a-z]+\d{1,2}\w{0,4}?x(?:mx)?[a-z]+\d{1,2})"),
)
_OPERAND_TYPE = re.compile(
    r"(?i:bfloat16|bf16|tf32|fp16|fp32|int8|e4m3|e5m2|fp8|e2m1|fp4)|(?<![a-z\d])(?:f16|f32|f64|f8|f4|s8|u8)(?![a-z\d])"
)
_OPERAND_DTYPE = {
    "bfloat16": "bf16",
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    **dict.fromkeys(("e4m3", "e5m2", "f8"), "fp8"),
    **dict.fromkeys(("s8", "u8"), "int8"),
    **dict.fromkeys(("e2m1", "f4"), "fp4"),
}
_WIDEST_FIRST = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
# The first mark decides. Wider types come first where a name holds two: operands of 8 and 4 bits are multiplied at the
# rate of 8 bits. "ue4m3" and "ue8m0" are types of scales.
_DTYPE_MARKS: tuple[tuple[re.Pattern[str], str | None], ...] = tuple(
    (re.compile(pattern), dtype)
    for pattern, dtype in (
        (r"a16_?w?fp4", None),  # aiter: 16-bit activations of either type
        (
            r"(?<!u)e4m3|e5m2|E4m3|E5m2|(?<![a-z\d])f8(?![a-z\d])|f8f8|(?i:fp8|float_?8(?!_e8m0))|float_e[345]|"
            r"a8w?fp4|nvjet_(?:sm\d+_)?[qr]",
            "fp8",
        ),
        # cutlass3x ..._ue4m3xf4_ue4m3xf4_..., nvjet ..._ootst_..._Avec16UE4M3, aiter f4gemm, FlashInfer Fp4Gemm
        (r"(?i:e2m1|fp4)|xf4_|(?<![a-z\d])f4(?![a-z\d])|f4gemm|(?:nv|mx)_float4|UE4M3|nvjet_(?:sm\d+_)?o", "fp4"),
        (r"tf32|tfloat32|xf32", "tf32"),
        (r"i8gemm|gemm\w{0,20}<signed char", "int8"),  # aiter, vLLM
        (r"(?i:bf16|bfloat16)|DF16b|nvjet_(?:sm\d+_)?t|_xdl.{0,400}?[IE_]t{2,3}f", "bf16"),
        (
            r"(?<![a-z\d])f16(?![a-z\d])|fp16|(?i:half(?:_t)?)\b|DF16_|[a-z]16816f16|h\d{3,5}(?:gemm|cudnn)|nvjet_(?:sm\d+_)?h",
            "fp16",
        ),
        (r"(?<![A-Za-z\d])[ius]8(?![A-Za-z\d])|i8816|i16832|imma|(?i:int8)", "int8"),
        (r"[a-z_]d\d{3,5}gemm|dgemm|(?<![a-z\d])f64|double", "fp64"),
        (
            r"tensorop_s1688(?:gemm|fprop|dgrad|wgrad)",
            "tf32",
        ),  # no type named: FP32 in, TF32 on A100 and later
        (r"(?<![a-z\d])f32|fp32|[sg]c?gemm|scudnn|float|nvjet_(?:sm\d+_)?s", "fp32"),
    )
)
_XMMA_DTYPE = {
    "f16": "fp16",
    "f32": "fp32",
    "f64": "fp64",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "i8": "int8",
    "u8": "int8",
}
_CIJK_DTYPE = {
    "S": "fp32",
    "D": "fp64",
    "H": "fp16",
    "B": "bf16",
    "F": "fp8",
    "I": "int8",
    "4": "int8",
    "X": "tf32",
}
_CIJK_NARROW = {"F4": "fp4", "F6": None, "F8": "fp8"}


def product_dtype(name: str) -> str | None:
    """Type in which a gemm, conv or attention kernel multiplies: of two operands the wider."""
    if "Cijk_" in name:
        match = _CIJK_TYPE.search(name)
        if match is None:
            return None
        if match[1][:2] in _CIJK_NARROW:
            return _CIJK_NARROW[match[1][:2]]
        if match[1].startswith("S") and (match[2] or "").startswith("MX"):
            return "tf32"  # hipBLASLt "S_MX": FP32 operands, xf32 products (MI300)
        return _CIJK_DTYPE.get(match[1][0])
    if "xmma_" in name:
        groups = _XMMA_TYPES.findall(name)
        if groups:  # sm80_xmma_gemm_f32f32_tf32f32_f32: storage types, then the operand types
            operand: str = groups[min(1, len(groups) - 1)]
            return _XMMA_DTYPE.get(operand, operand)
    for pattern in _TWO_OPERANDS:
        if operands := pattern.search(name):
            texts = (text.lower() for text in _OPERAND_TYPE.findall("_".join(operands.groups())))
            return min((_OPERAND_DTYPE.get(text, text) for text in texts), key=_WIDEST_FIRST.index, default=None)
    for pattern, dtype in _DTYPE_MARKS:
        if pattern.search(name):
            return dtype
    return None


def element_dtype(name: str) -> str | None:
    """Element type of other kernels: a 16-bit floating type anywhere in the name, else the first floating type."""
    types = [match.lower() for match in _TEMPLATE_TYPES.findall(name)]
    if any("bf" in text or text == "df16b" for text in types):
        return "bf16"
    if any("half" in text or "16" in text for text in types):
        return "fp16"
    wide = [text for text in types if text in ("float", "double")]
    return {"float": "fp32", "double": "fp64"}[wide[0]] if wide else None
