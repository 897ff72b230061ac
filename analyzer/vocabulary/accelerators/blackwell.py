"""Peak rates of NVIDIA's Blackwell GPUs of data centers, and of the modules that carry one."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Source
from traceopt.analyzer.vocabulary.accelerators.row import EXEMPLAR, INFRA_BOOK, peaks, row

_FACT_SHEETS = "public fact sheets on B200 and B300 (2026-09-16) that name the document's pages"
_HGX = "fibermall.com, which prints NVIDIA's table of HGX B300 and HGX B200"


def _hgx(states: str) -> Source:
    return Source("NVIDIA HGX Platform, specifications", "2025", states, f"{_HGX}; {EXEMPLAR}")


def _nvl72(name: str, states: str, read_in: str) -> Source:
    return Source(f"NVIDIA {name} NVL72, specifications", "2025", states, read_in)


BLACKWELL = (
    row(
        "GB200",
        r"\bGB200\b",
        "sm_100",
        peaks(fp32=80, tf32=1250, fp16=2500, bf16=2500, fp8=5000, fp4=10000, int8=5000, fp64=40),
        8000,
        _nvl72(
            "GB200",
            "superchip of two GPUs: fp4 20 PFLOP/s dense; with sparsity fp8 20, fp16 and bf16 10, tf32 5 PFLOP/s, int8 "
            "20 POP/s; fp32 160, fp64 80 TFLOP/s; 16 TB/s; NVLink 3.6 TB/s. A GPU, dense: fp4 10000, fp8 and int8 "
            "5000, fp16 and bf16 2500, tf32 1250, fp32 80, fp64 40 TFLOP/s; 8000 GB/s; NVLink 1800 GB/s. "
            "(NVIDIA's own MFU takes bf16 2450, fp8 4900, fp4 9800.)",
            f"{INFRA_BOOK}; {EXEMPLAR}",
        ),
        link=1800,
    ),
    row(
        "B200",
        r"\bB200\b",
        "sm_100",
        peaks(fp32=75, tf32=1125, fp16=2250, bf16=2250, fp8=4500, fp4=9000, int8=4500, fp64=37),
        7700,
        Source(
            "NVIDIA Blackwell datasheet",
            "4204213, October 2025",
            "HGX B200 GPU, dense: fp4 9000, fp8 4500, int8 4500, fp32 75, fp64 37 TFLOP/s; 7700 GB/s; NVLink 1800 GB/s",
            _FACT_SHEETS,
        ),
        _hgx("eight B200 GPUs, with sparsity: fp16 and bf16 36, tf32 18 PFLOP/s, so a GPU 2250 and 1125 TFLOP/s dense"),
        link=1800,
    ),
    row(
        "B100",
        r"\bB100\b",
        "sm_100",
        peaks(tf32=900, fp16=1750, bf16=1750, fp8=3500, fp4=7000, int8=3500, fp64=30),
        8000,
        Source(
            "NVIDIA Blackwell Architecture Technical Brief",
            "v1, preliminary, March 2024",
            "HGX B100 GPU, with sparsity: fp4 14, fp8 7, fp16 and bf16 3.5, tf32 1.8 PFLOP/s, int8 7 POP/s; so dense "
            "7000, 3500, 1750, 900 and 3500; fp64 30 TFLOP/s; 8000 GB/s; NVLink 1800 GB/s",
            "a public course on AI systems, which prints the table",
        ),
        link=1800,
    ),
    row(
        "GB300",
        r"\bGB300\b",
        "sm_103",
        peaks(fp32=80, tf32=1250, fp16=2500, bf16=2500, fp8=5000, fp4=15000, fp64=1.4),
        8000,
        _nvl72(
            "GB300",
            "72 GPUs, with sparsity: fp8 720, fp16 and bf16 360, tf32 180 PFLOP/s; dense fp4 1080 PFLOP/s; 576 TB/s; "
            "NVLink 130 TB/s. A GPU, dense: fp4 15000, fp8 5000, fp16 and bf16 2500, tf32 1250, fp32 80, fp64 1.4 "
            "TFLOP/s; 8000 GB/s; NVLink 1800 GB/s. (NVIDIA's own MFU takes bf16 2450, fp8 4900, fp4 14700.)",
            f"stas00/ml-engineering, compute/accelerator; glennklockwood.com, B300; {EXEMPLAR}",
        ),
        link=1800,
        unverified=("fp32", "fp64"),
    ),
    row(
        "B300",
        r"\bB300\b",
        "sm_103",
        peaks(fp32=75, tf32=1125, fp16=2250, bf16=2250, fp8=4500, fp4=13500, int8=150, fp64=1.2),
        8000,
        _hgx(
            "eight B300 GPUs, with sparsity: fp8 72, fp16 and bf16 36, tf32 18 PFLOP/s; dense fp4 108 PFLOP/s; fp32 "
            "600 TFLOP/s; so a GPU, dense: fp4 13500, fp8 4500, fp16 and bf16 2250, tf32 1125, fp32 75 TFLOP/s; NVLink "
            "1800 GB/s"
        ),
        Source(
            "NVIDIA Blackwell Architecture Technical Brief",
            "v2.1, table 3",
            "HGX B300 GPU: int8 150 TOP/s dense, fp64 1.2 TFLOP/s",
            _FACT_SHEETS,
        ),
        Source(
            "NVIDIA HGX AI Factory reference architecture, components",
            "",
            "B300 SXM of 288 GB: up to 8000 GB/s",
            _FACT_SHEETS,
        ),
        link=1800,
    ),
    row(
        "GB10",
        r"\bGB10\b",
        "sm_121",
        peaks(fp4=500),
        273,
        Source(
            "NVIDIA DGX Spark, specifications",
            "",
            "fp4 1 PFLOP/s with sparsity, so 500 TFLOP/s dense, and no other type; 273 GB/s",
            "ai-dynamo/aiconfigurator, src/aiconfigurator/systems/gb10.yaml",
        ),
    ),
    row(
        "Jetson T5000 (Thor)",
        r"\bThor\b",
        "sm_110",
        peaks(fp16=258.5, fp8=517, fp4=1035, int8=517),
        273,
        Source(
            "NVIDIA Jetson AGX Thor developer kit, specifications",
            "",
            "T5000 of 128 GB: fp4 2070 TFLOP/s with sparsity, so 1035 dense; fp8 517 dense; int8 1035 TOP/s with "
            "sparsity, so 517 dense; fp16 517 with sparsity, so 258.5 dense; 273 GB/s",
            "a Chinese translation of the specifications in a public repository, and three public notes",
        ),
        memory=128,
    ),
)
