"""Measures what a DataLoader worker would cost on this machine: how long a batch takes from it to the training process,
and how much slower two processes compute side by side.

The file is also run as a program, without torch, so that no process with threads or a GPU has to be forked for it. It
does what torch's workers do: the batch's tensors lie in shared memory, a queue carries the rest and the memory's file
descriptors, and the reader maps the memory.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from multiprocessing.reduction import DupFd
from typing import Any

PROGRAM = os.path.abspath(__file__)  # the script may change its folder
ROUNDS = 12  # measured; the first is left out
LEAST_ROUNDS = 4
AHEAD = 2  # batches that the worker prepares, torch's default
LIMIT_S = 0.2  # fewer rounds if they take longer than this
TIMEOUT_S = 2  # including the start of two processes
LIFETIME_S = TIMEOUT_S + 1  # of each process
MOST_BYTES = 32 << 20  # of a batch that is sent; larger ones are scaled up
PAUSE_S = 0.001

COMPUTING_S = 0.06  # alone, and again side by side
SETTLING_S = 0.01  # until the other process has found a core
ATTEMPTS = 3  # the shortest times count: what disturbs the machine for a moment only ever makes them longer
ON_A_CORE = 0.8  # share of the time that both must have had a core, or else they did not run side by side


def measure_hand_over(tensors: int, tensor_bytes: int, pickled_bytes: int) -> dict[str, float] | None:
    """`us`: what the reader spends on a batch that is ready. `worker_us`: what the worker spends to put it into shared
    memory. `slowdown`: how many times as long computing takes while another process computes, at least 1; missing if
    no two cores were free. None if this system cannot measure it.
    """
    if not hasattr(os, "memfd_create") or not sys.executable:
        return None
    words = [sys.executable, "-I", "-S", PROGRAM, *map(str, (tensors, tensor_bytes, pickled_bytes))]
    try:
        done = subprocess.run(  # noqa: S603
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=True
        )
        measured: dict[str, float] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return measured


def _end_in_time() -> None:
    """The system ends this process, whatever becomes of the others: one that is killed cannot end those it started, and
    they hold both ends of their pipes.
    """
    signal.alarm(LIFETIME_S)


def _main(tensors: int, tensor_bytes: int, pickled_bytes: int) -> dict[str, float]:
    scale = max(1.0, (tensor_bytes + pickled_bytes) / MOST_BYTES)
    sizes = [max(1, int(tensor_bytes / scale / tensors))] * tensors if tensors else []
    context = multiprocessing.get_context("fork")
    tasks, batches = context.Queue(), context.Queue()
    arguments = (tasks, batches, sizes, b"." * int(pickled_bytes / scale))
    worker = context.Process(target=_send, args=arguments, daemon=True)
    worker.start()
    received: list[float] = []
    sent: list[float] = []
    began = time.perf_counter()
    for _ in range(AHEAD):
        tasks.put(True)
    while len(received) < LEAST_ROUNDS or (len(received) < ROUNDS and time.perf_counter() - began < LIMIT_S):
        while batches.empty():
            time.sleep(PAUSE_S)
        time.sleep(PAUSE_S)  # the rest of the batch is then in the queue, as it is while a model computes
        since = time.perf_counter()
        send_s, descriptors, _ = batches.get()
        tasks.put(True)
        for descriptor, size in zip(descriptors, sizes, strict=True):
            _touch(descriptor.detach(), size)
        received.append(time.perf_counter() - since)
        sent.append(send_s)
    worker.terminate()
    measured = {
        name: round(_quarter(times[1:]) * scale * 1e6, 1) for name, times in (("us", received), ("worker_us", sent))
    }
    slowdown = _slowdown([_alone_and_beside(context) for _ in range(ATTEMPTS)])
    return measured if slowdown is None else {**measured, "slowdown": round(slowdown, 3)}


def _slowdown(attempts: Sequence[tuple[float, float] | None]) -> float | None:
    """Of the times alone and beside another process; None if no attempt had two cores."""
    known = [attempt for attempt in attempts if attempt is not None]
    if not known:
        return None
    return max(1.0, min(beside_s for _, beside_s in known) / min(alone_s for alone_s, _ in known))


def _alone_and_beside(context: Any) -> tuple[float, float] | None:
    """CPU time in seconds of the same work alone and beside a process that does it too; None if one lacked a core.

    CPU time does not grow while another program has the core. It does grow if the two share a physical core, caches or
    memory bandwidth.
    """
    compute = _computing()
    alone, _ = _timed(compute)
    ours, theirs = context.Pipe()
    other = context.Process(target=_beside, args=(theirs,), daemon=True)
    other.start()
    try:
        ours.recv()  # it computes from now on
        time.sleep(SETTLING_S)
        beside, own_share = _timed(compute)
        ours.send(True)
        other_share = ours.recv()
    except (EOFError, OSError):
        return None
    finally:
        other.terminate()
    return (alone, beside) if min(own_share, other_share) >= ON_A_CORE else None


def _beside(parent: Any) -> None:
    """Computes until the parent sends something, and answers with the share of the time in which it had a core."""
    _end_in_time()
    compute = _computing()
    parent.send(True)
    cpu_s, began = time.process_time(), time.perf_counter()
    while not parent.poll():
        compute()
    parent.send((time.process_time() - cpu_s) / (time.perf_counter() - began))


def _computing() -> Callable[[], None]:
    """About a millisecond of what loaders and models do: Python, integers in the caches, and copies through memory."""
    small, large, copy = bytes(range(256)) * 64, bytes(4 << 20), bytearray(4 << 20)

    def compute() -> None:
        sum(number * number for number in range(5_000))
        zlib.compress(small, 1)
        copy[:] = large

    return compute


def _timed(compute: Callable[[], None]) -> tuple[float, float]:
    """The CPU time of one call in seconds, and the share of the time in which this process had a core."""
    calls: list[float] = []
    cpu_s, began = time.process_time(), time.perf_counter()
    while (wall_s := time.perf_counter() - began) < COMPUTING_S:
        since = time.process_time()
        compute()
        calls.append(time.process_time() - since)
    return _quarter(calls), (time.process_time() - cpu_s) / wall_s


def _send(tasks: Any, batches: Any, sizes: list[int], rest: bytes) -> None:
    """Sends a batch for each task, and with it the time that the batch before it took."""
    _end_in_time()
    took, content = 0.0, memoryview(bytes(max(sizes, default=0)))
    while tasks.get():
        began = time.perf_counter()
        descriptors = [_shared(content[:size]) for size in sizes]
        batches.put((took, [DupFd(descriptor) for descriptor in descriptors], rest))
        for descriptor in descriptors:
            os.close(descriptor)
        took = time.perf_counter() - began


def _shared(content: memoryview) -> int:
    """File descriptor of new shared memory with this content."""
    descriptor = os.memfd_create("batch")
    os.ftruncate(descriptor, len(content))
    with mmap.mmap(descriptor, len(content)) as memory:
        memory.write(content)
    return descriptor


def _touch(descriptor: int, size: int) -> None:
    """Maps the memory and reads a byte of each page, as the first use of the batch does."""
    with mmap.mmap(descriptor, size) as memory:
        memory[:: mmap.PAGESIZE]
    os.close(descriptor)


def _quarter(times: list[float]) -> float:
    """The lower quartile: other programs on the machine only ever make it longer."""
    return sorted(times)[len(times) // 4]


if __name__ == "__main__":
    _end_in_time()
    sys.stdout.write(json.dumps(_main(*map(int, sys.argv[1:]))))
