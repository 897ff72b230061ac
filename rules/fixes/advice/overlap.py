"""How to overlap a collective with compute: for each kind, the edit that can hide it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.analyzer.facts import Facts
from traceopt.result.edits import Wrap
from traceopt.result.finding import Fix

GRADIENT_SHARE = 0.5  # of the exposed time of the all-reduces: if backward passes launch as much, they reduce gradients

NO_SYNC = Wrap("model.no_sync", "loss = model(inputs) / micro_steps\nloss.backward()")
_LARGER_BUCKETS = "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True, static_graph=True)"
_GRADIENTS = "Start all-reduces of gradients earlier and in larger buckets, so that the backward pass hides them."
_PREFETCH = Fix(
    "Prefetch: gather the weights of the next layer, and reduce the gradients of the last one, while this layer "
    "computes. FSDP2 does it with set_modules_to_forward_prefetch and set_modules_to_backward_prefetch, FSDP1 with "
    "forward_prefetch=True and backward_prefetch, DeepSpeed with overlap_comm.",
    "for layer, following in itertools.pairwise(model.layers):\n"
    "    layer.set_modules_to_forward_prefetch([following])\n"
    "    following.set_modules_to_backward_prefetch([layer])",
)
_OTHERS = Fix(
    "Start each collective as soon as its input is ready, and wait for it only where its result is needed, with "
    "compute that does not need it in between.",
    "work = dist.all_reduce(tensor, async_op=True)\nindependent = compute(other)\nwork.wait()",
)
_NEXT_INPUTS = (
    " For embeddings, exchange the inputs of the next batch while this one computes, as TorchRec's "
    "TrainPipelineSparseDist does."
)
_FIXES: Mapping[str, Fix] = {
    "all_gather": _PREFETCH,
    "reduce_scatter": _PREFETCH,
    "all_to_all": Fix(
        "Start each all-to-all as soon as its input is ready, and wait for it only where its result is needed."
        f"{_NEXT_INPUTS} For experts, let two halves of the batch take turns.",
        "work = dist.all_to_all_single(output, rows, async_op=True)\n"
        "dense = bottom_mlp(features)   # does not need the exchange\n"
        "work.wait()",
    ),
    "broadcast": Fix(
        "Broadcast only what other ranks need in this step. If DistributedDataParallel broadcasts the running "
        "statistics of BatchNorm, turn that off. Start other broadcasts early, and wait where the result is needed.",
        "work = dist.broadcast(tensor, src=0, async_op=True)\nindependent = compute(other)\nwork.wait()",
    ),
}


def overlap_fix(facts: Facts) -> Fix:
    """The edit that can hide the kind of collective with the most exposed time in a training."""
    calls = facts.collectives[0]
    if calls.name != "all_reduce" or not _reduces_gradients(facts, calls):
        fix = _FIXES.get(calls.name, _OTHERS)
        return replace(fix, text=fix.text.replace(_NEXT_INPUTS, "")) if facts.exchanges_next_inputs else fix
    if facts.regions.optimizer.any() and facts.gradient_reductions.before_last_pass:
        return Fix(f"{_GRADIENTS} Skip them in all micro-steps but the last.", edits=[NO_SYNC])
    return Fix(_GRADIENTS, _LARGER_BUCKETS)


def _reduces_gradients(facts: Facts, calls: CollectiveCalls) -> bool:
    """Whether backward passes launch most of these all-reduces, or no backward pass was recorded that could."""
    if not len(facts.regions.backward_passes):
        return True
    reductions = facts.gradient_reductions
    of_gradients = reductions.exposed[np.isin(reductions.rows, calls.rows)].sum()
    return bool(of_gradients >= GRADIENT_SHARE * calls.exposed.sum())
