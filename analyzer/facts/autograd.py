"""Facts of the backward passes: their nodes, and which of them are for nothing."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import numpy as np

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals
from traceopt.analyzer.autograd.cleared_nodes import ClearedNodes, cleared_by_network, find_cleared_nodes
from traceopt.analyzer.autograd.dense_gradients import DenseGradients, find_dense_gradients
from traceopt.analyzer.autograd.foreach_updates import foreach_updates, updated_values
from traceopt.analyzer.autograd.forward.broadcast_pairs import AllPairs, find_broadcast_pairs
from traceopt.analyzer.autograd.forward.growing_results import (
    GrowingResults,
    find_growing_caches,
    find_growing_results,
)
from traceopt.analyzer.autograd.forward.one_hot_losses import OneHotLosses, find_one_hot_losses
from traceopt.analyzer.autograd.forward.one_hot_products import OneHotProducts, find_one_hot_products
from traceopt.analyzer.autograd.forward.repeated_constants import RepeatedConstants, find_repeated_constants
from traceopt.analyzer.autograd.forward.zero_products import ZeroProducts, find_zero_products
from traceopt.analyzer.autograd.gradient_loops import GradientLoop, find_gradient_loops
from traceopt.analyzer.autograd.host_reads import operators_for_host_reads
from traceopt.analyzer.autograd.module_passes import ModulePasses, find_ends, find_module_passes
from traceopt.analyzer.autograd.nodes import (
    ForwardOperators,
    accumulations_per_step,
    forward_operators,
    nodes_per_step,
    weight_products,
)
from traceopt.analyzer.autograd.repeated_nodes import repeated_nodes
from traceopt.analyzer.autograd.row_gradients import RowGradients, find_row_gradients
from traceopt.analyzer.autograd.sampling_gradients import SamplingGradients, find_sampling_gradients
from traceopt.analyzer.autograd.untrained_calls import (
    UntrainedCalls,
    calls_of_frozen_layers,
    calls_without_backward,
    calls_without_gradients,
)
from traceopt.analyzer.facts.work import WorkFacts
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON
from traceopt.analyzer.vocabulary import library_frames, op_names
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, FORWARD

SOON_NS = 5_000  # between two things that follow each other


class AutogradFacts(WorkFacts, frozen=True, dict=True):
    """Their nodes, and which of them are for nothing."""

    @cached_property
    def autograd_nodes(self) -> float:
        """Autograd nodes that the operators of a step record: the median of the steps."""
        return nodes_per_step(self.trace, self.steps)

    @cached_property
    def forward_operators(self) -> ForwardOperators:
        """The operators that the training thread calls outside of backward passes, and which create a node."""
        return forward_operators(self.regions, self.steps)

    @cached_property
    def calls_without_gradients(self) -> UntrainedCalls | None:
        """Forward passes of a training step that run without gradients; None if the trace does not tell."""
        rows = calls_without_gradients(self.regions, self.steps, self.forward_operators)
        return None if rows is None else self._untrained(rows)

    @cached_property
    def calls_without_backward(self) -> UntrainedCalls:
        """Forward passes of a training step that record gradients which no backward pass uses."""
        return self._untrained(calls_without_backward(self.regions, self.steps))

    @cached_property
    def calls_of_frozen_layers(self) -> UntrainedCalls:
        """Forward passes of a training step with gradients on in which nothing has a gradient."""
        return self._untrained(calls_of_frozen_layers(self.regions, self.steps, self.forward_operators))

    @cached_property
    def accumulations(self) -> float:
        """How often a step adds to the gradient of a parameter."""
        return accumulations_per_step(self.regions, self.steps)

    @cached_property
    def backward_products(self) -> I8:
        """Matmuls and convolutions of backward passes: gradients of weights and of activations. Slices."""
        return weight_products(self.regions, self.steps)

    def passes_of(self, classes: Collection[str]) -> ModulePasses:
        """The backward passes of modules of these classes; without frames of their calls, none."""
        return find_module_passes(self.regions, self.steps, classes)

    @cached_property
    def backward_ends(self) -> float:
        """How many layers per step have no gradient of their input, because it is data; 0 if that was not recorded."""
        return find_ends(self.regions, self.steps)

    @cached_property
    def backward_nodes(self) -> I8:
        """The nodes of backward passes in the window. Slices, in order."""
        return self._in_window(self.regions.backward)

    @cached_property
    def searches_for_unused(self) -> I8:
        """Searches of DistributedDataParallel for unused parameters, in the window. Slices, in order."""
        return self._in_window(self.regions.named(op_names.is_search_for_unused, OP, ANNOTATION))

    @cached_property
    def waits_for_used_parameters(self) -> Intervals:
        """When the main thread of a CPU-only run waits until the ranks have told each other which parameters they used:
        right after DistributedDataParallel, which looks for unused ones, has copied the last gradient back.
        """
        copies = self._in_window(self.regions.named(op_names.is_gradient_bucket_copy, OP, ANNOTATION))
        waits = EMPTY if self.has_gpu else self.cpu_phases.areas[COMMUNICATION]
        if not len(self.searches_for_unused) or not len(copies) or not len(waits):
            return EMPTY
        step = self.steps.host_step_of(self.slices.start[copies])
        last = self.slices.end[copies[np.diff(step, append=self.steps.count) != 0]]
        wait = np.minimum(np.searchsorted(waits.start, last), len(waits) - 1)
        wait = wait[np.abs(waits.start[wait] - last) <= SOON_NS]
        return Intervals(waits.start[wait], waits.end[wait])

    @cached_property
    def indexing_backward(self) -> I8:
        """The backward nodes of `x[i]`, `x[a:b]` and `x[indices]` in the window, without those inside paddings and in
        torch's layers. Slices, in order.
        """
        kinds = op_names.is_index_backward, op_names.is_index_tensor_backward
        nodes = self._in_window(np.any([self.regions.named(kind, OP) for kind in kinds], axis=0))
        forward = self.call_sites.forward_of(nodes)
        paddings = self.regions.named(op_names.is_padding, OP)
        padded = (forward >= 0) & (self.slices.ancestor(np.maximum(forward, 0), paddings) >= 0)
        code = self.slices.ancestor(forward, self.regions.named(library_frames.is_code_frame, PYTHON))
        of_layer = (code >= 0) & self.regions.named(library_frames.is_layer_frame, PYTHON)[np.maximum(code, 0)]
        return nodes[~padded & ~of_layer]

    @cached_property
    def indexes_by_rows(self) -> Mask:
        """The backward nodes of `x[indices]`. Shape (len(slices),)."""
        return self.regions.named(op_names.is_index_tensor_backward, OP)

    @cached_property
    def row_gradients(self) -> RowGradients:
        """The backward passes of `x[indices]` and of embeddings in the window, which add up gradients of rows."""
        return find_row_gradients(self.regions, self.steps, self.call_sites)

    @cached_property
    def sampling_gradients(self) -> SamplingGradients:
        """The backward passes of grid_sample and of interpolation in the window."""
        return find_sampling_gradients(self.regions, self.steps)

    @cached_property
    def one_hot_products(self) -> OneHotProducts:
        """Matmuls of a one-hot matrix and a parameter, in the window, with their backward pass."""
        return find_one_hot_products(self.regions, self.steps)

    @cached_property
    def one_hot_losses(self) -> OneHotLosses:
        """Losses in the window that multiply log-probabilities by a one-hot matrix, with their backward pass."""
        return find_one_hot_losses(self.regions, self.steps)

    @cached_property
    def zero_products(self) -> ZeroProducts:
        """Matmuls with a matrix that is almost all zero, in the window, with their backward pass."""
        return find_zero_products(self.regions, self.steps, self.captured.mostly_zero)

    @cached_property
    def broadcast_pairs(self) -> tuple[AllPairs, ...]:
        """Distances and products of all pairs of vectors in the window, computed through a tensor of all pairs."""
        return find_broadcast_pairs(self.regions, self.steps)

    @cached_property
    def growing_results(self) -> GrowingResults:
        """Concatenations in the window that copy the result of an earlier one again."""
        return find_growing_results(self.regions, self.steps)

    @cached_property
    def growing_caches(self) -> GrowingResults:
        """Concatenations in the window that append the keys or values of one token to those of all tokens so far."""
        return find_growing_caches(self.regions, self.steps)

    @cached_property
    def foreach_updates(self) -> I8:
        """The multi-tensor operators of the optimizer. Slices."""
        return foreach_updates(self.regions)

    @cached_property
    def foreach_values(self) -> float:
        """How many values the multi-tensor operators of the optimizer update in each step; 0 if unknown."""
        rows = self.foreach_updates
        return updated_values(self.regions, rows[self.steps.host_window.contains(self.slices.start[rows])]) / max(
            1, self.steps.count
        )

    @cached_property
    def dense_gradients(self) -> DenseGradients:
        """Lookups of few rows of large tables in the window, whose gradient has the size of the table."""
        return find_dense_gradients(self.regions, self.steps)

    @cached_property
    def gradient_loops(self) -> tuple[GradientLoop, ...]:
        """Lines that call the autograd engine for each row of a Jacobian, or for each sample, in the window."""
        return find_gradient_loops(self.regions, self.steps, self.call_sites)

    @cached_property
    def repeated_backward(self) -> I8:
        """The nodes of backward passes that an earlier pass over the same forward pass has run too. Slices."""
        return repeated_nodes(self.regions, self.steps)

    @cached_property
    def operators_for_host_reads(self) -> I8:
        """Operators of the window that only compute values which the host reads on the same line. Slices, in order."""
        return operators_for_host_reads(self.regions, self.steps, self.call_sites, self.forward_operators)

    @cached_property
    def cleared_nodes(self) -> tuple[ClearedNodes, ...]:
        """The backward nodes that compute gradients which the script clears before an optimizer reads them."""
        found = (
            find_cleared_nodes(self.regions, self.steps, gradient) for gradient in self.captured.cleared_gradients or ()
        )
        return cleared_by_network(one for one in found if one is not None)

    @cached_property
    def repeated_constants(self) -> RepeatedConstants:
        """Tensors without gradients that a step builds several times in the same way."""
        return find_repeated_constants(self.regions, self.steps, self.forward_operators)

    def calls_that_made(self, nodes: I8) -> I8:
        """The outermost calls whose forward operators made only these backward nodes. Slices, in order."""
        slices, forward = self.slices, self.call_sites.forward_of(self.backward_nodes)
        mine = slices.ancestor(self.backward_nodes, slices.mask(nodes)) >= 0
        others = slices.mask(forward[~mine & (forward >= 0)]) | self.regions.engine
        alone = slices.mask(slices.outermost(~slices.encloses(others)))
        calls = slices.ancestor(forward[mine & (forward >= 0)], alone)
        return distinct_values(calls[calls >= 0]).astype(np.int64)

    def _in_window(self, wanted: Mask) -> I8:
        rows = np.flatnonzero(wanted)
        return rows[self.steps.window.contains(self.slices.start[rows])].astype(np.int64)

    def _untrained(self, rows: I8) -> UntrainedCalls:
        if self.has_gpu:
            return UntrainedCalls(rows, self.regions.work_ns(rows))
        forward = self.cpu_phases.areas[FORWARD]
        return UntrainedCalls(rows, forward.within(self.slices.start[rows], self.slices.end[rows]))
