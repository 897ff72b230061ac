"""Measures what this CPU reaches with torch, in about a second, and prints it as JSON. Runs as a script of its own.

The argument is JSON: {"threads": threads of the run, "all_threads": threads that fill the cores or null, "bf16": bool}.
Every rate is the best of short repetitions, so that other programs on the machine disturb it little; null if they
disturb all of them.
"""

from __future__ import annotations

import importlib
import json
import mmap
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from typing import Any

SIDES = (256, 512, 1024, 2048)  # of the matrices; many threads need large ones
SECONDS = 0.06  # for each measurement
MOST_SECONDS = 0.6
AGREEING, TOLERANCE = 3, 1.1  # the shortest repetitions, and by which factor they may differ
MOST_WAIT_SHARE = 0.05  # of a repetition
LONGEST_S = 0.03  # matrices whose product takes longer are left out: a core that others take in between slows them
COPY_BYTES = 128 << 20  # beyond most caches
PAGES = 1024


def measure(torch: Any, threads: int, all_threads: int | None, *, bf16: bool) -> dict[str, Any]:
    """The content of the key `cpu_peaks` of a trace."""
    torch.set_num_threads(threads)
    dtypes = {"fp32": torch.float32, "fp64": torch.float64} | ({"bf16": torch.bfloat16} if bf16 else {})
    found: dict[str, Any] = {
        "threads": threads,
        "matmul_gflops_per_s": {name: matmul_gflops(torch, dtype) for name, dtype in dtypes.items()},
        "convolution_gflops_per_s": {
            name: convolution_gflops(torch, layout)
            for name, layout in (("contiguous", torch.contiguous_format), ("channels_last", torch.channels_last))
        },
        "convolution_fp64_gflops_per_s": convolution_gflops(torch, torch.contiguous_format, torch.float64),
        "copy_gb_per_s": copy_gb_per_s(torch),
        "page_fault_us": page_fault_us(),
    }
    if all_threads is not None:
        torch.set_num_threads(all_threads)
        found |= {"all_threads": all_threads, "matmul_all_threads_gflops_per_s": matmul_gflops(torch, torch.float32)}
    return found


def matmul_gflops(torch: Any, dtype: Any) -> float | None:
    rates = []
    for side in SIDES:
        left, right = torch.randn(side, side).to(dtype), torch.randn(side, side).to(dtype)
        took_s = shortest_s(lambda left=left, right=right: left @ right)  # type: ignore[misc]
        if took_s is None:
            break
        rates.append(2e-9 * side**3 / took_s)
        if 8 * took_s > LONGEST_S:
            break
    return round(max(rates), 3) if rates else None


def convolution_gflops(torch: Any, layout: Any, dtype: Any = None) -> float | None:
    """Forward and backward of a convolution with filters of 3 x 3. Each thread has an image: PyTorch's FP64 kernel
    divides a batch among threads, not an image.
    """
    batch, channels, side = max(4, torch.get_num_threads()), 64, 14
    images = torch.randn(batch, channels, side, side, dtype=dtype).to(memory_format=layout).requires_grad_()
    filters = torch.randn(channels, channels, 3, 3, dtype=dtype).to(memory_format=layout).requires_grad_()
    gradient = torch.randn(batch, channels, side, side, dtype=dtype).to(memory_format=layout)

    def repetition() -> None:
        result = torch.nn.functional.conv2d(images, filters, padding=1)
        torch.autograd.grad(result, (images, filters), gradient)

    took_s = shortest_s(repetition)
    return None if took_s is None else round(3 * 2e-9 * batch * (side * channels * 3) ** 2 / took_s, 3)


def copy_gb_per_s(torch: Any) -> float | None:
    """Bytes read and written."""
    source = torch.ones(COPY_BYTES // 4)
    target = torch.empty_like(source)
    took_s = shortest_s(lambda: target.copy_(source))
    return None if took_s is None else round(2e-9 * COPY_BYTES / took_s, 3)


def page_fault_us() -> float | None:
    """What a page of new memory costs: to get it from the system, beyond writing to it, and to give it back. None on
    Windows.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):
        return None
    content = b"1" * (PAGES * mmap.PAGESIZE)
    kept = bytearray(content)

    def in_new_memory() -> None:
        with mmap.mmap(-1, len(content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                with suppress(OSError):
                    memory.madvise(mmap.MADV_NOHUGEPAGE)
            memory.write(content)

    def in_kept_memory() -> None:
        kept[:] = content

    new_s, kept_s = shortest_s(in_new_memory), shortest_s(in_kept_memory)
    return None if new_s is None or kept_s is None else round(max(0.0, new_s - kept_s) / PAGES * 1e6, 3)


def shortest_s(repetition: Callable[[], object]) -> float | None:
    """The shortest repetition within SECONDS, after one that warms up. A repetition in which a thread waited for a core
    does not count. Goes on for up to MOST_SECONDS until the shortest agree; None if they never do.
    """
    repetition()
    began = time.perf_counter()
    times: list[float] = []
    while (passed := time.perf_counter() - began) < MOST_SECONDS:
        if passed >= SECONDS and len(times) >= AGREEING:
            best = sorted(times)[:AGREEING]
            if best[-1] <= TOLERANCE * best[0]:
                return best[0]
        waited_s, start = core_wait_s(), time.perf_counter()
        repetition()
        took_s = time.perf_counter() - start
        if core_wait_s() - waited_s <= MOST_WAIT_SHARE * took_s:
            times.append(took_s)
    return None


def core_wait_s() -> float:
    """For how long threads of this process were ready but had no free core, according to Linux; 0 where unknown."""
    total_ns = 0
    for path in glob("/proc/self/task/*/schedstat"):
        try:
            with open(path, "rb") as file:
                total_ns += int(file.read().split()[1])
        except (OSError, ValueError, IndexError):  # the thread has ended
            continue
    return total_ns * 1e-9


if __name__ == "__main__":
    found_torch: Any = importlib.import_module("torch")
    wanted = json.loads(sys.argv[1])
    rates = measure(found_torch, wanted["threads"], wanted["all_threads"], bf16=wanted["bf16"])
    json.dump({"torch_version": str(found_torch.__version__), "cpu_peaks": rates}, sys.stdout)
