"""Python frames of torch and of other libraries that tell what their caller does."""

from __future__ import annotations

import re

_DATA_PARALLEL_FRAME = re.compile(
    r"torch/nn/parallel/(?:replicate|scatter_gather|comm)\.py\(\d+\): (?:replicate|scatter|gather)"
)
_DATA_PARALLEL_MODULE = re.compile(
    r"torch/nn/parallel/data_parallel\.py\(\d+\): forward|^nn\.Module: DataParallel_\d+$"
)


def is_data_parallel_frame(name: str) -> bool:
    """A Python frame that copies a model or a batch between GPUs, or collects the results."""
    return _DATA_PARALLEL_FRAME.search(name) is not None


def is_data_parallel_module(name: str) -> bool:
    """The Python frame of a call of nn.DataParallel."""
    return _DATA_PARALLEL_MODULE.search(name) is not None


def is_recompute_frame(name: str) -> bool:
    """A frame that recomputes a checkpointed part, or its hook: ``torch/utils/checkpoint.py(1500): recompute_fn``."""
    return name.endswith((": recompute_fn", ": unpack_hook")) and "torch/utils/checkpoint.py(" in name


def is_checkpoint_frame(name: str) -> bool:
    """The Python frame of the call that checkpoints: ``torch/utils/checkpoint.py(355): checkpoint``."""
    return name.endswith(": checkpoint") and "torch/utils/checkpoint.py(" in name


def is_deep_copy_frame(name: str) -> bool:
    """The Python frame of ``copy.deepcopy``: ``copy.py(128): deepcopy``."""
    return name.endswith(": deepcopy") and "copy.py(" in name


_POINT_TO_POINT = re.compile(
    r"torch/distributed/distributed_c10d\.py\(\d+\): (?:batch_isend_irecv|i?send|i?recv)$",
)


def is_point_to_point_frame(name: str) -> bool:
    """A send or receive of torch.distributed: ``torch/distributed/distributed_c10d.py(2623): batch_isend_irecv``."""
    return _POINT_TO_POINT.search(name) is not None


# Megatron-LM, megatron/core/transformer/moe/moe_utils.py, asks for the capacity only if there is a capacity factor.
# DeepSpeed, deepspeed/moe/sharded_moe.py, sends as many rows for each expert as its capacity, dropped or padded.
_EXPERT_CAPACITY = re.compile(
    r"megatron/core/transformer/moe/moe_utils\.py\(\d+\): get_capacity$"
    r"|deepspeed/moe/sharded_moe\.py\(\d+\): top[12k]gating$"
)


def is_expert_capacity_frame(name: str) -> bool:
    """Experts take only so many tokens: ``megatron/core/transformer/moe/moe_utils.py(151): get_capacity``."""
    return _EXPERT_CAPACITY.search(name) is not None


_PANDAS_ROWS = re.compile(
    r"(?:^|/)pandas/core/(?:indexing\.py\(\d+\): __(?:get|set)item__|"
    r"frame\.py\(\d+\): (?:__getitem__|iter(?:rows|tuples)|query|sort_values)|generic\.py\(\d+\): astype|"
    r"arraylike\.py\(\d+\): __(?:eq|ne|lt|le|gt|ge)__)$"
)
_PANDAS_SERIES = re.compile(r"(?:^|/)pandas/core/(?:base|series)\.py\(\d+\): ")
_MODULE_CAST = re.compile(r"torch/nn/modules/module\.py\(\d+\): (?:bfloat16|cpu|cuda|double|float|half|to|type)$")


_ARRAY_LIBRARY = re.compile(r"(?:^|/)(?:numpy|pandas|scipy|sklearn)/")


def is_array_library_frame(name: str) -> bool:
    """A library computes on arrays: ``numpy/lib/_histograms_impl.py(685): histogram``."""
    return _ARRAY_LIBRARY.search(name) is not None


def is_pandas_row_frame(name: str) -> bool:
    """pandas reads a row or a cell, or selects or sorts rows: ``pandas/core/indexing.py(1327): __getitem__``."""
    return _PANDAS_ROWS.search(name) is not None


def is_pandas_series_frame(name: str) -> bool:
    """A method of a Series, such as a row: ``pandas/core/base.py(601): to_numpy``."""
    return _PANDAS_SERIES.search(name) is not None


def is_stored_traceback(name: str) -> bool:
    """Anomaly mode stores where an operator is called: ``torch/fx/traceback.py(497): format_stack``."""
    return "torch/fx/traceback.py(" in name and name.endswith(": format_stack")


def is_sample_frame(name: str) -> bool:
    """The Python frame of ``random.sample``: ``random.py(385): sample``."""
    return name.endswith(": sample") and name.rpartition("/")[2].startswith("random.py(")


def is_sample_draw_frame(name: str) -> bool:
    """`random.sample` chooses an item: ``random.py(245): _randbelow_with_getrandbits``."""
    return ": _randbelow" in name and name.rpartition("/")[2].startswith("random.py(")


def is_module_cast_frame(name: str) -> bool:
    """A module casts or moves all its weights: ``torch/nn/modules/module.py(1191): double``."""
    return _MODULE_CAST.search(name) is not None


def is_constructor_frame(name: str) -> bool:
    """An object is constructed: ``data.py(12): __init__``."""
    return name.endswith(": __init__")


def is_module_constructor_frame(name: str) -> bool:
    """nn.Module's own constructor, which that of each module calls: ``torch/nn/modules/module.py(476): __init__``."""
    return is_constructor_frame(name) and "torch/nn/modules/module.py(" in name


def is_sampler_frame(name: str) -> bool:
    """A DataLoader asks its sampler what to read next: ``torch/utils/data/dataloader.py(714): _next_index``."""
    return name.endswith(": _next_index") and "torch/utils/data/dataloader.py(" in name


def is_item_frame(name: str) -> bool:
    """A data set returns an item: ``data.py(12): __getitem__``."""
    return name.endswith(": __getitem__")


_PICTURES = r"(?:^|/)(?:PIL/\w+|torchvision/transforms/(?:v2/)?(?:functional/)?_?\w+)\.py\(\d+\): "
_PICTURE_CHANGE = re.compile(
    _PICTURES + r"(?:adjust_\w+|affine|autocontrast|elastic\w*|enhance|equalize|filter|gaussian_blur|perspective|"
    r"posterize|rotate|solarize)$"
)
_PICTURE_CROP = re.compile(_PICTURES + r"(?:center_crop|crop|resize|resized_crop|thumbnail)$")


def is_picture_change(name: str) -> bool:
    """A library changes all pixels of a picture: ``PIL/Image.py(2477): rotate``."""
    return _PICTURE_CHANGE.search(name) is not None


def is_picture_crop(name: str) -> bool:
    """A library cuts or scales a picture: ``PIL/Image.py(2332): resize``."""
    return _PICTURE_CROP.search(name) is not None


def is_data_frame(name: str) -> bool:
    """Code of a DataLoader, or of a data set that returns an item: ``data.py(12): __getitem__``."""
    return "torch/utils/data/dataloader.py(" in name or is_item_frame(name)


_PINNING = re.compile(r"torch/utils/data/_utils/pin_memory\.py\(\d+\): pin_memory$")


def is_pinning_frame(name: str) -> bool:
    """A thread copies a batch to pinned memory: ``torch/utils/data/_utils/pin_memory.py(64): pin_memory``."""
    return _PINNING.search(name) is not None


def is_pinned_tensor_frame(name: str) -> bool:
    """One tensor is copied to pinned memory: ``<built-in method pin_memory of Tensor object at 0x7f29d8c1d770>``."""
    return name.startswith("<built-in method pin_memory of Tensor")


def is_new_iterator_frame(name: str) -> bool:
    """The loop begins to read a DataLoader: ``torch/utils/data/dataloader.py(492): __iter__`` calls ``_get_iterator``,
    or ``_reset`` if the workers persist.
    """
    return name.endswith((": _get_iterator", ": _reset")) and "torch/utils/data/dataloader.py(" in name


def is_next_batch_frame(name: str) -> bool:
    """The loop asks an iterator for a batch: ``torch/utils/data/dataloader.py(720): __next__``."""
    return name.endswith(": __next__") and "torch/utils/data/dataloader.py(" in name


def is_code_frame(name: str) -> bool:
    """A function of a Python file, and not a builtin or a module: ``model.py(12): forward``."""
    return not name.startswith(("<", "nn.Module: "))


_LAYER = re.compile(r"(?:^|/)torch/nn/")


def is_layer_frame(name: str) -> bool:
    """A function of torch's layers: ``torch/nn/functional.py(5700): _in_projection_packed``."""
    return _LAYER.search(name) is not None


def is_optimizer_frame(name: str) -> bool:
    """A function of torch's optimizers: ``torch/optim/adam.py(214): step``."""
    return "torch/optim/" in name


def is_optimizer_step_frame(name: str) -> bool:
    """A step of an optimizer, whoever wrote it: ``muon.py(40): step``."""
    return name.endswith(": step")


def is_closure_frame(name: str) -> bool:
    """The closure of a training framework: ``lightning/pytorch/plugins/precision/precision.py(96): _wrap_closure``."""
    return name.rpartition(": ")[2] in ("closure", "_wrap_closure", "wrap_closure")


def is_engine_frame(name: str) -> bool:
    """The Python frame in which the autograd engine works: ``<built-in method run_backward of torch._C...>``."""
    return name.startswith("<built-in method run_backward")


def is_grad_frame(name: str) -> bool:
    """`torch.autograd.grad`, which adds to no gradient: ``torch/autograd/__init__.py(462): grad``."""
    return name.endswith(": grad") and "torch/autograd/__init__.py(" in name


def is_empty_cache_frame(name: str) -> bool:
    """The Python frame of `torch.cuda.empty_cache()`, or of the builtin that it calls."""
    return name.endswith(": empty_cache") or "_emptyCache" in name
