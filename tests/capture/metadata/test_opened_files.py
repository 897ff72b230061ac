"""Which files a data set opens while a batch is built."""

from __future__ import annotations

import builtins
import io
import threading
from pathlib import Path

import pytest

from traceopt.capture.metadata.loading.opened_files import BATCHES, OpenedFiles


def test_files_that_are_opened_again_are_told_from_others(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_text("")
    opened = OpenedFiles()
    for _ in range(BATCHES):
        open(paths[0]).close()  # of the script, between two batches
        opened.begins()
        for path in paths:
            open(paths[0]).close()
            open(path).close()
        other = threading.Thread(target=lambda: open(paths[0]).close())
        other.start()
        other.join()
        opened.ends()
    assert opened.done
    again, each = opened.document()
    assert (again["opens"], again["files"], again["batches"]) == (4 * BATCHES, BATCHES, BATCHES)
    assert (each["opens"], each["files"]) == (4 * BATCHES, 4 * BATCHES)
    assert again["file"].endswith("test_opened_files.py")
    assert each["line"] == again["line"] + 1


def test_open_is_the_own_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before, opened = builtins.open, OpenedFiles()
    opened.begins()
    opened.begins()
    assert builtins.open is not before
    opened.ends()
    assert builtins.open is io.open is before
    monkeypatch.setattr(builtins, "open", lambda *arguments: before(*arguments))
    script = builtins.open
    opened.begins()  # the script has an `open` of its own
    assert builtins.open is script
    opened.ends()
