"""Blocks of the allocator: those that outlive the part of the program that allocated them."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.intervals import EMPTY, union
from traceopt.analyzer.memory.blocks import AFTER, BEFORE, MemoryBlocks


def test_blocks_that_outlive_an_area() -> None:
    start = np.array([BEFORE, 10, 10, 20, 25, 40])
    end = np.array([90, 15, 30, 90, AFTER, AFTER])
    blocks = MemoryBlocks(np.full(6, 8), start, end, np.zeros(6, np.int32))
    area = union(np.array([5, 24]), np.array([20, 40]))
    assert blocks.outlive(area).tolist() == [False, False, True, False, True, False]
    assert not blocks.outlive(EMPTY).any()
