"""The peak table: dense rates (no sparsity) of accelerators, each with the vendor's document that states it.

TFLOP/s (TOP/s for int8) of the fastest unit that multiplies matrices in that type: Tensor Cores or matrix cores where
they take the type, else the vector units; FP32 accumulation where the document tells them apart. FP4 is with its block
scales (NVFP4, MXFP4). One row is one device as the framework lists it: one die of an MI250X, one GPU of a GB200.

A row takes every figure from the statement of a source. The vendors' sites were out of reach when the table was
written: each source names the public text in which its statement was read. What no such text confirms is `unverified`
in the row, and the report says so. The table is loaded with the first trace of a GPU.
"""

from __future__ import annotations

from traceopt.analyzer.vocabulary.accelerator import Accelerator
from traceopt.analyzer.vocabulary.accelerators.ada import ADA
from traceopt.analyzer.vocabulary.accelerators.ampere import AMPERE
from traceopt.analyzer.vocabulary.accelerators.blackwell import BLACKWELL
from traceopt.analyzer.vocabulary.accelerators.blackwell_rtx import BLACKWELL_RTX
from traceopt.analyzer.vocabulary.accelerators.hopper import HOPPER
from traceopt.analyzer.vocabulary.accelerators.instinct import INSTINCT
from traceopt.analyzer.vocabulary.accelerators.radeon import RADEON
from traceopt.analyzer.vocabulary.accelerators.volta_turing import VOLTA_TURING

# First match wins: the narrower pattern stands first. Seen in traces: V100-SXM2-32GB, V100-DGXS-32GB,
# A100-PG509-200, A100-SXM4-80GB, H100 80GB HBM3, H200, MI210, MI300X, MI300X VF.
ACCELERATORS: tuple[Accelerator, ...] = (
    *VOLTA_TURING,
    *AMPERE,
    *ADA,
    *HOPPER,
    *BLACKWELL,
    *BLACKWELL_RTX,
    *INSTINCT,
    *RADEON,
)
