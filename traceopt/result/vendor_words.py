"""The words of each GPU vendor: sentences are written in NVIDIA's, and said in AMD's where the GPU is AMD's.

Only sentences for people are reworded. Names from the trace (kernels, runtime calls), PyTorch's own names, which say
`cuda` on every vendor (`torch.cuda.synchronize()`), and code stay as they are.
"""

from __future__ import annotations

import re

_AMD = (
    (r"\bTensor Core(s?)\b", r"Matrix Core\1"),
    (r"\bCUDA graph(s?)\b", r"HIP graph\1"),
    (r"\bcudaHostAlloc\b", "hipHostMalloc"),
    (r"\bcuda(?=[A-Z])", "hip"),  # cudaMalloc, cudaFree
    (r"\bcuDNN\b", "MIOpen"),
    (r"\bcuBLAS\b", "hipBLAS"),
    (r"\bNCCL\b(?!_)", "RCCL"),  # its environment variables are called NCCL_ on AMD, too
    (r"\bCUPTI\b", "roctracer"),
    (r"\(Nsight, DCGM\)", "(rocprof)"),
    (r", TensorRT-LLM\b", ""),  # NVIDIA only
)
_PATTERNS = {"amd": [(re.compile(pattern), words) for pattern, words in _AMD]}


def worded(sentence: str, vendor: str | None) -> str:
    """The sentence in the words of a vendor: `"nvidia"`, `"amd"`, ...; None and others are left as they are."""
    for pattern, words in _PATTERNS.get(vendor or "", ()):
        sentence = pattern.sub(words, sentence)
    return sentence
