"""A report from cached templates equals one from templates that are compiled anew, whatever happened to the files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import sample

from traceopt.reports.html import page, template_cache
from traceopt.reports.html.page import render_html


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Python's compiled modules."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = tmp_path / Path(template_cache.__file__).parent.relative_to("/")
    folder.mkdir(parents=True)
    return folder


def rendered() -> str:
    page.environment.cache_clear()
    return render_html(sample.rich())


def test_nothing_is_cached_if_python_caches_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = rendered()
    assert [*folder.iterdir()] == []
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder.rmdir()  # as one that cannot be written to
    assert rendered() == first
    assert not folder.exists()


def test_a_report_of_cached_parts_is_the_same(folder: Path) -> None:
    first = rendered()
    found = [*folder.iterdir()]
    assert len(found) > 5
    assert rendered() == first
    for damage in (b"", b"damaged", found[0].read_bytes()[:-10]):
        for path in found:
            path.write_bytes(damage)
        assert rendered() == first
