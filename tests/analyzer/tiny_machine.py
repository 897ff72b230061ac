"""A host and its GPU for tests of the replay: says what happens, and writes the trace of it. Times in microseconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from small_traces import MAIN, Json, annotation, kernel, op, read, runtime, span

from traceopt.analyzer.facts import Facts

LAUNCH_US, LATENCY_US, GAP_US, WAKE_US = 5.0, 3.0, 1.0, 4.0


class Machine:
    """`after` is the host's clock; each stream knows when its work will have ended."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ends: dict[int, float] = defaultdict(float)
        self.events: list[Json] = []
        self._ids = 0
        self._steps = 0

    def work(self, us: float, name: str = "aten::work", tid: int = MAIN) -> None:
        """The host is busy with an operator."""
        self.events.append(op(name, self.now, us, tid))
        self.now += us

    def call(self, name: str, us: float = 1.0, tid: int = MAIN, until: float = 0.0) -> int:
        """A runtime call that returns after `us`, but not before `until`."""
        self._ids += 1
        end = max(self.now + us, until)
        self.events.append(runtime(name, self.now, end - self.now, self._ids, tid))
        self.now = end
        return self._ids

    def launch(self, us: float, stream: int = 7, tid: int = MAIN, after: float = 0.0, name: str = "gemm") -> None:
        """A kernel that starts when it is launched, its stream is free, and `after` has passed."""
        number = self.call("cudaLaunchKernel", LAUNCH_US, tid)
        start = max(self.now + LATENCY_US, self.ends[stream] + GAP_US, after)
        self.events.append(kernel(name, start, us, number, stream))
        self.ends[stream] = start + us

    def copy_to_host(self, us: float, target: str = "Pageable") -> None:
        """A copy on the stream 7, which blocks the host where its target is pageable memory."""
        start = max(self.now + LAUNCH_US + LATENCY_US, self.ends[7] + GAP_US)
        self.ends[7] = end = start + us
        number = self.call("cudaMemcpyAsync", LAUNCH_US, until=end + WAKE_US if target == "Pageable" else 0.0)
        args = {"device": 0, "stream": 7, "correlation": number}
        self.events.append(span("gpu_memcpy", f"Memcpy DtoH (Device -> {target})", start, us, 7, **args) | {"pid": 0})

    def synchronize(self, stream: int | None = None) -> None:
        """Waits for a stream, or for all."""
        done = max(self.ends.values(), default=0.0) if stream is None else self.ends[stream]
        self.call("cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize", 2.0, until=done + WAKE_US)

    @contextmanager
    def step(self) -> Iterator[None]:
        start = self.now
        yield
        self.events.append(annotation(f"ProfilerStep#{self._steps}", start, self.now - start))
        self._steps += 1

    def facts(self) -> Facts:
        return Facts(read(self.events))
