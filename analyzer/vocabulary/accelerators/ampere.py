"""Peak rates of NVIDIA's Ampere GPUs."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Source
from traceopt.analyzer.vocabulary.accelerators.row import GPUMAP, INFRA_BOOK, LIGHTNING, TENSORRT_LLM, peaks, row

_A100_RATES = peaks(fp32=19.5, tf32=156, fp16=312, bf16=312, int8=624, fp64=19.5)
_DENSE_A100 = "dense: fp32 and Tensor Core fp64 19.5, tf32 156, fp16 and bf16 312 TFLOP/s, int8 624 TOP/s"
# The copies that were read state these for an A800; the rest of its row is the A100's.
_A800_UNVERIFIED = ("fp32", "tf32", "fp64")


def _a100(states: str) -> Source:
    return Source(
        "NVIDIA A100 Tensor Core GPU datasheet",
        "1758950 r4",
        f"{_DENSE_A100}; {states}",
        f"{TENSORRT_LLM}; {LIGHTNING}; NVIDIA developer blog on Ampere, table of GPUs",
    )


def _a800(states: str) -> Source:
    return Source(
        "NVIDIA A800 Tensor Core GPU datasheet",
        "",
        f"as A100, {_DENSE_A100}; NVLink 400 GB/s; {states}",
        "citsjtu2020/LLM-Prof, hardware_spec.md (fp16, int8, bandwidth, NVLink)",
    )


def _geforce(states: str, read_in: str) -> Source:
    return Source("NVIDIA Ampere GA102 GPU Architecture whitepaper", "V1", states, read_in)


AMPERE = (
    row(
        "A100 80GB PCIe",
        r"\bA100[- ]?(?:80GB[- ]PCIe|PCIE?-80GB)",
        "sm_80",
        _A100_RATES,
        1935,
        _a100("80 GB PCIe: 1935 GB/s"),
        memory=80,
    ),
    row(
        "A100 SXM 80GB",
        r"\bA100-(?:SXM4?-80GB|PG)",
        "sm_80",
        _A100_RATES,
        2039,
        _a100("80 GB SXM: 2039 GB/s, NVLink 600 GB/s"),
        memory=80,
        link=600,
    ),
    row(
        "A100 40GB PCIe",
        r"\bA100[- ]?(?:40GB[- ]PCIe|PCIE?-40GB)",
        "sm_80",
        _A100_RATES,
        1555,
        _a100("40 GB PCIe: 1555 GB/s"),
        memory=40,
    ),
    row(
        "A100 SXM 40GB",
        r"\bA100-(?:SXM4?-40GB|PG)",
        "sm_80",
        _A100_RATES,
        1555,
        _a100("40 GB SXM: 1555 GB/s, NVLink 600 GB/s"),
        memory=40,
        link=600,
    ),
    row(
        "A800 SXM 80GB",
        r"\bA800-SXM4?-80GB",
        "sm_80",
        _A100_RATES,
        2039,
        _a800("80 GB SXM: 2039 GB/s"),
        memory=80,
        link=400,
        unverified=_A800_UNVERIFIED,
    ),
    row(
        "A800 80GB PCIe",
        r"\bA800[- ]?(?:80GB[- ]PCIe|PCIE?-80GB)",
        "sm_80",
        _A100_RATES,
        1935,
        _a800("80 GB PCIe: 1935 GB/s"),
        memory=80,
        link=400,
        unverified=_A800_UNVERIFIED,
    ),
    row(
        "A800 40GB Active",
        r"\bA800 40GB Active",
        "sm_80",
        peaks(fp32=19.5, tf32=155.9, fp16=311.9, bf16=311.9, int8=623.5, fp64=9.7),
        1555.2,
        Source(
            "NVIDIA A800 40GB Active product page and datasheet",
            "",
            "40 GB: fp64 9.7, fp32 19.5 TFLOP/s; int8 1247 TOP/s with sparsity, so 623.5 dense; 1555.2 GB/s; "
            "peak Tensor performance 623.8 TFLOP/s of no stated type, read as fp16 with sparsity: fp16 and bf16 311.9, "
            "tf32 155.9 dense",
            INFRA_BOOK,
        ),
        memory=40,
        unverified=("tf32", "fp16", "bf16"),
    ),
    row(
        "A30",
        r"\bA30\b",
        "sm_80",
        peaks(fp32=10.3, tf32=82, fp16=165, bf16=165, int8=330, fp64=10.3),
        933,
        Source(
            "NVIDIA A30 Tensor Core GPU datasheet",
            "",
            "dense: fp32 and Tensor Core fp64 10.3, tf32 82, fp16 and bf16 165 TFLOP/s, int8 330 TOP/s; 933 GB/s",
            f"{TENSORRT_LLM}; {GPUMAP}",
        ),
    ),
    row(
        "A10G",
        r"\bA10G\b",
        "sm_86",
        peaks(fp32=35, tf32=35, fp16=70, bf16=70, int8=140),
        600,
        Source(
            "NVIDIA A10G datasheet for AWS",
            "2022-02-17",
            "dense: fp32 and tf32 35, fp16 and bf16 70 TFLOP/s, int8 140 TOP/s; 600 GB/s",
            f"{TENSORRT_LLM}; several public tables that link the datasheet",
        ),
    ),
    row(
        "A10",
        r"\bA10\b",
        "sm_86",
        peaks(fp32=31.2, tf32=62.5, fp16=125, bf16=125, int8=250),
        600,
        Source(
            "NVIDIA A10 Tensor Core GPU datasheet",
            "",
            "dense: fp32 31.2, tf32 62.5, fp16 and bf16 125 TFLOP/s, int8 250 TOP/s; 600 GB/s",
            f"{TENSORRT_LLM}; {GPUMAP}",
        ),
    ),
    row(
        "A40",
        r"\bA40\b",
        "sm_86",
        peaks(fp32=37.4, tf32=74.8, fp16=149.7, bf16=149.7, int8=299.3),
        696,
        Source(
            "NVIDIA A40 datasheet",
            "",
            "dense: fp32 37.4, tf32 74.8, fp16 and bf16 149.7 TFLOP/s, int8 299.3 TOP/s; 696 GB/s",
            f"astroC86/gpu-datasheet, README.md; {GPUMAP}",
        ),
    ),
    row(
        "RTX A6000",
        r"\bRTX A6000\b",
        "sm_86",
        peaks(fp32=38.7, tf32=77.4, fp16=154.8, bf16=154.8, int8=309.7),
        768,
        Source(
            "NVIDIA RTX Blackwell PRO GPU Architecture whitepaper",
            "v1.0, table 4",
            "RTX A6000, dense: fp32 38.7, tf32 77.4, fp16 and bf16 with fp32 accumulate 154.8 TFLOP/s",
            INFRA_BOOK,
        ),
        Source(
            "NVIDIA Ampere GA102 GPU Architecture whitepaper",
            "V2",
            "RTX A6000: int8 309.7 TOP/s; 768 GB/s",
            "two public notes that quote table and numbers",
        ),
    ),
    row(
        "RTX 3080",
        r"\bRTX 3080$",
        "sm_86",
        peaks(fp32=29.8, tf32=29.8, fp16=59.5, bf16=59.5, int8=238),
        760,
        _geforce(
            "RTX 3080 of 10 GB, dense: fp32 and tf32 29.8, fp16 and bf16 with fp32 accumulate 59.5 TFLOP/s, int8 238 "
            "TOP/s; 760 GB/s",
            GPUMAP,
        ),
        memory=10,
    ),
    row(
        "RTX 3090 Ti",
        r"\bRTX 3090 Ti$",
        "sm_86",
        peaks(fp32=40, tf32=40, fp16=80, bf16=80, int8=320),
        1008,
        Source(
            "NVIDIA Ada GPU Architecture whitepaper",
            "v2.1, appendix A",
            "RTX 3090 Ti, dense: fp32 and tf32 40, fp16 and bf16 with fp32 accumulate 80 TFLOP/s, int8 320 TOP/s; "
            "1008 GB/s",
            GPUMAP,
        ),
    ),
    row(
        "RTX 3090",
        r"\bRTX 3090$",
        "sm_86",
        peaks(fp32=35.6, tf32=35.6, fp16=71.2, bf16=71.2, int8=284.7),
        936,
        _geforce(
            "RTX 3090, dense: fp32 and tf32 35.6, fp16 and bf16 with fp32 accumulate 71.2 TFLOP/s, int8 284.7 TOP/s; "
            "936 GB/s",
            "two public analyses that quote the appendix",
        ),
        unverified=("tf32", "int8"),
    ),
)
