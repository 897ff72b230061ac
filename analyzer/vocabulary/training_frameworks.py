"""Frameworks that own the training loop, the loader or the precision of a script, and how to recognize them."""

from __future__ import annotations

import re
from typing import Literal

TrainingFramework = Literal["Hugging Face Trainer", "Lightning", "Accelerate"]

# Packages, as `traceopt run` records them with the settings.
_PACKAGES: dict[str, TrainingFramework] = {
    "transformers": "Hugging Face Trainer",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
}

# Packages that replace the script's DataLoader with their own, of the same dataset and settings.
REPLACE_LOADERS = frozenset({"accelerate", "lightning", "lightning_fabric", "pytorch_lightning"})

# Python frames of each framework's step, the outermost framework first: the Trainer of Hugging Face runs on Accelerate.
_STEP_FRAMES: dict[TrainingFramework, re.Pattern[str]] = {
    "Hugging Face Trainer": re.compile(r"(?:^|/)transformers/trainer\.py\(\d+\): training_step$"),
    "Lightning": re.compile(r"(?:^|/)(?:lightning/pytorch|pytorch_lightning)/loops/.*: (?:advance|run)$"),
    "Accelerate": re.compile(r"(?:^|/)accelerate/(?:accelerator\.py\(\d+\): backward|optimizer\.py\(\d+\): step)$"),
}

FRAMEWORKS = tuple(_STEP_FRAMES)

# TorchRec's TrainPipelineSparseDist waits here for the exchange of the next batch's inputs; some versions add a number.
SPARSE_PIPELINE_MARK = "## wait_sparse_data_dist"


def framework_of_package(package: str) -> TrainingFramework | None:
    """The framework of a package; None for any other package."""
    return _PACKAGES.get(package)


def framework_of_frame(name: str) -> TrainingFramework | None:
    """The framework whose step a Python frame belongs to; None for any other frame."""
    return next((framework for framework, pattern in _STEP_FRAMES.items() if pattern.search(name)), None)
