"""Peak rates of NVIDIA's Volta and Turing GPUs."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Source
from traceopt.analyzer.vocabulary.accelerators.row import LIGHTNING, peaks, row


def _v100(states: str) -> Source:
    return Source(
        "NVIDIA V100 Tensor Core GPU datasheet",
        "1165301 r5, January 2020",
        states,
        LIGHTNING + " (rates); NVIDIA developer blog on Ampere, table of GPUs (bandwidth)",
    )


VOLTA_TURING = (
    row(
        "V100S PCIe",
        r"\bV100S",
        "sm_70",
        peaks(fp32=16.4, fp16=130, fp64=8.2),
        1134,
        _v100("V100S PCIe: fp64 8.2, fp32 16.4, Tensor Core fp16 130 TFLOP/s; 1134 GB/s"),
    ),
    row(
        "V100 FHHL",
        r"\bV100-FHHL",
        "sm_70",
        peaks(fp32=13, fp16=105),
        830,
        Source(
            "NVIDIA Tesla V100 FHHL product brief",
            "",
            "about fp32 13, Tensor Core fp16 105 TFLOP/s; 830 GB/s",
            "",
        ),
        unverified=("fp32", "fp16", "hbm_gb_per_s"),
    ),
    row(
        "V100 PCIe",
        r"\bV100-PCIE",
        "sm_70",
        peaks(fp32=14, fp16=112, fp64=7),
        900,
        _v100("V100 PCIe: fp64 7, fp32 14, Tensor Core fp16 112 TFLOP/s; 900 GB/s"),
    ),
    row(
        "V100 SXM2",
        r"\bV100-(?:SXM[23]|DGXS)",
        "sm_70",
        peaks(fp32=15.7, fp16=125, fp64=7.8),
        900,
        _v100("V100 SXM2: fp64 7.8, fp32 15.7, Tensor Core fp16 125 TFLOP/s; 900 GB/s; NVLink 300 GB/s"),
        link=300,
    ),
    row(
        "T4",
        r"\bT4\b",
        "sm_75",
        peaks(fp32=8.1, fp16=65, int8=130),
        320,
        Source(
            "NVIDIA T4 Tensor Core GPU datasheet",
            "951643",
            "fp32 8.1, fp16 65 TFLOP/s, int8 130 TOP/s; 320 GB/s",
            LIGHTNING + " (rates); RajBhope/gpu-runtime-predictor on Hugging Face (bandwidth)",
        ),
    ),
    row(
        "RTX 2080 Ti",
        r"\bRTX 2080 Ti$",
        "sm_75",
        peaks(fp32=13.4, fp16=53.8, int8=215.2),
        616,
        Source(
            "NVIDIA Turing GPU Architecture whitepaper",
            "WP-09183-001",
            "reference card: fp32 13.4, Tensor Core fp16 with fp32 accumulate 53.8 TFLOP/s, int8 215.2 TOP/s; 616 GB/s",
            "the whitepaper's own text in a public repository",
        ),
    ),
)
