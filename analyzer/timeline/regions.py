"""Parts of the program that are recognized by name: optimizer, zero_grad, backward, forward, attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, subtract, union
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME, Slices
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import library_frames, op_names, runtime_calls, torch_compile
from traceopt.analyzer.vocabulary.gemm_ops import is_gemm
from traceopt.analyzer.vocabulary.kernels.kernel_names import is_inductor
from traceopt.analyzer.vocabulary.python_frames import is_place

# An operator takes the host 2 to 20 us to dispatch. What is silent for ten times as long computes.
COMPUTES_NS = 200_000


class Regions(Struct, frozen=True, dict=True):
    """Masks of slices (shape (len(slices),)) and of the device's work (shape (len(gpu.work),))."""

    trace: Trace
    slices: Slices
    links: LaunchLinks
    gpu: GpuWork

    def named(self, test: Callable[[str], bool], *kinds: int) -> Mask:
        """Slices of the kinds (OP, PYTHON, ...) whose name passes the test. Raises ValueError if no kind is given."""
        if not kinds:
            raise ValueError("regions.named() needs the kinds of slices to look at, such as OP or PYTHON")
        codes = self.slices.name_codes(*kinds)
        passes = np.zeros(len(self.trace.names), bool)
        passes[codes] = [test(self.trace.names[code]) for code in codes]
        mask = np.zeros(len(self.slices), bool)
        if passes.any():
            rows = np.flatnonzero(passes[self.slices.name])
            of_kinds = np.zeros(RUNTIME + 1, bool)
            of_kinds[list(kinds)] = True
            mask[rows[of_kinds[self.slices.kind[rows]]]] = True
        return mask

    def calls(self, mask: Mask, steps: Steps) -> I8:
        """The outermost slices of the mask on the training thread, in the window. Slices, in order."""
        rows = self.slices.outermost(mask & (self.slices.thread == steps.thread))
        return rows[steps.host_window.contains(self.slices.start[rows])].astype(np.int64)

    def work_under(self, mask: Mask) -> Mask:
        """The device's work that was launched inside the slices of the mask."""
        launch = self.links.launch_slice
        return np.asarray(self.slices.ancestor(launch, mask) >= 0)

    def work_ns(self, rows: I8) -> I8:
        """Time inside the window of the device's work that each of some slices launched. None of the slices, which are
        in order, may enclose another. Shape (len(rows),).
        """
        wanted = self.slices.mask(rows)
        owner = self.slices.ancestor(self.links.launch_slice, wanted)
        mine = owner >= 0
        out = np.zeros(len(rows), np.int64)
        np.add.at(out, np.searchsorted(rows, owner[mine]), self.gpu.step_ns[mine])
        return out

    @cached_property
    def computing_functions(self) -> Mask:
        """Python functions that take longer than the dispatch of an operator, and call none: no operator of their own,
        and not the engine, which runs operators in another thread.
        """
        slices, engine = self.slices, self.engine
        long = (slices.kind == PYTHON) & (slices.end - slices.start >= COMPUTES_NS)
        works = slices.encloses((slices.kind == OP) | (slices.kind == RUNTIME) | engine)
        return np.asarray(long & ~works & (slices.nearest(engine) < 0))

    def area(self, mask: Mask, thread: int | None = None) -> Intervals:
        """When the slices of the mask ran, on one thread or on any."""
        if thread is not None:
            mask = mask & (self.slices.thread == thread)
        return self.slices.area_of(mask) if mask.any() else EMPTY

    def own_time(self, optimizer: Mask, thread: int) -> Intervals:
        """When the optimizers of the mask update parameters, on one thread. If the optimizer step runs the forward and
        backward passes itself (a closure, as with LBFGS and Lightning), the time of the closure does not count. Without
        its frames, the step counts from the end of its last backward.
        """
        rows = np.flatnonzero(optimizer & (self.slices.thread == thread))
        start, end = self.slices.start[rows], self.slices.end[rows]
        closure = self.area(self.closure, thread)
        passes = np.flatnonzero(self.backward & ~closure.contains(self.slices.start))
        done = np.append(np.iinfo(np.int64).min, np.sort(self.slices.end[passes]))
        return subtract(union(np.maximum(start, done[np.searchsorted(done, end, side="right") - 1]), end), closure)

    @cached_property
    def closure(self) -> Mask:
        """Frames of what an optimizer step calls that is no part of the optimizer: closures and hooks. They are the
        user's or a model's code that torch's optimizer calls, except another `step`, or are named as closures.
        """
        slices = self.slices
        optimizer = self.named(library_frames.is_optimizer_frame, PYTHON)
        place = self.named(is_place, PYTHON)
        called = place & ~self.named(library_frames.is_optimizer_step_frame, PYTHON)
        caller = slices.ancestor(slices.parent, optimizer | place)
        called &= (caller >= 0) & optimizer[caller]
        called |= self.named(library_frames.is_closure_frame, PYTHON)
        return called & (slices.nearest(self.optimizer) >= 0)

    @cached_property
    def updates(self) -> Mask:
        """The slices inside Optimizer.step when it updates parameters."""
        slices = self.slices
        inside = slices.nearest(self.optimizer) >= 0
        out = np.zeros(len(slices), bool)
        for thread in distinct_values(slices.thread[self.optimizer]).tolist():  # mostly one
            rows = np.flatnonzero(inside & (slices.thread == thread))
            out[rows] = self.own_time(self.optimizer, thread).contains(slices.start[rows])
        return out

    @cached_property
    def update_work(self) -> Mask:
        """The device's work that optimizers launch to update parameters."""
        launch = self.links.launch_slice
        out = launch >= 0
        out[out] = self.updates[launch[out]]
        return out

    @cached_property
    def zero_grad(self) -> Mask:
        """Optimizer.zero_grad, annotated or as a Python frame of torch."""
        return self.named(op_names.is_zero_grad, ANNOTATION, OP) | self.named(
            lambda name: name.endswith(": zero_grad"), PYTHON
        )

    @cached_property
    def optimizer(self) -> Mask:
        """Optimizer.step."""
        return self.named(op_names.is_optimizer_step, ANNOTATION, OP)

    @cached_property
    def backward(self) -> Mask:
        """Evaluations of single nodes by the autograd engine."""
        return self.named(op_names.is_backward, OP, ANNOTATION)

    @cached_property
    def backward_passes(self) -> Intervals:
        """One interval per backward pass, from its first node to its last. Forward products separate the passes."""
        slices = self.slices
        nodes = np.flatnonzero(self.backward)
        nodes = nodes[np.argsort(slices.start[nodes], kind="stable")]
        product = np.flatnonzero(self.named(_is_forward_product, OP))
        forward = np.sort(slices.start[product[slices.ancestor(product, self.backward) < 0]])
        _, first = np.unique(np.searchsorted(forward, slices.start[nodes]), return_index=True)
        if not len(nodes):
            return EMPTY
        return Intervals(slices.start[nodes[first]], np.maximum.reduceat(slices.end[nodes], first))

    @cached_property
    def recompute(self) -> Mask:
        """Forward work that the backward pass repeats for activation checkpointing.

        The frames that do it, if Python stacks were recorded. Else, and for `use_reentrant=True`, the operators that
        only a forward pass calls, and those in the same backward node that record gradients.
        """
        slices, ops = self.slices, self.trace.ops
        again = self.named(library_frames.is_recompute_frame, PYTHON)
        forward = np.flatnonzero(self.named(op_names.FORWARD_ONLY.__contains__, OP))
        node = slices.ancestor(forward, self.backward)
        again[forward[node >= 0]] = True
        if (node >= 0).any():
            op = np.flatnonzero((slices.kind == OP) & ~self.backward)
            records = (ops.sequence[slices.row[op]] >= 0) & (ops.forward_thread[slices.row[op]] <= 0)
            op = op[records]
            again[op[np.isin(slices.ancestor(op, self.backward), node[node >= 0])]] = True
        return again

    @cached_property
    def checkpoint(self) -> Mask:
        """Calls of torch.utils.checkpoint.checkpoint."""
        return self.named(library_frames.is_checkpoint_frame, PYTHON)

    @cached_property
    def graph_launch(self) -> Mask:
        """The calls that launch a CUDA graph."""
        return self.named(runtime_calls.is_graph_launch, RUNTIME)

    @cached_property
    def engine(self) -> Mask:
        """The call of the autograd engine, which runs the nodes or waits for the threads that do."""
        return self.named(library_frames.is_engine_frame, PYTHON)

    @cached_property
    def sampler(self) -> Mask:
        """Calls of a DataLoader's sampler."""
        return self.named(library_frames.is_sampler_frame, PYTHON)

    @cached_property
    def data_code(self) -> Mask:
        """Code of DataLoaders and data sets."""
        return self.named(library_frames.is_data_frame, PYTHON)

    @cached_property
    def new_iterator(self) -> Mask:
        """Where the loop begins to read a DataLoader."""
        return self.named(library_frames.is_new_iterator_frame, PYTHON)

    @cached_property
    def next_batch(self) -> Mask:
        """Where the loop asks an iterator of a DataLoader for a batch."""
        return self.named(library_frames.is_next_batch_frame, PYTHON)

    @cached_property
    def pinning(self) -> Mask:
        """Where a thread of a DataLoader copies batches to pinned memory."""
        return self.named(library_frames.is_pinning_frame, PYTHON)

    @cached_property
    def pinned_tensors(self) -> Mask:
        """Copies of single tensors to pinned memory, by such a thread."""
        rows = np.flatnonzero(self.named(library_frames.is_pinned_tensor_frame, PYTHON))
        return self.slices.mask(rows[self.slices.ancestor(rows, self.pinning) >= 0])

    @cached_property
    def deep_copy(self) -> Mask:
        """`copy.deepcopy`, and its calls of itself for what an object holds."""
        return self.named(library_frames.is_deep_copy_frame, PYTHON)

    @cached_property
    def compiled(self) -> dict[str, int]:
        """The highest compilation number seen of each region that torch.compile compiled, by the region's frame number.
        The first compilation is 0.
        """
        out: dict[str, int] = {}
        for code in distinct_values(self.slices.name).tolist():
            if (region := torch_compile.compiled_region(self.trace.names[code])) is not None:
                frame, compiled = region
                out[frame] = max(out.get(frame, 0), compiled)
        return out

    @cached_property
    def compiled_work(self) -> Mask:
        """The device's kernels that torch.compile generated, or that its code launched."""
        code = self.named(torch_compile.is_compiled_code, ANNOTATION, OP)
        generated = np.array([is_inductor(name) for name in self.trace.names] or [False])[self.gpu.work.name]
        return np.asarray(self.gpu.is_kernel & (generated | self.work_under(code)))

    @cached_property
    def op_of_work(self) -> npt.NDArray[np.int64]:
        """Name code of the innermost operator that launched each row of the device's work; -1: none."""
        op = self.links.op
        if not len(self.trace.ops):
            return np.full(len(op), -1, np.int64)
        return np.where(op >= 0, self.trace.ops.name[np.maximum(op, 0)], -1).astype(np.int64)


def _is_forward_product(name: str) -> bool:
    return is_gemm(name) or name in op_names.FORWARD_ONLY or name == "aten::convolution"
