"""The CPU: its model, the instructions that torch's kernels can use, and the libraries behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..or_none import or_none

CPUINFO = Path("/proc/cpuinfo")
# That decide how fast matmuls are, as Linux spells them: x86, then Arm.
FLAGS = (
    "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16",
    "asimd", "asimdhp", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip

_FIRST_CORE_BYTES = 16_384  # the file describes each core; all are alike


def describe_cpu(torch: Any) -> dict[str, Any]:
    """The CPU as torch sees it. Values that cannot be read are None."""
    backends = torch.backends
    return describe_machine() | {
        "capability": or_none(lambda: str(backends.cpu.get_cpu_capability())),
        "mkldnn": or_none(lambda: bool(backends.mkldnn.is_available())),
        "mkldnn_enabled": or_none(lambda: bool(torch._C._get_mkldnn_enabled())),
        "mkl": or_none(lambda: bool(backends.mkl.is_available())),
    }


def describe_machine() -> dict[str, Any]:
    """The CPU as Linux sees it: model, FLAGS that it has, and hardware threads per core. None where unknown."""
    try:
        with CPUINFO.open("rb") as file:
            text = file.read(_FIRST_CORE_BYTES).decode("utf-8", "replace")
    except OSError:
        return {"model": None, "flags": None, "threads_per_core": None}
    fields = {}
    for line in text.split("\n\n")[0].splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip().lower()] = value.strip()
    words = (fields.get("flags") or fields.get("features") or "").split()
    model = fields.get("model name") or " ".join(
        fields[name] for name in ("cpu implementer", "cpu part", "cpu variant") if name in fields
    )
    return {
        "model": model or None,
        "flags": [flag for flag in FLAGS if flag in words] if words else None,
        "threads_per_core": or_none(lambda: int(fields["siblings"]) // int(fields["cpu cores"]) or None),
    }
