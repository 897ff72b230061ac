"""Facts of the work: matmuls, attention, convolutions, casts, copies, FLOP, and loops of small operators."""

from __future__ import annotations

from functools import cached_property

from traceopt.analyzer.arrays.intervals import merge
from traceopt.analyzer.attribution.main_work import MainWork, find_main_work
from traceopt.analyzer.autograd.forward.large_logits import LargeLogits, find_large_logits
from traceopt.analyzer.facts.replay import ReplayFacts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline import recurrent_layers
from traceopt.analyzer.timeline.slow_functions import find_slow_functions
from traceopt.analyzer.vocabulary.causes.table import BACKWARD, FORWARD, OPTIMIZER
from traceopt.analyzer.vocabulary.kernels.kernel_names import FUSIBLE_KINDS
from traceopt.analyzer.work.attention import (
    MathAttention,
    UnfusedAttention,
    find_math_attention,
    find_unfused_attention,
)
from traceopt.analyzer.work.batch_norms import BatchNorms, find_batch_norms
from traceopt.analyzer.work.convolutions import Convolutions, Searches, find_searches
from traceopt.analyzer.work.copies import CopyCalls, find_copies
from traceopt.analyzer.work.cpu_attention import CpuAttention, find_cpu_attention, find_cpu_math_attention
from traceopt.analyzer.work.cpu_work import CpuWork
from traceopt.analyzer.work.flops import Flops
from traceopt.analyzer.work.gemm_calls import GemmCalls
from traceopt.analyzer.work.gemms import Gemms
from traceopt.analyzer.work.hardware_counters import MeasuredCounters, find_measured_counters
from traceopt.analyzer.work.linear_algebra import LinearAlgebra, find_linear_algebra, linear_algebra_calls
from traceopt.analyzer.work.precision.casts import Casts, find_casts
from traceopt.analyzer.work.precision.double_precision import DoublePrecision, find_double_precision
from traceopt.analyzer.work.sizes.attention_calls import AttentionCalls, find_attention_calls
from traceopt.analyzer.work.sizes.full_sorts import FullSorts, find_full_sorts
from traceopt.analyzer.work.sizes.growing_prefix import GrowingPrefix, find_growing_prefix
from traceopt.analyzer.work.sizes.padded_work import PaddedWork, find_padded_work
from traceopt.analyzer.work.sizes.sized_calls import SizedCalls, find_sized_calls
from traceopt.analyzer.work.sizes.subnormal_work import SubnormalWork, find_subnormal_work
from traceopt.analyzer.work.tensor_core_work import TensorCoreWork
from traceopt.analyzer.work.throughput import MeasuredThroughput, measure
from traceopt.analyzer.work.tiny_ops import CalledOps, ParameterWork, find_called_ops, find_parameter_work
from traceopt.analyzer.work.unfused_chains import Chains, find_chains


class WorkFacts(ReplayFacts, frozen=True, dict=True):
    """Matmuls, attention, convolutions, casts, copies, FLOP, and loops of small operators."""

    @cached_property
    def tensor_core_work(self) -> TensorCoreWork:
        """GPU work that Tensor Cores could do, and whether they did it."""
        return TensorCoreWork(self.trace, self.slices, self.links, self.gpu, self.device)

    @cached_property
    def main_work(self) -> MainWork | None:
        """The kind of work that takes most of the GPU's time, with its rows; None without compute kernels."""
        return find_main_work(self.regions, self.tensor_core_work.dtype)

    @cached_property
    def gemms(self) -> Gemms:
        """Matmuls by shape: type, rate, share of peak, alignment, calling lines."""
        return Gemms(self.trace, self.slices, self.links, self.gpu, self.device)

    @cached_property
    def gemm_calls(self) -> GemmCalls:
        """Matmuls call by call, in the order in which the device ran them."""
        return GemmCalls(self.gemms)

    @cached_property
    def convolutions(self) -> Convolutions:
        """Convolutions with recorded shapes: those with a bias before a batch norm, and whether the shapes repeat."""
        return Convolutions(self.regions, self.steps)

    @cached_property
    def cudnn_searches(self) -> Searches:
        """Convolutions of the recorded steps in which cuDNN searches for the fastest algorithm."""
        return find_searches(self.regions, self.recorded_steps)

    @cached_property
    def batch_norms(self) -> BatchNorms:
        """Batch norms of pictures with channels first, and how much memory each call has to move."""
        return find_batch_norms(self.gemms)

    @cached_property
    def casts(self) -> Casts:
        """Casts between floating-point types on the device, and which of them only undo each other."""
        return find_casts(self.gemms)

    @cached_property
    def linear_algebra(self) -> LinearAlgebra:
        """Solvers and decompositions of small matrices in the window, call by call."""
        return find_linear_algebra(self.regions, self.steps)

    @cached_property
    def linear_algebra_calls(self) -> I8:
        """Calls of solvers and decompositions in the window, on matrices of any size. Slices, in order."""
        return linear_algebra_calls(self.regions, self.steps)

    @cached_property
    def linear_algebra_share(self) -> float:
        """Share of the window that these calls take: of the GPU's time, or on a CPU-only run of the thread's."""
        calls = self.linear_algebra_calls
        taken_ns = self.regions.work_ns(calls) if self.has_gpu else self.slices.duration_of(calls)
        return int(taken_ns.sum()) / self.steps.window_ns

    @cached_property
    def double_precision(self) -> DoublePrecision:
        """GPU work in FP64, and the operators that copy its data to the device."""
        return find_double_precision(self.regions, self.tensor_core_work)

    @cached_property
    def flops(self) -> Flops:
        """FLOP of the window, of the model and recomputed, and their share of the device's peak."""
        times = self.trace, self.slices, self.links, self.gpu, self.device
        return Flops(*times, self.regions, self.tensor_core_work, self.gemms.too_fast)

    @cached_property
    def chains(self) -> Chains:
        """Chains of unfused memory-bound kernels, without those of the optimizer, of unfused attention, of large logits
        and of compiled code.
        """
        optimizer = self.regions.update_work | self.regions.work_under(self.regions.zero_grad)
        fusible = self.gpu.is_kernel & self.gpu.kind.among(*FUSIBLE_KINDS) & ~self.gpu.fused
        fusible &= ~optimizer & ~self.unfused_attention.mask & ~self.regions.compiled_work
        if self.trains and self.large_logits is not None:
            fusible &= ~self.regions.work_under(self.slices.mask(self.large_logits.rows))
        step = self.recorded_steps.step_of(self.gpu.work.start)
        return find_chains(self.gpu, fusible, step, self.regions.op_of_work)

    @cached_property
    def large_logits(self) -> LargeLogits | None:
        """Losses of the window over a large vocabulary; None if there are none."""
        return find_large_logits(self.regions, self.steps)

    @cached_property
    def unfused_attention(self) -> UnfusedAttention:
        """Attention that runs as separate kernels: matmul, softmax, matmul."""
        return find_unfused_attention(self.gpu, self.regions)

    @cached_property
    def attention_calls(self) -> list[AttentionCalls]:
        """Fused attention on the device by size, with its backward."""
        return find_attention_calls(self.regions)

    @cached_property
    def math_attention(self) -> MathAttention:
        """Attention in PyTorch's own math path (`scaled_dot_product_attention` without a fused kernel)."""
        return find_math_attention(self.gpu, self.regions, self.unfused_attention)

    @cached_property
    def cpu_attention(self) -> CpuAttention:
        """Attention of a CPU-only run that runs as separate operators."""
        return find_cpu_attention(self.regions, self.steps.window)

    @cached_property
    def cpu_math_attention(self) -> CpuAttention:
        """Calls of scaled_dot_product_attention in a CPU-only run that fell back to its math backend."""
        return find_cpu_math_attention(self.regions, self.steps.window)

    @cached_property
    def cpu_work(self) -> CpuWork:
        """The operators of a CPU-only run: time, FLOP/s, and share of the rate that this CPU reaches."""
        return CpuWork(self.flops, self.regions, self.steps, self.cpu_phases.model_work, self.captured.cpu_peaks)

    @cached_property
    def sized_calls(self) -> SizedCalls:
        """The operators of the training with the sizes of their tensors."""
        return find_sized_calls(self.regions, self.steps)

    @cached_property
    def subnormal_work(self) -> SubnormalWork:
        """The operators of a CPU-only run that compute with tensors full of subnormal numbers."""
        return find_subnormal_work(self.sized_calls, self.cpu_work, self.captured.subnormals)

    @cached_property
    def padded_work(self) -> PaddedWork | None:
        """The operators that work on the positions of padded batches; None if no padding was seen."""
        padding = next(iter(self.captured.padding), None)
        return find_padded_work(self.sized_calls, self.slices, padding) if padding is not None else None

    @cached_property
    def growing_prefix(self) -> GrowingPrefix | None:
        """Rounds of a generation without a cache: each computes all tokens so far again. None if there are none."""
        return find_growing_prefix(self.sized_calls)

    @cached_property
    def full_sorts(self) -> FullSorts:
        """Sorts of which only the first values are taken."""
        return find_full_sorts(self.regions, self.steps)

    @cached_property
    def called_ops(self) -> CalledOps:
        """Operators in the forward and backward passes of a CPU-only run, and which are too small for their call."""
        phases = self.cpu_phases.areas
        work = merge(phases[FORWARD], phases[BACKWARD])
        return find_called_ops(self.regions, self.steps.thread, work, self.profiler_cost)

    @cached_property
    def parameter_work(self) -> ParameterWork:
        """CPU-only runs: what is done for each parameter, however small: accumulation, zero_grad, the optimizer."""
        return find_parameter_work(self.regions, self.steps.thread, self.cpu_phases.areas[OPTIMIZER], self.steps)

    @cached_property
    def copies(self) -> list[CopyCalls]:
        """Copies between host and device and on the device, by kind. A list."""
        return find_copies(self.gpu)

    @cached_property
    def measured_counters(self) -> MeasuredCounters | None:
        """What hardware counters measured over the steps and during some of the work; None if they were not sampled."""
        return find_measured_counters(self.trace, self.steps, self.gpu)

    @cached_property
    def throughput(self) -> MeasuredThroughput | None:
        """Tokens or samples per second of one GPU; None unless the user said what a step processes."""
        return measure(self.workload, self.step_ns)

    @cached_property
    def sampler_calls(self) -> I8:
        """Calls of the samplers of DataLoaders in the window, on the main thread. Slices, in order."""
        return self.regions.calls(self.regions.sampler, self.steps)

    @cached_property
    def fresh_iterators(self) -> I8:
        """Where the main thread makes an iterator of a DataLoader, if it does so for each batch, as by
        `next(iter(loader))` in a loop. Empty otherwise, as at the start of an epoch. Slices, in order.
        """
        begins = self.regions.calls(self.regions.new_iterator, self.steps)
        reads = self.regions.calls(self.regions.next_batch, self.steps)
        return begins if len(begins) > 1 and len(begins) >= len(reads) else begins[:0]

    @cached_property
    def deep_copies(self) -> I8:
        """The outermost calls of `copy.deepcopy` in the window, on the main thread. Slices, in order."""
        return self.regions.calls(self.regions.deep_copy, self.steps)

    @cached_property
    def slow_functions(self) -> dict[str, I8]:
        """The outermost calls in the window, on the main thread, of library functions that are slow in loops, by what
        they do: "pandas_rows", "sample" from a deque, "module_cast". Slices, in order.
        """
        return find_slow_functions(self.regions, self.steps)

    @cached_property
    def recurrent_cells(self) -> I8:
        """Calls of nn.LSTMCell and its like in the window. Slices, in order."""
        return recurrent_layers.cells(self.regions, self.steps)

    @cached_property
    def single_sequences(self) -> I8:
        """Calls of nn.LSTM and its like in the window with a batch of one sequence. Slices, in order."""
        return recurrent_layers.single_sequences(self.regions, self.steps)
