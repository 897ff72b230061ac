"""Peak rates of AMD's Radeon cards that ROCm supports. What the rules know of matrix cores is of Instinct alone."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Source
from traceopt.analyzer.vocabulary.accelerators.row import peaks, row

_TABLES = "two public tables that link the page"

RADEON = (
    row(
        "Radeon RX 7900 XTX",
        r"\bRX 7900 XTX\b",
        "gfx1100",
        peaks(fp32=61.4, fp16=123, bf16=123, int8=123),
        960,
        Source(
            "AMD Radeon RX 7900 XTX, specifications",
            "",
            "fp32 61.4, fp16 matrix 123 TFLOP/s, int8 matrix 123 TOP/s, bf16 as fp16; 960 GB/s",
            _TABLES,
        ),
        unverified=("fp32", "bf16", "hbm_gb_per_s"),
    ),
    row(
        "Radeon PRO W7900",
        r"\bW7900\b",
        "gfx1100",
        peaks(fp32=61.3, fp16=123, bf16=123, int8=123),
        864,
        Source(
            "AMD Radeon PRO W7900, specifications",
            "",
            "fp32 61.3, fp16 matrix 123 TFLOP/s, int8 matrix 123 TOP/s, bf16 as fp16; 864 GB/s",
            _TABLES,
        ),
        unverified=("bf16",),
    ),
    row(
        "Radeon RX 9070 XT",
        r"\bRX 9070 XT\b",
        "gfx1201",
        peaks(fp32=48.7, fp16=195, bf16=195, fp8=389, int8=389),
        640,
        Source(
            "AMD Radeon RX 9070 XT, specifications",
            "",
            "dense: fp32 48.7, fp16 matrix 195, fp8 matrix 389 TFLOP/s, int8 matrix 389 TOP/s, bf16 as fp16; 640 GB/s",
            _TABLES,
        ),
        unverified=("bf16",),
    ),
    row(
        "Radeon AI PRO R9700",
        r"\bR9700\b",
        "gfx1201",
        peaks(fp16=191, bf16=191, fp8=383, int8=383),
        640,
        Source(
            "AMD Radeon AI PRO R9700, specifications",
            "",
            "dense matrix rates: fp16 and bf16 191, fp8 383 TFLOP/s, int8 383 TOP/s; 640 GB/s",
            "two public notes that link the page",
        ),
    ),
)
