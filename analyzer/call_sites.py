"""From a slice of a CPU thread to the line of the user's code behind it (never torch, never site-packages).

Three sources, best first: Python frames around the slice; the call stack that the 2021 format kept in the operator;
for a backward operator, the call site of its forward operator (same autograd sequence
number, else the profiler's arrow).

A frame's line is where its function begins: that is what the profiler records for functions that it saw being called.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from traceopt.analyzer.nesting import ANNOTATION, OP, PYTHON, Slices
from traceopt.analyzer.tables import I4
from traceopt.analyzer.trace import Trace

FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$", re.S)
_INSTALLED = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|python3[\d.]*)/"
    r"|^<(?!ipython-input|stdin)"  # <frozen os>, <string>, <eval_with_key>; but a notebook's cells are the user's
    r"|/torchinductor_[^/]+/"  # code that torch.compile wrote
    r"|/torch/(?:_\w+|amp|autograd|cuda|distributed|fx|nn|optim|profiler|utils)/|/python/triton/"  # built from source
)
_CAPTURE = (Path(__file__).parents[1] / "capture").as_posix() + "/"  # our wrappers, where we run from a checkout
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


@dataclass(frozen=True, slots=True)
class CallSite:
    """A function of the user's code: its file, the line it begins on, its name."""

    file: str
    line: int | None
    function: str


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


@dataclass(frozen=True)
class CallSites:
    """Call sites of slices, as indices into `sites`; -1 where none is known."""

    trace: Trace
    slices: Slices

    @property
    def recorded(self) -> bool:
        """Whether the trace holds any stack to find a call site in."""
        return len(self.trace.python) > 0 or bool((self.trace.ops.stack >= 0).any())

    @cached_property
    def sites(self) -> list[CallSite]:
        return []

    @cached_property
    def _site_index(self) -> dict[CallSite, int]:
        return {}

    @cached_property
    def _site_of_name(self) -> I4:
        """For every name of the trace, the site it is a user's frame of; -1: it is none."""
        out = np.full(len(self.trace.names), -1, np.int32)
        for code in np.unique(self.trace.python.name):
            name = self.trace.names[code]
            if not is_library(name):
                out[code] = self._add(parse_frame(name))
        return out

    def _add(self, site: CallSite | None) -> int:
        if site is None:
            return -1
        known = self._site_index.get(site)
        if known is None:
            known = self._site_index[site] = len(self.sites)
            self.sites.append(site)
        return known

    @cached_property
    def user_frames(self) -> npt.NDArray[np.bool_]:
        """Slices that are frames of the user's code. Shape (len(slices),)."""
        return np.asarray((self.slices.kind == PYTHON) & (self._site_of_name[self.slices.name] >= 0))

    @cached_property
    def _nearest_frame(self) -> I4:
        """For every slice, the innermost user's frame around it."""
        return self.slices.nearest(self.user_frames)

    @cached_property
    def _site_of_stack(self) -> I4:
        """For every slice, the site in its own call stack; -1: it has none."""
        text = np.full(len(self.slices), -1, np.int32)
        for kind, table in ((OP, self.trace.ops), (ANNOTATION, self.trace.annotations)):
            mine = self.slices.kind == kind
            text[mine] = table.stack[self.slices.row[mine]]
        stacks, of_slice = np.unique(text, return_inverse=True)
        sites = [self._stack_site(self.trace.texts[stack]) if stack >= 0 else -1 for stack in stacks]
        return np.array(sites, np.int32)[of_slice]

    @cached_property
    def _nearest_stack(self) -> I4:
        """For every slice, the innermost slice around it whose call stack names the user's code."""
        return self.slices.nearest(self._site_of_stack >= 0)

    def of(self, rows: npt.NDArray[np.integer]) -> I4:
        """Site of each slice. Shape (len(rows),)."""
        site = self._direct(rows)
        unknown = np.flatnonzero((site < 0) & (rows >= 0))
        if len(unknown):
            forward = self._forward_of(rows[unknown])
            forward = np.where(forward >= 0, forward, self._flow_source_of(rows[unknown]))
            site[unknown] = np.where(forward >= 0, self._direct(forward), -1)
        return site

    def library_frame(self, row: int) -> str | None:
        """The innermost frame of a third-party library around a slice, as "transformers/.../modeling.py:97"."""
        frame = int(self._nearest_third_party[row]) if row >= 0 and len(self.slices) else -1
        site = parse_frame(self.trace.names[int(self.slices.name[frame])]) if frame >= 0 else None
        return f"{site.file}:{site.line}" if site is not None else None

    @cached_property
    def _nearest_third_party(self) -> I4:
        python = self.slices.kind == PYTHON
        named = np.zeros(len(self.trace.names) + 1, bool)
        used = np.unique(self.slices.name[python])
        named[[code for code in used if is_third_party(self.trace.names[code])]] = True
        return self.slices.nearest(python & named[self.slices.name])

    def _direct(self, rows: npt.NDArray[np.integer]) -> I4:
        if not len(self.slices) or not self.recorded:
            return np.full(len(rows), -1, np.int32)
        safe = np.maximum(rows, 0)
        frame = np.where(rows >= 0, self._nearest_frame[safe], -1)
        site = np.where(frame >= 0, self._site_of_name[self.slices.name[np.maximum(frame, 0)]], -1)
        stacked = np.where((site < 0) & (rows >= 0), self._nearest_stack[safe], -1)
        return np.where(stacked >= 0, self._site_of_stack[np.maximum(stacked, 0)], site).astype(np.int32)

    def _stack_site(self, text: str) -> int:
        frames = str(msgspec.json.decode(text)).split(";")
        return next((self._add(parse_frame(f.strip())) for f in frames if not is_library(f.strip())), -1)

    def _forward_of(self, rows: npt.NDArray[np.integer]) -> I4:
        """The forward operator's slice for slices inside a backward operator; -1: none."""
        ops, slices = self.trace.ops, self.slices
        order = self._forward_by_sequence
        if not self.recorded or not len(order):
            return np.full(len(rows), -1, np.int32)
        backward = self._nearest_backward[rows]
        row = np.where(backward >= 0, slices.row[np.maximum(backward, 0)], 0)
        sequence = np.where(backward >= 0, ops.sequence[row], -2)
        at = np.minimum(np.searchsorted(ops.sequence[order], sequence), len(order) - 1)
        found = np.where(ops.sequence[order[at]] == sequence, order[at], -1)
        return np.where(found >= 0, slices.of(OP, len(ops))[np.maximum(found, 0)], -1).astype(np.int32)

    def _flow_source_of(self, rows: npt.NDArray[np.integer]) -> I4:
        """Where a forward-to-backward arrow into a slice around each row comes from; -1: none."""
        source = self._flow_source
        if not len(source):
            return np.full(len(rows), -1, np.int32)
        target = self.slices.nearest(source >= 0)[rows]
        return np.where(target >= 0, source[np.maximum(target, 0)], -1).astype(np.int32)

    @cached_property
    def _flow_source(self) -> I4:
        """For every slice, the slice that an arrow into it starts in; -1: none. Empty without arrows."""
        flows, slices = self.trace.flows, self.slices
        if not len(flows) or not self.recorded:
            return np.empty(0, np.int32)
        ends = np.full(len(flows), -1, np.int32)
        for thread in np.unique(flows.thread):
            mine = np.flatnonzero(flows.thread == thread)
            ends[mine] = slices.at(int(thread), flows.time[mine])
        out = np.full(len(slices), -1, np.int32)
        starts = dict(zip(flows.id[flows.finish == 0].tolist(), ends[flows.finish == 0].tolist(), strict=True))
        for flow, end in zip(flows.id[flows.finish == 1].tolist(), ends[flows.finish == 1].tolist(), strict=True):
            if end >= 0:
                out[end] = starts.get(flow, -1)  # one arrow an autograd node
        return out

    @cached_property
    def _forward_by_sequence(self) -> npt.NDArray[np.int64]:
        """Rows of forward operators by autograd sequence number, the last of each first.

        An operator records the number that the next autograd node will get: of all that record it, the last to begin
        made the node (so PyTorch draws its own forward-to-backward arrows).
        """
        ops = self.trace.ops
        forward = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0))
        return forward[np.lexsort((-ops.start[forward], ops.sequence[forward]))]

    @cached_property
    def _nearest_backward(self) -> I4:
        return self.slices.nearest(self._backward)

    @cached_property
    def _backward(self) -> npt.NDArray[np.bool_]:
        """Slices of backward operators: autograd names the forward thread in them."""
        ops = self.trace.ops
        op = self.slices.kind == OP
        out = np.zeros(len(self.slices), bool)
        rows = self.slices.row[op]
        out[op] = (ops.sequence[rows] >= 0) & (ops.forward_thread[rows] > 0)
        return out
