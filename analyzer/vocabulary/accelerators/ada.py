"""Peak rates of NVIDIA's Ada GPUs."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Source
from traceopt.analyzer.vocabulary.accelerators.row import GPUMAP, INDUCTOR, INFRA_BOOK, TENSORRT_LLM, peaks, row


def _geforce(states: str, read_in: str) -> Source:
    return Source("NVIDIA Ada GPU Architecture whitepaper", "v2.1, appendix A", states, read_in)


ADA = (
    row(
        "RTX 4080",
        r"\bRTX 4080$",
        "sm_89",
        peaks(fp32=48.7, tf32=48.7, fp16=97.5, bf16=97.5, fp8=194.9, int8=389.9),
        717,
        _geforce(
            "RTX 4080 of 16 GB, dense: fp32 and tf32 48.7, fp16 and bf16 with fp32 accumulate 97.5, fp8 with fp32 "
            "accumulate 194.9 TFLOP/s, int8 389.9 TOP/s; 717 GB/s",
            GPUMAP + " (rounded)",
        ),
        memory=16,
        unverified=("fp8",),
    ),
    row(
        "RTX 4090",
        r"\bRTX 4090$",
        "sm_89",
        peaks(fp32=82.6, tf32=82.6, fp16=165.2, bf16=165.2, fp8=330.3, int8=660.6),
        1008,
        _geforce(
            "RTX 4090, dense: fp32 and tf32 82.6, fp16 and bf16 with fp32 accumulate 165.2, fp8 with fp32 accumulate "
            "330.3 TFLOP/s, int8 660.6 TOP/s; 1008 GB/s",
            f"{INFRA_BOOK}; a public kernel benchmark that quotes the appendix",
        ),
    ),
    row(
        "RTX 6000 Ada",
        r"\bRTX 6000 Ada\b",
        "sm_89",
        peaks(fp32=91.1, tf32=182.1, fp16=364, bf16=364, fp8=728.5, int8=728.5),
        960,
        Source(
            "NVIDIA RTX Blackwell PRO GPU Architecture whitepaper",
            "v1.0, table 4",
            "RTX 6000 Ada, dense: fp32 91.1, tf32 182.1, fp16 and bf16 364, fp8 with fp32 accumulate 728.5 TFLOP/s, "
            "int8 728.5 TOP/s; 960 GB/s",
            f"{INFRA_BOOK}; {GPUMAP} (int8)",
        ),
    ),
    row(
        "L4",
        r"\bL4\b",
        "sm_89",
        peaks(fp32=30.3, tf32=60, fp16=121, bf16=121, fp8=242.5, int8=242.5),
        300,
        Source(
            "NVIDIA L4 Tensor Core GPU datasheet",
            "2595652",
            "fp32 30.3 TFLOP/s; with sparsity tf32 120, fp16 and bf16 242, fp8 and int8 485, so dense 60, 121 and "
            "242.5; 300 GB/s",
            f"{INDUCTOR}; {TENSORRT_LLM}",
        ),
    ),
    row(
        "L20",
        r"\bL20\b",
        "sm_89",
        peaks(fp32=59.8, tf32=59.8, fp16=119.5, bf16=119.5, fp8=239, int8=239),
        864,
        Source(
            "NVIDIA table of HGX H20, L20 PCIe and L2 PCIe",
            "November 2023",
            "L20, dense: fp32 and tf32 59.8, fp16 and bf16 119.5 TFLOP/s, fp8 and int8 239; 864 GB/s",
            f"{TENSORRT_LLM}; Tom's Hardware, which prints the table",
        ),
    ),
    row(
        "L40S",
        r"\bL40S\b",
        "sm_89",
        peaks(fp32=91.6, tf32=183, fp16=362, bf16=362, fp8=733, int8=733),
        864,
        Source(
            "NVIDIA L40S datasheet",
            "",
            "dense: fp32 91.6, tf32 183, fp16 and bf16 362, fp8 733 TFLOP/s, int8 733 TOP/s; 864 GB/s",
            f"{TENSORRT_LLM}; stas00/ml-engineering, compute/accelerator (fp32)",
        ),
    ),
    row(
        "L40",
        r"\bL40\b",
        "sm_89",
        peaks(fp32=90.5, tf32=90.5, fp16=181, bf16=181, fp8=362, int8=362),
        864,
        Source(
            "NVIDIA L40 datasheet",
            "",
            "dense: fp32 and tf32 90.5, fp16 and bf16 181, fp8 362 TFLOP/s, int8 362 TOP/s; 864 GB/s",
            f"{TENSORRT_LLM}; {GPUMAP}",
        ),
    ),
)
