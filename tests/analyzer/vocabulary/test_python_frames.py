"""Names of Python calls in a word, as sentences of findings use them."""

from __future__ import annotations

import pytest

from traceopt.analyzer.vocabulary.python_frames import call_name


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("train.py(12): smooth", "smooth"),
        ("/data/job/train.py(12): <listcomp>", "<listcomp>"),
        ("copy.py(128): deepcopy", "copy.deepcopy"),
        ("json/__init__.py(183): dumps", "json.dumps"),
        ("/usr/lib/python3.11/statistics.py(4): mean", "statistics.mean"),
        ("<built-in function sorted>", "sorted"),
        ("<built-in method tensor of type object>", "tensor"),
        ("<built-in method append of list object>", "list.append"),
        ("<built-in method execute of sqlite3.Cursor object>", "sqlite3.Cursor.execute"),
        ("nn.Module: Linear_0", "nn.Module: Linear_0"),
    ],
)
def test_a_call_in_a_word(name: str, word: str) -> None:
    assert call_name(name) == word
