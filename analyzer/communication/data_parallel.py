"""What nn.DataParallel does by itself: it copies the model, splits the batch and collects the results."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary import library_frames, op_names


def find_data_parallel_calls(regions: Regions, thread: int) -> I8:
    """Its autograd functions, and the frames of its functions, on a thread. Slices, in order."""
    slices = regions.slices
    module = regions.named(library_frames.is_data_parallel_module, PYTHON)
    frames = regions.named(library_frames.is_data_parallel_frame, PYTHON) & (slices.nearest(module) >= 0)
    functions = regions.named(op_names.DATA_PARALLEL_FUNCTIONS.__contains__, OP, ANNOTATION)
    return np.flatnonzero((functions | frames) & (slices.thread == thread))
