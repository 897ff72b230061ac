"""Element types and operand alignment from kernel names."""

from __future__ import annotations

import re

_TEMPLATE_TYPES = re.compile(
    r"(?i:bfloat16|bf16)|DF16b|Half\b|half_t|__half|_half\b|fp16|DF16_|double(?!\))|float(?!8|4)"
)
ALIGN = re.compile(r"_align(\d{1,2})(?!\d)")
_XMMA_TYPES = re.compile(
    r"_((?:bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|u8))(?:bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|i32|u8)(?=_)"
)
_CIJK_TYPE = re.compile(r"Cijk_A[il]{2}k_B[jl]{2}k_(\w{1,3}?)(?=_)(?:_(\w{1,3}?)(?=_))?")
_DTYPE_MARKS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), dtype)
    for pattern, dtype in (
        (r"e4m3|e5m2|(?<![a-z\d])f8(?![a-z\d])|f8f8|(?i:fp8|float_?8|float_e)|nvjet_(?:sm\d+_)?[qr]", "fp8"),
        (r"tf32|tfloat32|xf32", "tf32"),
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


def product_dtype(name: str) -> str | None:
    """Operand type of a gemm, conv or attention kernel."""
    if "Cijk_" in name:
        match = _CIJK_TYPE.search(name)
        if match is None:
            return None
        if match[1].startswith("S") and (match[2] or "").startswith("MX"):
            return "tf32"  # hipBLASLt "S_MX": FP32 operands, xf32 products (MI300)
        return _CIJK_DTYPE.get(match[1][0])
    if "xmma_" in name:
        groups = _XMMA_TYPES.findall(name)
        if groups:  # sm80_xmma_gemm_f32f32_tf32f32_f32: storage types, then the operand types
            operand: str = groups[min(1, len(groups) - 1)]
            return _XMMA_DTYPE.get(operand, operand)
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
