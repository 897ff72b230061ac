"""Peak rates of NVIDIA's Hopper GPUs."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Source
from traceopt.analyzer.vocabulary.accelerators.row import INFRA_BOOK, LIGHTNING, TENSORRT_LLM, peaks, row

_SXM_RATES = peaks(fp32=67, tf32=494.7, fp16=989.4, bf16=989.4, fp8=1978.9, int8=1978.9, fp64=67)
_NVL_RATES = peaks(fp32=60, tf32=417.5, fp16=835.5, bf16=835.5, fp8=1670.5, int8=1670.5, fp64=60)
_WITH_SPARSITY = "with sparsity tf32 835, fp16 and bf16 1671, fp8 and int8 3341, so dense 417.5, 835.5 and 1670.5"
_GH100 = Source(
    "NVIDIA H100 Tensor Core GPU Architecture whitepaper",
    "table 3",
    "H100 SXM5, dense: tf32 494.7, fp16 and bf16 989.4, fp8 1978.9 TFLOP/s, int8 1978.9 TOP/s",
    INFRA_BOOK,
)
_CHINA = "NVIDIA table of HGX H20, L20 PCIe and L2 PCIe"


def _h100(states: str, read_in: str) -> Source:
    return Source("NVIDIA H100 Tensor Core GPU datasheet", "", states, read_in)


def _h200(states: str, read_in: str) -> Source:
    return Source("NVIDIA H200 Tensor Core GPU datasheet", "3002446", states, read_in)


def _gh200(states: str) -> Source:
    return Source(
        "NVIDIA GH200 Grace Hopper Superchip datasheet",
        "",
        f"fp32 and Tensor Core fp64 67 TFLOP/s; NVLink 900 GB/s; {states}",
        "NVIDIA's announcement in Chinese (bandwidth); stas00/ml-engineering, compute/accelerator (rates)",
    )


HOPPER = (
    row(
        "H100 PCIe",
        r"\bH100 PCIe",
        "sm_90",
        peaks(fp32=51, tf32=378, fp16=756, bf16=756, fp8=1513, int8=1513, fp64=51),
        2000,
        _h100(
            "80 GB PCIe: fp32 and Tensor Core fp64 51; dense tf32 378, fp16 and bf16 756, fp8 1513 TFLOP/s, int8 1513 "
            "TOP/s; 2000 GB/s",
            f"{TENSORRT_LLM}; {LIGHTNING}",
        ),
        memory=80,
    ),
    row(
        "H100 NVL",
        r"\bH100 NVL\b",
        "sm_90",
        _NVL_RATES,
        3938,
        _h100(
            f"94 GB NVL: fp32 and Tensor Core fp64 60 TFLOP/s; {_WITH_SPARSITY}; NVLink 600 GB/s",
            "pytorch/torchtitan, torchtitan/tools/utils.py (bf16); the H200 NVL has the same rates",
        ),
        Source(
            "NVIDIA H100 NVL GPU product brief",
            "PB-11773-001, table 2",
            "3938 GB/s",
            "several public notes that cite the brief",
        ),
        memory=94,
        link=600,
    ),
    row(
        "H100 SXM",
        r"\bH100 80GB HBM3|\bH100[- ]SXM5?(?:-80GB)?$",
        "sm_90",
        _SXM_RATES,
        3350,
        _h100(
            "80 GB SXM: fp32 and Tensor Core fp64 67 TFLOP/s; 3350 GB/s; NVLink 900 GB/s",
            f"{TENSORRT_LLM}; {LIGHTNING}",
        ),
        _GH100,
        memory=80,
        link=900,
    ),
    row(
        "H800 PCIe",
        r"\bH800 PCIe",
        "sm_90",
        peaks(fp32=51, tf32=378, fp16=756, bf16=756, fp8=1513, int8=1513),
        2000,
        Source(
            "NVIDIA H800 Tensor Core GPU datasheet",
            "",
            "80 GB PCIe, as H100 PCIe: fp32 51; dense tf32 378, fp16 and bf16 756, fp8 1513 TFLOP/s, int8 1513 TOP/s; "
            "2000 GB/s; NVLink 400 GB/s",
            "",
        ),
        memory=80,
        link=400,
        unverified=("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "hbm_gb_per_s", "link_gb_per_s"),
    ),
    row(
        "H800 SXM",
        r"\bH800$",
        "sm_90",
        peaks(fp32=67, tf32=494.7, fp16=989.4, bf16=989.4, fp8=1978.9, int8=1978.9),
        3350,
        Source(
            "NVIDIA H800 Tensor Core GPU datasheet",
            "",
            "80 GB SXM, as H100 SXM but for fp64 and NVLink: fp32 67 TFLOP/s; 3350 GB/s; NVLink 400 GB/s",
            "ai-dynamo/aiconfigurator, src/aiconfigurator/systems/h800_sxm.yaml",
        ),
        _GH100,
        memory=80,
        link=400,
        unverified=("fp32", "tf32"),
    ),
    row(
        "GH200 144GB",
        r"\bGH200 144G",
        "sm_90",
        _SXM_RATES,
        4900,
        _gh200("144 GB of HBM3e: 4900 GB/s"),
        _GH100,
        memory=144,
        link=900,
    ),
    row(
        "GH200 96GB",
        r"\bGH200 (?:480GB|96GB|120GB)",
        "sm_90",
        _SXM_RATES,
        4000,
        _gh200("96 GB of HBM3: 4000 GB/s"),
        _GH100,
        memory=96,
        link=900,
    ),
    row(
        "H200 NVL",
        r"\bH200 NVL\b",
        "sm_90",
        _NVL_RATES,
        4800,
        _h200(
            f"141 GB NVL: fp32 and Tensor Core fp64 60 TFLOP/s; {_WITH_SPARSITY}; 4800 GB/s; NVLink 900 GB/s",
            f"{INFRA_BOOK}; {TENSORRT_LLM}",
        ),
        memory=141,
        link=900,
    ),
    row(
        "H200 SXM",
        r"\bH200$",
        "sm_90",
        _SXM_RATES,
        4800,
        _h200(
            "141 GB SXM: fp32 and Tensor Core fp64 67 TFLOP/s; fp16 and bf16 1979 with sparsity; 4800 GB/s; "
            "NVLink 900 GB/s",
            f"{TENSORRT_LLM}; {INFRA_BOOK}",
        ),
        _GH100,
        memory=141,
        link=900,
    ),
    row(
        "H20-3e",
        r"\bH20-3e\b",
        "sm_90",
        peaks(fp32=44, tf32=74, fp16=148, bf16=148, fp8=296, int8=296),
        4800,
        Source(
            _CHINA,
            "November 2023",
            "H20, dense: fp32 44, tf32 74, fp16 and bf16 148, fp8 296 TFLOP/s, int8 296 TOP/s; NVLink 900 GB/s; with "
            "141 GB of HBM3e 4800 GB/s",
            f"Tom's Hardware, which prints the table; {TENSORRT_LLM}",
        ),
        memory=141,
        link=900,
        unverified=("hbm_gb_per_s",),
    ),
    row(
        "H20",
        r"\bH20\b(?!-)",
        "sm_90",
        peaks(fp32=44, tf32=74, fp16=148, bf16=148, fp8=296, int8=296),
        4000,
        Source(
            _CHINA,
            "November 2023",
            "H20 of 96 GB, dense: fp32 44, tf32 74, fp16 and bf16 148, fp8 296 TFLOP/s, int8 296 TOP/s; 4000 GB/s; "
            "NVLink 900 GB/s",
            f"Tom's Hardware, which prints the table; {TENSORRT_LLM}",
        ),
        memory=96,
        link=900,
    ),
)
