"""Peak rates of NVIDIA's Blackwell graphics cards."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Source
from traceopt.analyzer.vocabulary.accelerators.row import GPUMAP, INFRA_BOOK, peaks, row

_REGISTRY = "a public hardware registry that names the table"


def _geforce(states: str, read_in: str) -> Source:
    return Source("NVIDIA RTX Blackwell GPU Architecture whitepaper", "V1.1, appendix A", states, read_in)


def _workstation(states: str) -> Source:
    return Source("NVIDIA RTX Blackwell PRO GPU Architecture whitepaper", "v1.0, table 4", states, INFRA_BOOK)


BLACKWELL_RTX = (
    row(
        "RTX 5090",
        r"\bRTX 5090$",
        "sm_120",
        peaks(fp32=104.8, tf32=104.8, fp16=209.5, bf16=209.5, fp8=419, fp4=1676, int8=838),
        1792,
        _geforce(
            "RTX 5090, dense: fp32 and tf32 104.8, fp16 and bf16 with fp32 accumulate 209.5, fp8 with fp32 accumulate "
            "419, fp4 1676 TFLOP/s, int8 838 TOP/s; 1792 GB/s",
            f"{INFRA_BOOK}; {_REGISTRY}",
        ),
    ),
    row(
        "RTX 5080",
        r"\bRTX 5080$",
        "sm_120",
        peaks(fp32=56.3, tf32=56.3, fp16=112.6, bf16=112.6, fp8=225.1, fp4=900.4, int8=450.2),
        960,
        _geforce(
            "RTX 5080, dense: fp32 and tf32 56.3, fp16 and bf16 with fp32 accumulate 112.6, fp8 with fp32 accumulate "
            "225.1, fp4 900.4 TFLOP/s, int8 450.2 TOP/s; 960 GB/s",
            f"{_REGISTRY}; {GPUMAP} (rounded)",
        ),
    ),
    row(
        "RTX 5070 Ti",
        r"\bRTX 5070 Ti$",
        "sm_120",
        peaks(fp32=43.9, tf32=43.9, fp16=87.9, bf16=87.9, fp8=175.8, fp4=703, int8=351.5),
        896,
        _geforce(
            "RTX 5070 Ti, dense: fp32 and tf32 43.9, fp16 and bf16 with fp32 accumulate 87.9, fp8 with fp32 accumulate "
            "175.8, fp4 703 TFLOP/s, int8 351.5 TOP/s; 896 GB/s",
            f"{_REGISTRY}; {GPUMAP} (rounded)",
        ),
    ),
    row(
        "RTX PRO 6000 Blackwell Max-Q",
        r"\bRTX PRO 6000 Blackwell Max-Q\b",
        "sm_120",
        peaks(fp32=109.7, fp16=438.9, bf16=438.9, fp8=877.9),
        1792,
        _workstation(
            "RTX PRO 6000 Blackwell Max-Q, dense: fp32 109.7, fp16 and bf16 438.9, fp8 877.9 TFLOP/s; 1792 GB/s"
        ),
    ),
    row(
        "RTX PRO 6000 Blackwell Workstation",
        r"\bRTX PRO 6000 Blackwell Workstation\b",
        "sm_120",
        peaks(fp32=126, tf32=251.9, fp16=503.8, bf16=503.8, fp8=1007.6, fp4=2015.2, int8=1007.6),
        1792,
        _workstation(
            "RTX PRO 6000 Blackwell Workstation, dense: fp32 126, tf32 251.9, fp16 and bf16 503.8, fp8 1007.6, fp4 "
            "2015.2 TFLOP/s, int8 1007.6 TOP/s; 1792 GB/s"
        ),
        unverified=("fp8", "int8"),
    ),
    row(
        "RTX PRO 6000 Blackwell Server",
        r"\bRTX PRO 6000 Blackwell Server\b",
        "sm_120",
        peaks(fp32=120, tf32=250, fp16=500, bf16=500, fp8=1000, fp4=2000),
        1597,
        Source(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet",
            "December 2025",
            "fp32 120 TFLOP/s; 1597 GB/s; fp4 4, fp8 2, fp16 and bf16 1 PFLOP/s and tf32 500 TFLOP/s with no word on "
            "sparsity, which the architecture implies: dense 2000, 1000, 500 and 250",
            "a public review of GPU specifications (2026-09-07) that cites the datasheet's page",
        ),
        unverified=("tf32", "fp16", "bf16", "fp8", "fp4"),
    ),
)
