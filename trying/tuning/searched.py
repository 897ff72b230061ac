"""Values of settings that no trace can tell exactly, so that they are searched for."""

from __future__ import annotations

from msgspec import Struct

from traceopt.trying.changes import Change

MOST_WORKERS = 16


class Search(Struct, frozen=True):
    """One setting, or several that depend on each other, with the values to choose from."""

    name: str
    values: list[Change]


def searches(*, cores: int, gpu: bool, has_loader: bool, numerics: bool) -> list[Search]:
    """`cores` that the script may use. `numerics`: whether values that change rounding are allowed."""
    found = []
    if has_loader:
        workers = [_workers(count, factor) for count in _powers(min(cores, MOST_WORKERS)) for factor in (2, 8)]
        found.append(Search("the data loader", workers))
    if not gpu:
        threads = [_variable("OMP_NUM_THREADS", str(count)) for count in _powers(cores)]
        found.append(Search("threads", threads))
    else:
        found.append(Search("the allocator", [_variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")]))
        found.append(Search("cuDNN", [_switch("torch.backends.cudnn.benchmark = True", cudnn_benchmark=True)]))
        if numerics:
            found.append(Search("matmul precision", [_switch('torch.set_float32_matmul_precision("high")', tf32=True)]))
    return found


def _workers(count: int, factor: int) -> Change:
    name = f"num_workers={count}, prefetch_factor={factor}"
    return _switch(name, loader_workers=count, prefetch_factor=factor, persistent_workers=True)


def _switch(name: str, **switches: object) -> Change:
    return Change(name, "searched", name, "runtime", switches=dict(switches))


def _variable(name: str, value: str) -> Change:
    text = f"{name}={value}"
    return Change(text, "searched", text, "environment", environment={name: value})


def _powers(most: int) -> list[int]:
    """1, 2, 4, ... and the largest itself."""
    return sorted({1 << shift for shift in range(most.bit_length())} | {most})
