"""The work that the host has given to a GPU and that the GPU has not done yet."""

from __future__ import annotations

import time
from typing import Any

DEVICES = ("cuda", "xpu")  # the names of torch's modules; ROCm is "cuda" too


def drain(torch: Any) -> float | None:
    """Waits until the GPUs that this process uses have done all their work, and returns for how many seconds.

    None: it uses none, or a CUDA graph is being captured, which a wait would break.
    """
    used = [device for name in DEVICES if (device := getattr(torch, name, None)) and device.is_initialized()]
    if not used or any(_captures(device) for device in used):
        return None
    began = time.perf_counter()
    for device in used:
        for index in _in_use(torch, device):
            device.synchronize(index)
    return time.perf_counter() - began


def _captures(device: Any) -> bool:
    captures = getattr(device, "is_current_stream_capturing", None)
    return captures is not None and bool(captures())


def _in_use(torch: Any, device: Any) -> list[int]:
    """The current GPU, and the others that already have a context: a wait would create one, which takes memory."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None) if device is torch.cuda else None
    current = int(device.current_device())
    return [i for i in range(device.device_count()) if i == current or (has_context is not None and has_context(i))]
