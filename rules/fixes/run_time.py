"""What of a fix `traceopt try` can make while the script starts, without a change of its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from traceopt.result.edits import Compile, SetVariable
from traceopt.result.finding import Fix
from traceopt.rules.fixes.optimizers import FUSED_ON_CPU

# A result document may come from anywhere, so only these variables are set.
_VARIABLES = (
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_"),
    *("OMP_NUM_THREADS", "CUDA_MODULE_LOADING", "NCCL_MAX_NCHANNELS"),
)
_MOST_WORKERS = 999
# Each run compiles anew, as the first run on a machine does: what that takes is counted.
NO_COMPILE_CACHE = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
_ON = {"True": True}
# For a setting of an edit: the switch with the same effect (capture/script/switches/) and its value for each value of
# the setting; an empty mapping if the value does not matter.
_SWITCHES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "DataLoader.num_workers": ("loader_workers", {str(count): count for count in range(_MOST_WORKERS + 1)}),
    "DataLoader.persistent_workers": ("persistent_workers", _ON),
    "DataLoader.pin_memory": ("pin_memory", _ON),
    "DataLoader.sampler": ("batch_fetch", {}),
    "gc.freeze": ("gc_freeze", {}),
    "model.to.memory_format": ("channels_last", {"torch.channels_last": True}),
    "model.no_sync": ("reduce_once", {}),
    "torch.backends.cudnn.allow_tf32": ("tf32", _ON),
    "torch.backends.cudnn.benchmark": ("cudnn_benchmark", _ON),
    "torch.compile": ("compile", {"model": {}}),
    "torch.set_flush_denormal": ("flush_denormal", _ON),
    "torch.save.every": ("rare_saves", {}),
    "torch.set_float32_matmul_precision": ("tf32", {'"high"': True}),
    **{f"torch.optim.{kind}.fused": ("fused_optimizer", _ON) for kind in FUSED_ON_CPU},
}


class AtRunTime(Struct, frozen=True):
    """Switches of the recording and variables of the environment."""

    switches: dict[str, Any]
    environment: dict[str, str]


def without_compile_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables without those that make each run compile anew."""
    return {name: value for name, value in environment.items() if name not in NO_COMPILE_CACHE}


def at_run_time(fix: Fix) -> AtRunTime | None:
    """None if nothing has the effect of the fix."""
    if any(isinstance(edit, Compile) and edit.arguments for edit in fix.edits):
        return None  # such advice is for code that is compiled already
    switches: dict[str, Any] = {}
    for name, value in fix.settings.items():
        switch, values = _SWITCHES.get(name, ("", {}))
        if values and value not in values:
            return None
        if switch:
            switches[switch] = values.get(value, True)
    variables = [edit for edit in fix.edits if isinstance(edit, SetVariable) and edit.name in _VARIABLES]
    environment = {edit.name: edit.value for edit in variables if edit.value is not None}
    if "compile" in switches:
        environment |= NO_COMPILE_CACHE
    return AtRunTime(switches, environment) if switches or environment else None
