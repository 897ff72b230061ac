"""Which part of the start-up a stack belongs to, by the names of its frames."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Literal, NamedTuple

from ..metadata.user_line import is_user_code
from .stack_sampler import IMPORT_SYSTEM

Part = Literal[
    "imports",
    "downloads",
    "data",
    "model",
    "checkpoint",
    "device",
    "process_group",
    "compilation",
    "first_batch",
    "first_step",
    "other",
]

MODULE = "<module>"  # the code of a module, as opposed to a function
_PACKAGE = re.compile(r"(?:site|dist)-packages[/\\]([^/\\.]+)")


class Frame(NamedTuple):
    """A frame of a stack. `base` is "model" or "data" for a method of such a class, else None."""

    file: str
    function: str
    base: Part | None = None


# Whatever these functions call belongs to the part. Each pattern matches "path: function" from the package's name on.
_CONTAINERS: tuple[tuple[Part, str], ...] = (
    ("first_batch", r"torch/utils/data/dataloader\.py: (?:__next__|__iter__|_get_iterator|_next_data|_get_data)"),
    (
        "compilation",
        r"torch/_dynamo/convert_frame\.py: .*"
        r"|torch/_inductor/(?:compile_fx|codecache|async_compile|graph|scheduler)\.py: .*"
        r"|torch/_functorch/aot_autograd\.py: (?:aot_module_simplified|create_aot_dispatcher_function)"
        r"|torch/utils/cpp_extension\.py: (?:load|load_inline|_jit_compile)"
        r"|torch/jit/_(?:script|trace)\.py: (?:script|trace)"
        r"|triton/compiler/compiler\.py: .*|numba/core/(?:compiler|dispatcher)\.py: (?:compile\w*|_compile_for_args)",
    ),
)

# The innermost frame that one of these names decides.
_CALLS: tuple[tuple[Part, str], ...] = (
    (
        "downloads",
        r"huggingface_hub/(?:file_download|_snapshot_download|hf_api|hf_file_system|utils/_http|utils/_xet\w*)\.py: .*"
        r"|torch/hub\.py: (?:download_url_to_file|_get_git_archive|_download_\w+)",
    ),
    (
        "checkpoint",
        r"torch/serialization\.py: (?:load|_load|_legacy_load|persistent_load|load_tensor)"
        r"|torch/nn/modules/module\.py: (?:load_state_dict|_load_from_state_dict)"
        r"|torch/optim/optimizer\.py: load_state_dict|safetensors/.*: (?:load\w*|safe_open)"
        r"|torch/distributed/checkpoint/state_dict_loader\.py: .*"
        r"|transformers/(?:modeling_utils|core_model_loading)\.py: (?:from_pretrained|_?load_\w+|convert_and_load\w*)"
        r"|diffusers/.*: from_pretrained|deepspeed/runtime/engine\.py: load_checkpoint",
    ),
    (
        "data",
        r"datasets/.*|tokenizers/.*|tiktoken/.*|sentencepiece/.*|webdataset/.*|streaming/base/.*"
        r"|transformers/(?:tokenization_\w+|models/[^:]*tokenization_\w+|models/auto/tokenization_auto)\.py: .*"
        r"|torch(?:vision|audio|text)/datasets/.*|pandas/io/.*|pyarrow/(?:parquet|dataset|csv|feather)\b.*",
    ),
    (
        "process_group",
        r"torch/distributed/(?:distributed_c10d|rendezvous|device_mesh)\.py: .*"
        r"|torch/nn/parallel/distributed\.py: __init__"
        r"|torch/distributed/(?:fsdp|_composable)/.*: (?:__init__|fully_shard)",
    ),
    ("device", r"torch/(?:cuda|xpu)/__init__\.py: (?:_lazy_init|init)"),
    (
        "model",
        r"torch/nn/init\.py: .*|torch/nn/modules/module\.py: (?:to|cuda|_apply|to_empty|apply)"
        r"|torch/nn/modules/[^:]*: (?:__init__|reset_parameters)|transformers/[^:]*modeling_\w+\.py: __init__",
    ),
)
_FIRST_STEP = (
    r"torch/nn/modules/module\.py: _(?:wrapped_)?call_impl|torch/autograd/__init__\.py: (?:backward|grad)"
    r"|torch/optim/[^:]*: (?:step|wrapper|profile_hook_step|_use_grad\w*)"
)

# The bases that say what a class is, by module and name.
_BASES: dict[str, Part] = {
    "torch.utils.data.dataset.Dataset": "data",
    "lightning.pytorch.core.datamodule.LightningDataModule": "data",
    "pytorch_lightning.core.datamodule.LightningDataModule": "data",
    "torch.nn.modules.module.Module": "model",
}
_BUILDS_A_MODEL = ("__init__", "reset_parameters", "_init_weights", "init_weights", "setup")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?:.*[/\\])?(?:site|dist)-packages[/\\](?:{text})", re.DOTALL)


_CONTAINER_PATTERNS = tuple((part, _pattern(text)) for part, text in _CONTAINERS)
_CALL_PATTERNS = tuple((part, _pattern(text)) for part, text in _CALLS)
_FIRST_STEP_PATTERN = _pattern(_FIRST_STEP)


def classify(stack: Sequence[Frame]) -> tuple[Part, str | None, int | None]:
    """The part, what is imported, and the index of the innermost frame of the user's code, of a stack with the
    innermost frame first.
    """
    user = next((index for index, frame in enumerate(stack) if is_user_code(frame.file)), None)
    contained = next((part for frame in stack for part in [_container(frame.file, frame.function)] if part), None)
    if contained is not None:
        return contained, None, user
    importing = next((index for index, frame in enumerate(stack) if frame.file.startswith(IMPORT_SYSTEM)), None)
    if importing is not None and _imports_a_library(stack[:importing]):
        return "imports", _package(stack[:user]), user
    running = stack if importing is None else stack[:importing]
    decided = next((part for frame in running for part in [_call(frame)] if part), None)
    if decided is None and any(_runs_the_model(frame.file, frame.function) for frame in running):
        decided = "first_step"
    return decided or "other", None, user


def _imports_a_library(inside: Sequence[Frame]) -> bool:
    """Whether the import that is in progress is not yet running code of the user's module."""
    module = next((frame for frame in reversed(inside) if frame.function == MODULE), None)
    return module is None or not is_user_code(module.file)


def _package(inside: Sequence[Frame]) -> str | None:
    """The package that the user's line imports; None if it is being looked for."""
    module = next((frame for frame in reversed(inside) if frame.function == MODULE), None)
    found = _PACKAGE.search(module.file) if module is not None else None
    return found[1] if found else None


def _call(frame: Frame) -> Part | None:
    if frame.base == "data" or (frame.base == "model" and frame.function in _BUILDS_A_MODEL):
        return _called(frame.file, frame.function) or frame.base  # DistributedDataParallel is a Module, too
    return _called(frame.file, frame.function)


@lru_cache(maxsize=10_000)
def _container(file: str, function: str) -> Part | None:
    return _first_match(_CONTAINER_PATTERNS, file, function)


@lru_cache(maxsize=10_000)
def _called(file: str, function: str) -> Part | None:
    return _first_match(_CALL_PATTERNS, file, function)


@lru_cache(maxsize=10_000)
def _runs_the_model(file: str, function: str) -> bool:
    return _FIRST_STEP_PATTERN.fullmatch(f"{file}: {function}") is not None


def _first_match(patterns: tuple[tuple[Part, re.Pattern[str]], ...], file: str, function: str) -> Part | None:
    if function == MODULE:
        return None
    text = f"{file}: {function}"
    return next((part for part, pattern in patterns if pattern.fullmatch(text)), None)


def base_finder() -> Callable[[CodeType], Part | None]:
    """Finds which kind of class a method belongs to, by the modules that are loaded now. Python 3.10 does not name the
    class of a code object: there it is always None.
    """
    modules: dict[str, ModuleType] = {}
    for module in list(sys.modules.values()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str):
            modules[file] = module

    def find(code: CodeType) -> Part | None:
        owner, _, _ = getattr(code, "co_qualname", "").rpartition(".")
        module = modules.get(code.co_filename) if owner else None
        kind = vars(module).get(owner) if module is not None else None
        if not isinstance(kind, type):
            return None
        names = (f"{base.__module__}.{base.__name__}" for base in kind.__mro__)
        return next((_BASES[name] for name in names if name in _BASES), None)

    return find
