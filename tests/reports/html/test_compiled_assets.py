"""Cached files next to the package equal what would be made anew, whatever happened to the files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import sample

from traceopt.reports.html import page
from traceopt.reports.html.page import render_html


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Python's compiled modules."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def forget() -> None:
    page.environment.cache_clear()


def test_nothing_is_cached_if_python_caches_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    rendered = render_html(sample.rich())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(folder / "file" / "below"))
    (folder / "file").write_bytes(b"in the way")
    forget()
    assert render_html(sample.rich()) == rendered
    assert [path.name for path in files(folder)] == ["file"]
    forget()


def test_a_report_of_cached_parts_is_the_same(folder: Path) -> None:
    forget()
    page = render_html(sample.rich())
    found = files(folder)
    assert len(found) > 5
    forget()
    assert render_html(sample.rich()) == page
    for damage in (b"", b"damaged", found[0].read_bytes()[:-10]):
        for path in found:
            path.write_bytes(damage)
        forget()
        assert render_html(sample.rich()) == page
    forget()
