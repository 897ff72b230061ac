"""Simulates a host and its GPU: tests say what happens, and the machine writes the trace. Times in microseconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import MAIN, Json, annotation, document, kernel, op, python, read, runtime, span

LAUNCH_US, LATENCY_US, GAP_US, WAKE_US = 5.0, 3.0, 1.0, 4.0
STREAM = 7  # PyTorch's default stream

A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "totalGlobalMem": 42_297_524_224,
    "computeMajor": 8,
    "computeMinor": 0,
    "numSms": 108,
}


class Machine:
    """One host thread and one GPU. `now` is the host's clock; `ends` says when each stream will have finished.

    `device` is an entry of the trace's `deviceProperties`, None for a run without a GPU; `metadata` are other keys of
    the trace file, such as `with_stack=1`.

        machine = Machine()
        for _ in range(5):
            with machine.step():
                with machine.python("train.py(12): load"):
                    machine.work(3_000, "aten::stack")
                machine.launch(2_000)
                machine.synchronize()
    """

    def __init__(self, device: Json | None = None, **metadata: Any) -> None:
        self.now = 0.0
        self.ends: dict[int, float] = defaultdict(float)
        self.events: list[Json] = []
        self.metadata = metadata | ({"deviceProperties": [device]} if device is not None else {})
        self._ids = 0
        self._steps = 0

    def idle(self, us: float) -> None:
        """The host does nothing that leaves an event."""
        self.now += us

    def work(self, us: float, name: str = "aten::work", tid: int | str = MAIN, **args: Any) -> None:
        """The host is busy with an operator; `args` such as `Input Dims` go into its event."""
        self.events.append(op(name, self.now, us, tid, **args))
        self.now += us

    def call(self, name: str, us: float = 1.0, tid: int | str = MAIN, until: float = 0.0) -> int:
        """A runtime call that returns after `us`, but not before `until`. Returns its correlation id."""
        self._ids += 1
        end = max(self.now + us, until)
        self.events.append(runtime(name, self.now, end - self.now, self._ids, tid))
        self.now = end
        return self._ids

    def launch(
        self,
        us: float,
        stream: int = STREAM,
        tid: int | str = MAIN,
        after: float = 0.0,
        name: str = "gemm",
        **args: Any,
    ) -> None:
        """A kernel of `us`. It starts when it has been launched, its stream is free, and `after` has passed."""
        number = self.call("cudaLaunchKernel", LAUNCH_US, tid)
        start = max(self.now + LATENCY_US, self.ends[stream] + GAP_US, after)
        self.events.append(kernel(name, start, us, number, stream, **args))
        self.ends[stream] = start + us

    def copy_to_host(self, us: float, target: str = "Pageable", call: str = "cudaMemcpyAsync") -> None:
        """A copy on the default stream; blocks the host if its target is pageable memory. ROCm's call for a read is
        hipMemcpyWithStream.
        """
        start = max(self.now + LAUNCH_US + LATENCY_US, self.ends[STREAM] + GAP_US)
        self.ends[STREAM] = end = start + us
        number = self.call(call, LAUNCH_US, until=end + WAKE_US if target == "Pageable" else 0.0)
        args = {"device": 0, "stream": STREAM, "correlation": number}
        self.events.append(
            span("gpu_memcpy", f"Memcpy DtoH (Device -> {target})", start, us, STREAM, **args) | {"pid": 0}
        )

    def synchronize(self, stream: int | None = None) -> None:
        """The host waits for a stream, or for all of them."""
        done = max(self.ends.values(), default=0.0) if stream is None else self.ends[stream]
        self.call("cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize", 2.0, until=done + WAKE_US)

    @contextmanager
    def python(self, frame: str, tid: int | str = MAIN) -> Iterator[None]:
        """A Python frame around what happens inside, named as by the profiler: "train.py(12): load"."""
        start = self.now
        yield
        self.events.append(python(frame, start, self.now - start, tid))

    @contextmanager
    def operator(self, name: str, tid: int | str = MAIN, **args: Any) -> Iterator[None]:
        """An operator around what happens inside: "aten::item"."""
        start = self.now
        yield
        self.events.append(op(name, start, self.now - start, tid, **args))

    @contextmanager
    def annotate(self, name: str, tid: int | str = MAIN) -> Iterator[None]:
        """A `record_function` range around what happens inside."""
        start = self.now
        yield
        self.events.append(annotation(name, start, self.now - start, tid))

    @contextmanager
    def step(self) -> Iterator[None]:
        """One training step, with the profiler's mark."""
        with self.annotate(f"ProfilerStep#{self._steps}"):
            yield
        self._steps += 1

    def to_bytes(self) -> bytes:
        """The trace file."""
        return document(self.events, **self.metadata)

    def facts(self) -> Facts:
        """What traceopt measures in the trace."""
        return facts_of(self)


def facts_of(trace: Machine | bytes | Sequence[Json]) -> Facts:
    """The facts of a machine's trace, of the bytes of a trace file, or of a list of events."""
    return Facts(read(trace.to_bytes() if isinstance(trace, Machine) else trace))
