"""Kernel names as people read them: short, whatever stands in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import table

from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name

SHORT = table(Path(__file__).with_name("short_names.tsv"))


@pytest.mark.parametrize(("short", "name"), SHORT, ids=[row[0][:40] for row in SHORT])
def test_short_names(short: str, name: str) -> None:
    assert short_name(name) == short
