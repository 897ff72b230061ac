"""The models, optimizers and DataLoaders of the script, found among the objects that Python tracks."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ..or_none import or_none
from .constructions import built
from .values.subnormals import Subnormals

MOST = 20  # described per kind
MOST_WATCHED = 8  # weights of a model
SAMPLED, LARGEST = 64, 1 << 24  # values that are read of a weight; elements of one that is watched
OPTIMIZER_FLAGS = ("foreach", "fused", "capturable", "differentiable")


def take_inventory(torch: Any, by_hand: ByHand | None = None, subnormals: Subnormals | None = None) -> dict[str, Any]:
    """Walks over all objects once per run, between two steps; 57 ms for 400,000 objects.

    `by_hand` watches the weights that no optimizer updates.
    """
    data = sys.modules.get("torch.utils.data")
    loader_class: Any = getattr(data, "DataLoader", ())
    modules, optimizers, loaders, tensors = [], [], [], []
    for thing in gc.get_objects():
        kind = type(thing)  # isinstance would run the code of proxies and lazy modules
        if issubclass(kind, torch.nn.Module):
            modules.append(thing)
        elif issubclass(kind, torch.optim.Optimizer):
            optimizers.append(thing)
        elif issubclass(kind, loader_class):
            loaders.append(thing)
        elif issubclass(kind, torch.Tensor):
            tensors.append(thing)
    roots = list(_roots(modules))
    updated, by_hand = Updated(optimizers, roots), by_hand or ByHand(torch)
    return {
        "models": _described(lambda torch, module: describe_model(torch, module, updated, by_hand), torch, roots),
        "optimizers": _described(describe_optimizer, torch, _unwrapped(optimizers)),
        "loaders": _described(describe_loader, torch, loaders),
        "subnormals": (subnormals or Subnormals(torch)).take(tensors, optimizers),
    }


class Updated:
    """The tensors that optimizers update."""

    def __init__(self, optimizers: Iterable[Any], modules: Iterable[Any]) -> None:
        self._known, self._copies = set[int](), list[Any]()
        with suppress(Exception):  # classes with unusual behavior
            of_modules = {id(parameter) for module in modules for parameter in module.parameters()}
            for optimizer in optimizers:
                tensors = [one for group in optimizer.param_groups for one in group["params"]]
                self._known |= {id(tensor) for tensor in tensors}
                self._copies += [tensor for tensor in tensors if id(tensor) not in of_modules]

    def missing(self, parameters: list[Any]) -> list[Any]:
        """Those of the parameters that no optimizer updates. Optimizers for mixed precision and sharded ones update
        copies, which have the same shapes or are flat: such parameters are not missing.
        """
        left = [parameter for parameter in parameters if id(parameter) not in self._known]
        elements = sum(one.numel() for one in left)
        if any(copy.dim() == 1 and 2 * copy.numel() >= elements for copy in self._copies):
            return []
        shapes = {tuple(copy.shape) for copy in self._copies}
        return [one for one in left if tuple(one.shape) not in shapes]


class ByHand:
    """Weights that have gradients but belong to no optimizer: their values tell whether the script updates them."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._watched: list[tuple[dict[str, Any], weakref.ref[Any], str]] = []

    def watch(self, model: dict[str, Any], weights: list[Any]) -> None:
        """`model`: its description, which gets the answer."""
        for weight in weights[:MOST_WATCHED]:
            values = self._some_values(weight)
            if values is not None:
                self._watched.append((model, weakref.ref(weight), values))

    def look_again(self) -> None:
        """Called some steps later. A weight that cannot be read then tells nothing."""
        for model, reference, values in self._watched:
            latest = self._some_values(reference())
            if latest is not None:
                model["updated_by_hand"] = bool(model["updated_by_hand"]) or latest != values

    def _some_values(self, weight: Any) -> str | None:
        """As a text, in which NaN equals NaN. None for a weight that is gone, sharded, very large or not contiguous,
        and on a GPU that is busy: it may never be done.
        """
        with suppress(Exception):
            plain = type(weight).__name__ in ("Parameter", "Tensor") and weight.is_contiguous()
            if plain and 0 < weight.numel() <= LARGEST and self._is_idle(weight.device):
                return repr(weight.detach().view(-1)[:: max(1, weight.numel() // SAMPLED)].tolist())
        return None

    def _is_idle(self, device: Any) -> bool:
        """Whether values can be read from a device without a wait."""
        cuda = device.type == "cuda"
        return bool(self._torch.cuda.current_stream(device).query() if cuda else device.type == "cpu")


def describe_model(torch: Any, module: Any, updated: Updated, by_hand: ByHand) -> dict[str, Any]:
    parameters = list(module.parameters())
    gradients = [p for p in parameters if p.requires_grad and p.grad is not None]
    unused = updated.missing(gradients)
    found = {
        "class": class_name(module),
        "training": module.training,
        **_parameter_counts(parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "gradients": {
            "tensors": len(gradients),
            "unused_tensors": len(unused),
            "weights": _weight_elements(torch, module, gradients),
            "unused_weights": _weight_elements(torch, module, unused),
        },
        "module_count": sum(1 for _ in module.modules()),
        "wrapped": class_name(module.module) if isinstance(getattr(module, "module", None), torch.nn.Module) else None,
        "compiled": type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None,
        "channels_last": _channels_last(torch, parameters),
        "updated_by_hand": None,
    }
    by_hand.watch(found, unused)
    return found


def describe_optimizer(_: Any, optimizer: Any) -> dict[str, Any]:
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    return {
        "class": class_name(optimizer),
        "groups": len(groups),
        **_parameter_counts(parameters),
        **{flag: groups[0].get(flag) for flag in OPTIMIZER_FLAGS},
        "built": built(optimizer),
    }


def describe_loader(_: Any, loader: Any) -> dict[str, Any]:
    """What a library's own loader does not have is None."""

    def of(name: str) -> Any:
        return getattr(loader, name, None)

    context, collate, dataset, pinned = map(of, ("multiprocessing_context", "collate_fn", "dataset", "pin_memory"))
    return {
        "dataset": class_name(dataset) if dataset is not None else None,
        "dataset_length": _length(dataset),
        "batch_size": of("batch_size"),
        "sampler": class_name(of("sampler")) if of("sampler") is not None else None,
        "collate": getattr(collate, "__qualname__", class_name(collate)) if collate is not None else None,
        "num_workers": of("num_workers"),
        "prefetch_factor": of("prefetch_factor"),
        "persistent_workers": of("persistent_workers"),
        "pin_memory": bool(pinned) if pinned is not None else None,
        "drop_last": of("drop_last"),
        "start_method": context.get_start_method() if hasattr(context, "get_start_method") else None,
        "built": built(loader),
    }


def _described(describe: Any, torch: Any, things: Iterable[Any]) -> list[dict[str, Any]]:
    rows = []
    for thing in things:
        with suppress(Exception):  # a half-built object, or a class with unusual behavior: it is left out
            rows.append(describe(torch, thing))
        if len(rows) == MOST:
            break
    return rows


def roots_of(torch: Any) -> list[Any]:
    """All modules of the process that have parameters and are not part of another module. Walks over all objects."""
    return list(_roots([thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]))


def _roots(modules: list[Any]) -> Iterator[Any]:
    """Modules that have parameters and are not part of another module."""
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    for module in modules:
        if id(module) not in inner and "_modules" in module.__dict__ and next(module.parameters(), None) is not None:
            yield module


def _unwrapped(optimizers: list[Any]) -> list[Any]:
    """Without those of Accelerate and Lightning, which only pass calls on to the optimizer that they hold."""
    known = {id(optimizer) for optimizer in optimizers}

    def wraps(optimizer: Any) -> bool:
        return any(
            id(value) in known and value is not optimizer for value in getattr(optimizer, "__dict__", {}).values()
        )

    return [optimizer for optimizer in optimizers if not wraps(optimizer)]


def _parameter_counts(parameters: list[Any]) -> dict[str, Any]:
    """Number of tensors, elements by dtype, tensors by device."""
    dtypes: dict[str, int] = {}
    devices: dict[str, int] = {}
    for parameter in parameters:
        dtype, device = str(parameter.dtype).removeprefix("torch."), str(parameter.device)
        dtypes[dtype] = dtypes.get(dtype, 0) + parameter.numel()
        devices[device] = devices.get(device, 0) + 1
    return {"tensors": len(parameters), "parameters": sum(dtypes.values()), "dtypes": dtypes, "devices": devices}


def _weight_elements(torch: Any, module: Any, parameters: list[Any]) -> int:
    """Elements of the parameters that are factors of matmuls, or filters."""
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    rows = {id(one.weight) for one in module.modules() if isinstance(one, tables)}
    return sum(parameter.numel() for parameter in parameters if parameter.dim() > 1 and id(parameter) not in rows)


def _channels_last(torch: Any, parameters: list[Any]) -> bool | None:
    """Whether the filters larger than 1 x 1 are channels-last; None without such filters."""
    filters = [p for p in parameters if p.dim() == 4 and p.shape[1] > 1 and max(p.shape[2:]) > 1]
    return all(p.is_contiguous(memory_format=torch.channels_last) for p in filters) if filters else None


def class_name(thing: Any) -> str:
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def _length(dataset: Any) -> int | None:
    """Length of datasets that come with torch; __len__ of other datasets is the user's code."""
    return or_none(len, dataset) if type(dataset).__module__.startswith("torch.") else None
