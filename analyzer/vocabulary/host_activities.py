"""What the host does while the GPU may wait: one table of activities and how a trace shows them.

An activity is recognized by the name of a Python frame ("file(line): function"), annotation, operator or runtime call.
Order matters: if activities nest, the earlier one in `ACTIVITIES` owns the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from msgspec import Struct

from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.os_calls import is_os_wait

# A module's path as the profiler writes it: bare, or absolute below a library folder.
_LIBRARY = r"^(?:.*/(?:python3[\d.]*|site-packages|dist-packages)/)?"

_NO_MODEL = r"\d+\): (?!forward$)"  # a tokenizer may be a network

_Matcher = Callable[[str], bool]


def _pattern(*alternatives: str) -> _Matcher:
    @cache
    def compiled() -> re.Pattern[str]:  # on the first use: most traces have no Python frames
        return re.compile("|".join(alternatives))

    return lambda name: compiled().search(name) is not None


def _never(_: str) -> bool:
    return False


class Activity(Struct, frozen=True):
    """One kind of host work. The matchers see the names of slices of their kind; `label` is for people."""

    name: str
    label: str
    frame: _Matcher = _never
    annotation: _Matcher = _never
    op: _Matcher = _never
    runtime: _Matcher = _never


# Functions that write images and plots. In a training step, they report.
_IMAGE_WRITERS = (
    _LIBRARY + r"PIL/Image\.py\(\d+\): save$",
    _LIBRARY + r"torchvision/utils\.py\(\d+\): (?:save_image|make_grid)$",
    _LIBRARY + r"imageio/.*: (?:im|mim|vol|mvol)(?:write|save)$",
    _LIBRARY + r"matplotlib/.*: savefig$",
    r"^<built-in function imwrite>",
)
IMAGE_WRITER = _pattern(*_IMAGE_WRITERS)
IMAGE_OPENER = _pattern(_LIBRARY + r"PIL/Image\.py\(\d+\): open$", r"^<built-in function im(?:read|decode)>")
IMAGE_WORK = _pattern(_LIBRARY + r"(?:PIL|cv2|torchvision/transforms)/")
# A function that executes statements and commits them writes rows, unless it also fetches some.
SQL_EXECUTE = _pattern(r"^<built-in method execute of sqlite3\.")
SQL_COMMIT = _pattern(r"^<built-in method commit of sqlite3\.")
SQL_FETCH = _pattern(r"^<built-in method fetch(?:one|many|all) of sqlite3\.")
LOGGING_FRAME = _pattern(
    *_IMAGE_WRITERS,
    _LIBRARY + r"(?:logging|loguru|tensorboardX|tensorboard|wandb|mlflow|comet_ml|neptune|aim|clearml|rich)/",
    _LIBRARY + r"tqdm/(?!_monitor).*: (?!__iter__|__next__)",  # the iterator's frame contains the loop's own input
    _LIBRARY + r"torch/utils/tensorboard/",
    _LIBRARY + r"csv\.py\(",
    _LIBRARY + r"torch/_tensor_str\.py\(",  # a tensor as text, for print() or a log
    _LIBRARY + r"json/(?:__init__|encoder)\.py\(\d+\): (?:dumps?|iterencode|encode)$",
    _LIBRARY + r"numpy/lib/.*: _?save(?:z|z_compressed|txt)?$",
    _LIBRARY + r"pandas/.*: to_(?:csv|excel|feather|json|parquet|pickle)$",
    r"^<built-in function fsync>",
    r"^<built-in method (?:commit|executemany|__exit__) of sqlite3\.",
    r": add_(?:scalars?|histogram)$",  # TensorBoard's interface, which writers of a project's own imitate
    r"^<built-in function print>",
    r"^<built-in method (?:write|writerow|flush) of (?:_io|_csv)\.",
)
# The profiler's own functions and the markers that it sets: the time is gone with the profiler.
PROFILER_FRAME = _pattern(
    _LIBRARY + r"torch/(?:profiler/|autograd/profiler\w*\.py\()",
    r"^<built-in (?:method|function) _?(?:add_metadata_json|kineto_available|record_function_|profiler_|"
    r"(?:prepare|enable|disable)_profiler)",
)
# Functions whose purpose is reporting: a sync inside them reads a value for the log, not for the model.
REPORTING_FUNCTION = _pattern(
    r": (?:log|report|record|track|print|write|update|compute)_?"
    r"(?:metrics?|stats?|statistics|loss(?:es)?|scalars?|progress|step|accuracy)?$",
    r"^(?:.*/)?torchmetrics/",
)

# Gradient clipping and loss scaling: a sync inside them is about gradients.
GRADIENT_FRAME = _pattern(
    _LIBRARY + r"torch/nn/utils/clip_grad\.py\(",
    _LIBRARY + r"torch/(?:cuda/)?amp/grad_scaler\.py\(",
    r": _?clip_grad(?:ient)?s?(?:_norm|_value)?_?$",
)

# Python waits for a lock: of a queue, an event, a thread that is joined, or a future.
_LOCK = _pattern(r"^<built-in method acquire of _thread\.R?[lL]ock")

DATA_LOADING = Activity(
    "data_loading",
    "Waiting for data",
    frame=_pattern(_LIBRARY + r"torch/utils/data/dataloader\.py\(\d+\): (?:__next__|_next_data)"),
    annotation=op_names.is_dataloader,
)

ACTIVITIES: tuple[Activity, ...] = (
    Activity(
        "loader_startup",
        "Starting data loader workers",
        frame=_pattern(_LIBRARY + r"torch/utils/data/dataloader\.py\(\d+\): (?:__iter__|_get_iterator)"),
    ),
    DATA_LOADING,
    Activity(
        "checkpoint",
        "Saving a checkpoint",
        frame=_pattern(
            _LIBRARY + r"torch/serialization\.py\(\d+\): _?(?:legacy_)?save",
            _LIBRARY + r"torch/distributed/checkpoint/.*: (?:async_)?save",
            _LIBRARY + r"safetensors/.*: save",
            r": _?save_(?:checkpoint|pretrained|model|state)$",
        ),
    ),
    Activity("logging", "Logging", frame=LOGGING_FRAME),
    Activity(
        "gc",
        "Garbage collection",
        frame=_pattern(r"^<built-in function collect>", r"^gc\.py"),
        op="traceopt: gc".__eq__,  # the range opened by capture/metadata/step_ledger.py
    ),
    Activity("startup", "Starting up (context, libraries)"),  # only by what facts.py finds, not by a name
    Activity("allocation", "Allocating device memory", runtime=op_names.is_allocation),
    Activity("module_load", "Loading kernels (first calls)", runtime=op_names.is_module_load),
    Activity("host_sync", "Host sync (waiting for the GPU)", runtime=op_names.is_blocking_sync),
    Activity(
        "compile",
        "Compiling",
        frame=_pattern(
            _LIBRARY + r"torch/_dynamo/convert_frame\.py\(\d+\): _?compile",
            _LIBRARY + r"torch/_inductor/.*: compile",
            _LIBRARY + r"triton/compiler/.*: compile",
            _LIBRARY + r"triton/runtime/jit\.py\(\d+\): _do_compile",
            _LIBRARY + r"torch/jit/_(?:script|trace)\.py\(\d+\): (?:script|trace|trace_module)$",
            _LIBRARY + r"torch/utils/cpp_extension\.py\(\d+\): (?:load|load_inline|_jit_compile)$",
        ),
        annotation=op_names.is_compile,
        op=op_names.is_compile,
    ),
    Activity(
        "post_processing",
        "Post-processing",
        frame=_pattern(r": _?post_?process(?:_\w+)?$", r"(?:^|/)post_?process\w*\.py\("),
        annotation=_pattern(r"(?i)\bpost_?process\w*\b"),
    ),
    Activity(
        "input_work",
        "Preprocessing outside the loader",
        frame=_pattern(
            _LIBRARY + r"(?:PIL|cv2|albumentations|imgaug|av|decord|librosa|soundfile)/",
            _LIBRARY + r"(?:tokenizers|datasets|webdataset|lmdb|h5py)/",
            _LIBRARY + r"torchvision/(?:transforms|io|datasets)/",
            _LIBRARY + r"torchaudio/",
            _LIBRARY + r"transformers/(?:\w+/)*(?:image_processing|image_transforms|feature_extraction|tokenization)",
            _LIBRARY + r"transformers/(?:\w+/)*(?:audio_utils|video_utils)",
            _LIBRARY + r"diffusers/(?:image|video)_processor",
            r": _?pre_?process(?:_\w+)?$",
            r": _?(?:tokeni[sz]e|collate|augment)(?:_\w+|r)?$",
            r": _?(?:decode|read|load)_(?:image|jpeg|video|audio|batch|sample|frame)s?(?:_\w+)?$",
            r": \w*collate_fn$",
            r"(?:^|/)(?:tokeni[sz]er|tokeni[sz]ation|pre_?process\w*|augment\w*|collat\w+)\.py\(" + _NO_MODEL,
        ),
        annotation=_pattern(r"(?i)\b(?:preprocess\w*|tokeni[sz]\w*|collate|augment\w*|decode_(?:image|video|audio))\b"),
    ),
    # Programs and sleeps of the activities above are theirs.
    Activity(
        "program",
        "Running other programs",
        frame=_pattern(
            _LIBRARY + r"subprocess\.py\(\d+\): (?:__init__|run|(?:check_)?call|\w+output|communicate|wait)$",
            r"^<built-in function (?:system|fork_exec|posix_spawnp?)>",
        ),
    ),
    Activity("sleep", "Sleeping", frame=_pattern(r"^<built-in function sleep>")),
    Activity("thread_wait", "Waiting for another thread", frame=_LOCK),
    Activity("os_wait", "Waiting in the operating system", runtime=is_os_wait),
    Activity("launch", "Launching GPU work", op=lambda _: True, runtime=lambda _: True),
    Activity("python", "Running Python between launches", frame=lambda _: True),
)

ACTIVITY_NAMES = tuple(activity.name for activity in ACTIVITIES)
# What only its length tells from dispatch: see attribution/host_flow.py.
CPU_OP = "cpu_op"
SMALL_OPS = "small_ops"
LONG_PYTHON = "long_python"
HOST_COPY = "host_copy"
UNRECORDED = "unrecorded"
UNTRACED_PYTHON = "hole"
LONG_WORK = (CPU_OP, SMALL_OPS, LONG_PYTHON, HOST_COPY, UNRECORDED)
UNTRACED = "untraced"
QUEUED = "queued"
DISPATCH = ("launch", "python", UNTRACED)  # the host's ordinary work from one launch to the next
LABELS = {a.name: a.label for a in ACTIVITIES} | {
    CPU_OP: "CPU operators",
    SMALL_OPS: "Small operators without launches",
    LONG_PYTHON: "Python without launches",
    HOST_COPY: "Copying pageable memory on the host",
    UNRECORDED: "Nothing recorded on the host",
    UNTRACED_PYTHON: "Untraced Python",
    UNTRACED: "Untraced between launches",
    QUEUED: "Idle with work queued",
}
# Labels for a file that holds no launch of the device's work: what the host then did is no launching.
WITHOUT_LAUNCHES = {
    "launch": "Operators on the host",
    "python": "Running Python",
    SMALL_OPS: "Small operators on the host",
    LONG_PYTHON: "Long Python code",
    UNTRACED: "Untraced",
}
