"""Names that show what the host does: Python frames ("file(line): function"), annotations, operators and calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from msgspec import Struct

# A module's path as the profiler writes it: bare, or absolute below a library folder.
LIBRARY = r"^(?:.*/(?:python3[\d.]*|site-packages|dist-packages)/)?"

Matcher = Callable[[str], bool]


def pattern(*alternatives: str) -> Matcher:
    @cache
    def compiled() -> re.Pattern[str]:  # on the first use: most traces have no Python frames
        return re.compile("|".join(alternatives))

    return lambda name: compiled().search(name) is not None


def _never(_: str) -> bool:
    return False


class Names(Struct, frozen=True):
    """What shows one kind of host work. The matchers see the names of slices of their kind."""

    frame: Matcher = _never
    annotation: Matcher = _never
    op: Matcher = _never
    runtime: Matcher = _never


# Functions that write images and plots. In a training step, they report.
_IMAGE_WRITERS = (
    LIBRARY + r"PIL/Image\.py\(\d+\): save$",
    LIBRARY + r"torchvision/utils\.py\(\d+\): (?:save_image|make_grid)$",
    LIBRARY + r"imageio/.*: (?:im|mim|vol|mvol)(?:write|save)$",
    LIBRARY + r"matplotlib/.*: savefig$",
    r"^<built-in function imwrite>",
)
IMAGE_WRITER = pattern(*_IMAGE_WRITERS)
IMAGE_OPENER = pattern(LIBRARY + r"PIL/Image\.py\(\d+\): open$", r"^<built-in function im(?:read|decode)>")
IMAGE_WORK = pattern(LIBRARY + r"(?:PIL|cv2|torchvision/transforms)/")
# A function that executes statements and commits them writes rows, unless it also fetches some.
SQL_EXECUTE = pattern(r"^<built-in method execute of sqlite3\.")
SQL_COMMIT = pattern(r"^<built-in method commit of sqlite3\.")
SQL_FETCH = pattern(r"^<built-in method fetch(?:one|many|all) of sqlite3\.")
LOGGING_FRAME = pattern(
    *_IMAGE_WRITERS,
    LIBRARY + r"logging/.*: (?!getEffectiveLevel$|isEnabledFor$|getLogger$)",  # torch asks for the level in each step
    LIBRARY + r"(?:loguru|tensorboardX|tensorboard|wandb|mlflow|comet_ml|neptune|aim|clearml|rich)/",
    LIBRARY + r"tqdm/(?!_monitor).*: (?!__iter__|__next__)",  # the iterator's frame contains the loop's own input
    LIBRARY + r"torch/utils/tensorboard/",
    LIBRARY + r"csv\.py\(",
    LIBRARY + r"torch/_tensor_str\.py\(",  # a tensor as text, for print() or a log
    LIBRARY + r"json/(?:__init__|encoder)\.py\(\d+\): (?:dumps?|iterencode|encode)$",
    LIBRARY + r"numpy/lib/.*: _?save(?:z|z_compressed|txt)?$",
    LIBRARY + r"pandas/.*: to_(?:csv|excel|feather|json|parquet|pickle)$",
    r"^<built-in function fsync>",
    r"^<built-in method (?:commit|executemany|__exit__) of sqlite3\.",
    r": add_(?:scalars?|histogram)$",  # TensorBoard's interface, which writers of a project's own imitate
    r"^<built-in function print>",
    r"^<built-in method (?:write|writerow|flush) of (?:_io|_csv)\.",
)
# A training loop takes the next batch.
LOADER_FETCH = pattern(LIBRARY + r"torch/utils/data/dataloader\.py\(\d+\): (?:__next__|_next_data)")
# The profiler's own functions and the markers that it sets: the time is gone with the profiler.
PROFILER_FRAME = pattern(
    LIBRARY + r"torch/(?:profiler/|autograd/profiler\w*\.py\()",
    r"^<built-in (?:method|function) _?(?:add_metadata_json|kineto_available|record_function_|profiler_|"
    r"(?:prepare|enable|disable)_profiler)",
)
# Functions whose purpose is reporting: a sync inside them reads a value for the log, not for the model.
REPORTING_FUNCTION = pattern(
    r": (?:log|report|record|track|print|write|update|compute)_?"
    r"(?:metrics?|stats?|statistics|loss(?:es)?|scalars?|progress|step|accuracy)?$",
    r"^(?:.*/)?torchmetrics/",
)

# Gradient clipping and loss scaling: a sync inside them is about gradients.
GRADIENT_FRAME = pattern(
    LIBRARY + r"torch/nn/utils/clip_grad\.py\(",
    LIBRARY + r"torch/(?:cuda/)?amp/grad_scaler\.py\(",
    r": _?clip_grad(?:ient)?s?(?:_norm|_value)?_?$",
)
