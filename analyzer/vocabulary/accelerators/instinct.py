"""Peak rates of AMD's Instinct accelerators: matrix cores where they take the type. Of two dies, one is a device."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Source
from traceopt.analyzer.vocabulary.accelerators.row import INDUCTOR, ROCM_PAGES, peaks, row

_MI300_RATES = peaks(fp32=163.4, tf32=653.7, fp16=1307.4, bf16=1307.4, fp8=2614.9, int8=2614.9, fp64=163.4)
_DENSE_MI300 = (
    "dense matrix rates: fp64 and fp32 163.4, tf32 653.7, fp16 and bf16 1307.4, fp8 2614.9 TFLOP/s, int8 2614.9 TOP/s"
)

INSTINCT = (
    row(
        "MI100",
        r"\bMI100\b",
        "gfx908",
        peaks(fp32=46.1, fp16=184.6, bf16=92.3, int8=184.6, fp64=11.5),
        1228.8,
        Source(
            "AMD ROCm documentation, AMD Instinct MI100 microarchitecture",
            "",
            "fp64 vector 11.5, fp32 matrix 46.1, fp16 matrix 184.6, bf16 matrix 92.3 TFLOP/s; 4096 bits at "
            "1.2 GHz: 1228.8 GB/s",
            f"{ROCM_PAGES}/mi100.md",
        ),
        Source("AMD Instinct MI100 brochure", "", "int8 184.6 TOP/s; Infinity Fabric 276 GB/s", ""),
        link=276,
        unverified=("int8", "link_gb_per_s"),
    ),
    row(
        "MI210",
        r"\bMI210\b",
        "gfx90a",
        peaks(fp32=45.3, fp16=181, bf16=181, int8=181, fp64=45.3),
        1638.4,
        Source(
            "AMD Instinct MI210 brochure",
            "",
            "64 GB: fp64 and fp32 matrix 45.3 (vector 22.6), fp16 and bf16 matrix 181 TFLOP/s, int8 181 TOP/s; "
            "1638.4 GB/s; Infinity Fabric 300 GB/s",
            f"{INDUCTOR}; {ROCM_PAGES}/mi250.md, whose die is the same",
        ),
        memory=64,
        link=300,
        unverified=("link_gb_per_s",),
    ),
    row(
        "MI250X die",
        r"\bMI250X\b",
        "gfx90a",
        peaks(fp32=47.9, fp16=191.5, bf16=191.5, int8=191.5, fp64=47.9),
        1638.4,
        Source(
            "AMD Instinct MI250X, specifications",
            "",
            "both dies: fp64 and fp32 matrix 95.7, fp16 and bf16 383 TFLOP/s, int8 383 TOP/s, 128 GB, 3276.8 GB/s; so "
            "a die 47.9, 191.5, 64 GB, 1638.4 GB/s",
            "pytorch/torchtitan, torchtitan/tools/utils.py; stas00/ml-engineering, compute/accelerator",
        ),
        memory=64,
        unverified=("fp32", "fp64"),
    ),
    row(
        "MI250 die",
        r"\bMI250\b",
        "gfx90a",
        peaks(fp32=45.3, fp16=181, bf16=181, int8=181, fp64=45.3),
        1638.4,
        Source(
            "AMD ROCm documentation, AMD Instinct MI250 microarchitecture",
            "",
            "both dies: fp64 and fp32 matrix 90.5, fp16 and bf16 362.1 TFLOP/s, int8 362.1 TOP/s, 3.2 TB/s; so a die "
            "of 64 GB 45.3 and 181; 4096 bits at 1.6 GHz: 1638.4 GB/s",
            f"{ROCM_PAGES}/mi250.md",
        ),
        memory=64,
    ),
    row(
        "MI300A",
        r"\bMI300A\b",
        "gfx942",
        peaks(fp32=122.6, tf32=490.3, fp16=980.6, bf16=980.6, fp8=1961.2, int8=1961.2, fp64=122.6),
        5300,
        Source(
            "AMD Instinct MI300A APU data sheet",
            "",
            "dense matrix rates: fp64 and fp32 122.6, tf32 490.3, fp16 and bf16 980.6, fp8 1961.2 TFLOP/s, int8 1961.2 "
            "TOP/s; 5300 GB/s",
            INDUCTOR,
        ),
    ),
    row(
        "MI300X",
        r"\bMI300X\b",
        "gfx942",
        _MI300_RATES,
        5300,
        Source(
            "AMD Instinct MI300X accelerator data sheet",
            "",
            f"192 GB, {_DENSE_MI300}; 5300 GB/s; seven links of 128 GB/s, together 896",
            f"{INDUCTOR}; {ROCM_PAGES}/mi300.md; a public fact sheet on MI300X (2026-09-16) that names pages",
        ),
        memory=192,
        link=896,
    ),
    row(
        "MI325X",
        r"\bMI325X\b",
        "gfx942",
        _MI300_RATES,
        6000,
        Source(
            "AMD Instinct MI325X accelerator data sheet",
            "",
            f"256 GB, as MI300X: {_DENSE_MI300}; 6000 GB/s; seven links of 128 GB/s, together 896",
            "public notes that compare the two data sheets; stas00/ml-engineering, compute/accelerator",
        ),
        memory=256,
        link=896,
    ),
    row(
        "MI350X",
        r"\bMI350X\b",
        "gfx950",
        peaks(fp32=144.2, fp16=2306.9, bf16=2306.9, fp8=4614, fp4=9227.5, int8=4614, fp64=72.1),
        8000,
        Source(
            "AMD Instinct MI350X GPU brochure",
            "LE-92701-00 C, September 2025",
            "288 GB, dense: fp64 72.1, fp32 144.2, fp8 4614 TFLOP/s, int8 4614 TOP/s, mxfp4 9227.5 TFLOP/s; 8000 GB/s; "
            "seven links of 153.6 GB/s, together 1075.2",
            "a public fact sheet on MI350X (2026-09-23) that names pages",
        ),
        Source(
            "AMD CDNA 4 Architecture whitepaper",
            "tables 1 and 2",
            "256 units of 4096 FLOP a cycle at 2.2 GHz: fp16 and bf16 2306.9 TFLOP/s (the brochure prints 2309.6)",
            "a public fact sheet on MI350X (2026-09-23) that names pages",
        ),
        memory=288,
        link=1075.2,
    ),
    row(
        "MI355X",
        r"\bMI355X\b",
        "gfx950",
        peaks(fp32=157.3, fp16=2516.6, bf16=2516.6, fp8=5033.2, fp4=10066.3, int8=5033.2, fp64=78.6),
        8000,
        Source(
            "AMD Instinct MI355X GPU brochure",
            "LE-92703-00, October 2025",
            "288 GB, dense: fp64 78.6, fp32 157.3, fp16 and bf16 2516.6, fp8 5033.2 TFLOP/s, int8 5033.2 TOP/s, mxfp4 "
            "10066.3 TFLOP/s; 8000 GB/s; seven links of 153.6 GB/s, together 1075.2",
            "a public fact sheet on MI355X (2026-09-23) that names pages",
        ),
        memory=288,
        link=1075.2,
    ),
)
