"""Whose code a Python frame of a trace is: the user's, an installed package's, torch's, Python's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from msgspec import Struct

FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$", re.S)
_INSTALLED = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|python3[\d.]*)/"
    r"|^<(?!ipython-input|stdin)"  # <frozen os>, <string>, <eval_with_key>; but a notebook's cells are the user's
    r"|/torchinductor_[^/]+/"  # code that torch.compile wrote
    r"|/torch/(?:_\w+|amp|autograd|cuda|distributed|fx|nn|optim|profiler|utils)/|/python/triton/"  # built from source
)
_CAPTURE = (Path(__file__).parents[2] / "capture").as_posix() + "/"  # our wrappers, where we run from a checkout
_HOME = re.compile(r"^(?:[A-Za-z]:)?/(?:home|Users)/[^/]+/|^/root/")

# First part of the paths that the profiler has already cut at site-packages.
THIRD_PARTY = frozenset(
    """
    PIL absl accelerate aiter albumentations apex av bitsandbytes click cv2 dask datasets decord deepspeed detectron2
    diffusers einops fairscale fbgemm_gpu fire flash_attn fsspec functorch gradio h5py huggingface_hub hydra ignite jax
    joblib keras kornia lightning lightning_fabric lightning_utilities liger_kernel lmdb matplotlib megatron mlflow mmcv
    mmengine monai numpy omegaconf onnxruntime open_clip optimum pandas peft pyarrow pydantic pytorch_lightning ray
    safetensors scipy sentence_transformers sglang sklearn soundfile spacy tensorboard tensorboardX timm tokenizers
    torch torch_geometric torch_tb_profiler torchao torchaudio torchdata torchmetrics torchrec torchtext torchvision
    six tqdm transformer_engine transformers traceopt triton trl typing_extensions vllm wandb webdataset xformers yaml
    """.split()  # noqa: SIM905 - a list of eighty words reads better as text
)

# Names that users give their scripts; what the standard library has under them does not run in training.
_STDLIB = sys.stdlib_module_names - {"cmd", "code", "profile", "test", "trace"}


class CallSite(Struct, frozen=True):
    """Lines of a function of the user's code: those of the call where they are known, else where it begins."""

    file: str
    line: int | None
    function: str
    last_line: int | None = None  # where it may be any of several


def parse_frame(name: str) -> CallSite | None:
    """ "train.py(97): log_metrics" -> CallSite; None for builtins and modules."""
    match = FRAME.match(name)
    if match is None:
        return None
    return CallSite(_HOME.sub("~/", _slashed(match["file"])), int(match["line"]), match["function"])


def is_library(name: str) -> bool:
    """Whether a frame belongs to torch, the standard library, or an installed package, or is no frame of a file."""
    match = FRAME.match(name)
    if match is None:
        return True
    file = _slashed(match["file"])
    if _INSTALLED.search(file) or file.startswith(_CAPTURE):
        return True
    if file.startswith("/") or file[1:3] == ":/":
        return False
    top = file.partition("/")[0].removesuffix(".py")
    return top in _STDLIB or top in THIRD_PARTY


def _slashed(file: str) -> str:
    """A path as Windows writes it, with slashes."""
    return file.replace("\\", "/")


def is_third_party(name: str) -> bool:
    """Whether a frame belongs to an installed package other than torch (a model or pipeline library, mostly)."""
    match = FRAME.match(name)
    if match is None:
        return False
    file = _slashed(match["file"])
    if _INSTALLED.search(file):
        tail = re.split(r"/(?:site-packages|dist-packages)/", file)[-1]
        return tail != file and not tail.startswith("torch/")
    return file.partition("/")[0] in THIRD_PARTY - {"torch"}
