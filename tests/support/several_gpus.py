"""Recordings of one process that drives several GPUs, in the ways that PyTorch programs do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from traceopt.testing import Machine
from traceopt.testing.events import MAIN, Json, span
from traceopt.testing.machine import A100, GAP_US, LATENCY_US

T4 = {"name": "Tesla T4", "totalGlobalMem": 15_655_829_504, "computeMajor": 7, "computeMinor": 5, "numSms": 40}
BF16_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
DEFAULT_STREAM, STREAMS = 7, 100  # of a GPU; stream 107 is stream 7 of GPU 1
NODE = "autograd::engine::evaluate_function: MmBackward0"


class Node(Machine):
    """A machine with several GPUs, whose work of this process is on the default stream of each."""

    def __init__(self, gpus: Sequence[Json] = (A100, A100)) -> None:
        super().__init__(with_stack=1, deviceProperties=[gpu | {"id": number} for number, gpu in enumerate(gpus)])
        self.gpus = range(len(gpus))

    def run(self, gpu: int, us: float, tid: int = MAIN, name: str = BF16_GEMM) -> None:
        """A kernel on the default stream of a GPU."""
        self.launch(us, _stream(gpu), tid, name=name, device=gpu)

    def hand_over(self, source: int, target: int, us: float = 60) -> None:
        """`x.to("cuda:1")`: a copy on the stream of the source, for which the stream of the target waits."""
        with self.operator("aten::copy_"):
            self.call("cudaEventRecord")
            self.call("cudaStreamWaitEvent")
            number = self.call("cudaMemcpyPeerAsync", 6)
            stream, after = _stream(source), _stream(target)
            start = max(self.now + LATENCY_US, self.ends[stream] + GAP_US, self.ends[after])
            peers = {"fromDevice": source, "inDevice": source, "toDevice": target, "bytes": 16 * 2**20}
            ids = {"stream": stream, "correlation": number}
            copy = span("gpu_memcpy", "Memcpy PtoP (Device -> Device)", start, us, **peers, **ids)
            self.events.append(copy | {"pid": source})
            self.ends[stream] = start + us
            self.ends[after] = max(self.ends[after], start + us)
            self.call("cudaEventRecord")
            self.call("cudaStreamWaitEvent")

    def holds(self, *allocated: int) -> None:
        """What the allocator has handed out on each GPU."""
        for gpu, size in enumerate(allocated):
            totals = {"Total Allocated": size, "Total Reserved": size, "Bytes": 512, "Addr": 4096 + gpu}
            device = {"Device Type": 1, "Device Id": gpu}
            self.events.append(span("cpu_instant_event", "[memory]", self.now, 0, **device, **totals) | {"ph": "i"})

    @contextmanager
    def at_the_same_time(self, started: float) -> Iterator[None]:
        """Another thread has been running since `started`."""
        self.now, until = started, self.now
        yield
        self.now = max(self.now, until)

    def to_bytes(self) -> bytes:
        """The trace file: each GPU numbers its streams by itself."""
        for event in self.events:
            if "stream" in event["args"]:
                event["tid"] = event["args"]["stream"] = event["args"]["stream"] % STREAMS
        return super().to_bytes()


def _stream(gpu: int) -> int:
    return STREAMS * gpu + DEFAULT_STREAM


def split_model(gpus: int = 2, layers: int = 4, *, trains: bool = True, held: Sequence[int] = ()) -> Node:
    """The first layers on one GPU, the next ones on another: forward in this order, backward in the other."""
    node = Node([A100] * gpus)
    for _ in range(4):
        with node.step(), node.python("model.py(7): forward"):
            node.holds(*held)
            for gpu in node.gpus:
                if gpu:
                    node.hand_over(gpu - 1, gpu)
                for _ in range(layers):
                    node.work(15, "aten::mm")
                    node.run(gpu, 500)
            for gpu in reversed(node.gpus) if trains else ():
                for _ in range(layers):
                    node.work(15, NODE)
                    node.run(gpu, 1_000)
                if gpu:
                    node.hand_over(gpu, gpu - 1)
            node.synchronize()
    return node


def generation(gpus: int = 4, tokens: int = 4) -> Node:
    """`device_map="auto"`: every token goes through the layers of one GPU after the other."""
    node = Node([A100] * gpus)
    for _ in range(3):
        with node.step(), node.python("generate.py(12): generate"):
            for _ in range(tokens):
                for gpu in node.gpus:
                    if gpu:
                        node.hand_over(gpu - 1, gpu, 8)
                    for _ in range(6):
                        node.work(8, "aten::mm")
                        node.run(gpu, 120)
                with node.operator("aten::item"):
                    node.synchronize(_stream(gpus - 1))
    return node


def pipeline(micro_batches: int = 4) -> Node:
    """Two stages in one process: the second works on a micro-batch while the first has the next one."""
    node = Node()
    for _ in range(4):
        with node.step(), node.python("pipeline.py(20): forward"):
            for _ in range(micro_batches):
                node.work(15, "aten::mm")
                node.run(0, 1_000)
                node.hand_over(0, 1)
                node.work(15, NODE)
                node.run(1, 1_000)
            node.synchronize()
    return node


def data_parallel(*, gather_us: float = 400) -> Node:
    """`nn.DataParallel`: copies of the model, a part of the batch and a thread for each GPU; the loss on the first."""
    node = Node()
    for _ in range(4):
        with node.step(), node.annotate("DataParallel.forward"), node.python("train.py(30): main"):
            with node.operator("Broadcast"):
                node.work(900, "aten::empty")
                for gpu in node.gpus:
                    node.run(gpu, 800, name=BROADCAST)
            with node.operator("Scatter"):
                node.work(150, "aten::chunk")
                node.hand_over(0, 1, 30)
            started = node.now
            with node.python("torch/nn/parallel/parallel_apply.py(110): parallel_apply"):
                for gpu in node.gpus:
                    with node.at_the_same_time(started):
                        for _ in range(6):
                            node.work(60, "aten::mm", 11 + gpu)
                            node.run(gpu, 300, tid=11 + gpu)
            with node.operator("Gather"):
                node.work(150, "aten::cat")
                node.hand_over(1, 0, 30)
            node.run(0, gather_us)
            started = node.now
            for gpu in node.gpus:
                with node.at_the_same_time(started):
                    for _ in range(6):
                        node.work(60, NODE, 21 + gpu)
                        node.run(gpu, 600, tid=21 + gpu)
            node.synchronize()
    return node


def one_works(other: str = "", gpus: Sequence[Json] = (A100, A100)) -> Node:
    """GPU 0 does the work. `other`: what the second GPU does: nothing, one memset for its "context", or "copies"."""
    node = Node(gpus)
    if other == "context":
        number = node.call("cudaMemsetAsync")
        fill = span("gpu_memset", "Memset (Device)", node.now + 3, 2, device=1, stream=107, correlation=number)
        node.events.append(fill | {"pid": 1})
    for _ in range(4):
        with node.step(), node.python("train.py(30): main"):
            for _ in range(4):
                node.work(15, "aten::mm")
                node.run(0, 1_000)
            if other == "copies":
                node.hand_over(0, 1, 40)
                node.hand_over(1, 0, 40)
            node.synchronize()
    return node


def different_gpus() -> Node:
    """An A100 and a T4, each with a part of the layers."""
    node = Node((A100, T4))
    for _ in range(4):
        with node.step(), node.python("model.py(7): forward"):
            for _ in range(4):
                node.work(15, "aten::mm", **{"Input Dims": [[4096, 4096], [4096, 4096]]})
                node.run(0, 700)
            node.hand_over(0, 1)
            for _ in range(4):
                node.work(15, "aten::mm", **{"Input Dims": [[4096, 4096], [4096, 4096]]})
                node.run(1, 5_000, name="turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn")
            node.synchronize()
    return node
