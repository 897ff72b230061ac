"""Settings that `traceopt try` changes while the script starts, without a change of its source.

`loader_workers` N, `prefetch_factor` N, `pin_memory`, `persistent_workers`: of every DataLoader whose dataset has an
order. `batch_fetch`: a
DataLoader takes the batches of a TensorDataset at once.
`fused_optimizer`, `tf32`, `cudnn_benchmark`, `flush_denormal`, `gc_freeze`: on. `rare_saves`: torch.save in a loop
writes the first time and then every 500th time. `reduce_once`: gradient accumulation reduces once per update.
`bucket_cap_mb` N: of each DistributedDataParallel. Each reports when it takes effect. (`compile` and `channels_last`
are in models.py, `seed` in seeds.py.)
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from ...recording.timed_steps import TimedSteps
from ..dynamo import Dynamo
from ..imports import when_imported
from . import models, reduce_once

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
SAVE_EVERY = 500
LOADER = ("loader_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_fetch")
FOR_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")


def turn_on(torch: Any, timed: TimedSteps, dynamo: Dynamo) -> None:
    switches = timed.switches
    if switches.get("tf32"):
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        timed.used("tf32")
    if switches.get("cudnn_benchmark"):
        torch.backends.cudnn.benchmark = True
        timed.used("cudnn_benchmark")
    if switches.get("flush_denormal") and torch.set_flush_denormal(True):
        timed.used("flush_denormal")
    if switches.get("gc_freeze"):
        timed.at_settled.append(lambda: _freeze(timed))
    if switches.get("fused_optimizer"):
        for name in FUSED:
            _fuse(getattr(torch.optim, name, None), timed, dynamo)
    if switches.get("rare_saves"):
        _save_rarely(torch, timed, dynamo)
    if switches.get(reduce_once.SWITCH):
        reduce_once.turn_on(torch, timed.used, dynamo)
    models.turn_on(torch, timed, dynamo)
    if switches.get("bucket_cap_mb"):
        when_imported("torch.nn.parallel.distributed", lambda loaded: _change_buckets(loaded, timed, dynamo))
    if any(name in switches for name in LOADER):
        when_imported("torch.utils.data.dataloader", lambda loaded: _change_loaders(torch, loaded, timed, dynamo))


def _freeze(timed: TimedSteps) -> None:
    gc.collect()
    gc.freeze()
    timed.used("gc_freeze")


def _fuse(optimizer: Any, timed: TimedSteps, dynamo: Dynamo) -> None:
    if optimizer is None or "fused" not in inspect.signature(optimizer.__init__).parameters:
        return

    def change(arguments: dict[str, Any]) -> list[str]:
        if arguments.get("fused") is not None or arguments.get("foreach"):
            return []
        arguments["fused"] = True
        return ["fused_optimizer"]

    optimizer.__init__ = _with_changed_arguments(optimizer.__init__, change, timed, dynamo)


def _save_rarely(torch: Any, timed: TimedSteps, dynamo: Dynamo) -> None:
    """Counts by line. What is saved to memory is needed, and so is a part of a save: pickling calls torch.save."""
    original, count = torch.save, dict[tuple[str, int], int]()

    @functools.wraps(original)
    @dynamo.exclude
    def save(*args: Any, **kwargs: Any) -> None:
        target = args[1] if len(args) > 1 else kwargs.get("f")
        if isinstance(target, (str, os.PathLike)):
            caller = sys._getframe(1)
            line = caller.f_code.co_filename, caller.f_lineno
            count[line] = count.get(line, 0) + 1
            if count[line] % SAVE_EVERY != 1:
                timed.used("rare_saves")
                return
        original(*args, **kwargs)

    torch.save = save


def _change_buckets(distributed: Any, timed: TimedSteps, dynamo: Dynamo) -> None:
    def change(arguments: dict[str, Any]) -> list[str]:
        if arguments.get("bucket_cap_mb") is not None:
            return []
        arguments["bucket_cap_mb"] = timed.switches["bucket_cap_mb"]
        return ["bucket_cap_mb"]

    kind = distributed.DistributedDataParallel
    kind.__init__ = _with_changed_arguments(kind.__init__, change, timed, dynamo)


def _takes_batches(data: Any, arguments: dict[str, Any]) -> bool:
    """Changes the arguments, if the loader gives the same batches then."""
    dataset, size = arguments.get("dataset"), arguments.get("batch_size", 1)
    chosen = ("sampler", "batch_sampler", "collate_fn")
    if type(dataset) is not data.TensorDataset or not size or any(arguments.get(name) for name in chosen):
        return False
    shuffle, drop_last = arguments.pop("shuffle", False), arguments.pop("drop_last", False)
    generator = arguments.get("generator")
    order = data.RandomSampler(dataset, generator=generator) if shuffle else data.SequentialSampler(dataset)
    arguments |= {"sampler": data.BatchSampler(order, size, drop_last), "batch_size": None}
    return True


def _change_loaders(torch: Any, dataloader: Any, timed: TimedSteps, dynamo: Dynamo) -> None:
    loader, switches = dataloader.DataLoader, timed.switches

    def change(arguments: dict[str, Any]) -> list[str]:
        if isinstance(arguments.get("dataset"), dataloader.IterableDataset):  # each worker would deliver all of it
            return []
        used = []
        workers = switches.get("loader_workers")
        if workers and arguments.get("num_workers", 0) < workers:
            arguments["num_workers"] = workers
            used.append("loader_workers")
        if workers == 0 and arguments.get("num_workers", 0):
            for name in ("num_workers", *FOR_WORKERS):
                arguments.pop(name, None)
            used.append("loader_workers")
        factor = switches.get("prefetch_factor")
        if factor and arguments.get("num_workers", 0) and arguments.get("prefetch_factor") != factor:
            arguments["prefetch_factor"] = factor
            used.append("prefetch_factor")
        if switches.get("batch_fetch") and _takes_batches(torch.utils.data, arguments):
            used.append("batch_fetch")
        if switches.get("pin_memory") and not arguments.get("pin_memory"):
            arguments["pin_memory"] = True
            used.append("pin_memory")
        wanted = switches.get("persistent_workers") and arguments.get("num_workers", 0) > 0
        if wanted and not arguments.get("persistent_workers"):
            arguments["persistent_workers"] = True
            used.append("persistent_workers")
        return used

    loader.__init__ = _with_changed_arguments(loader.__init__, change, timed, dynamo)


def _with_changed_arguments(
    original: Callable[..., None], change: Callable[[dict[str, Any]], list[str]], timed: TimedSteps, dynamo: Dynamo
) -> Callable[..., None]:
    """The constructor with changed arguments. If it refuses them, it gets those of the script."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    @dynamo.exclude
    def init(*args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(*args, **kwargs)
            used = change(bound.arguments)
            original(*bound.args, **bound.kwargs)
        except Exception:
            original(*args, **kwargs)
            return
        for switch in used:
            timed.used(switch)

    return init
