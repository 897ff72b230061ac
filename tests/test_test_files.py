"""Where a newcomer looks for a test: files of a readable length, none of which is needed to understand another."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("*.py"))
MAX_LINES = 600


def matching(pattern: str, files: list[Path]) -> list[str]:
    return [file.name for file in files if re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)]


def test_no_file_is_too_long() -> None:
    lines = {file.name: file.read_text(encoding="utf-8").count("\n") for file in FILES}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_no_test_imports_another() -> None:
    """What tests share is in tests/support/, or in a module beside them whose name does not begin with test_."""
    assert matching(r"^\s*(?:from|import) test_", FILES) == []


def test_what_tests_share_holds_no_tests() -> None:
    assert matching(r"^def test_", [file for file in FILES if not file.name.startswith("test_")]) == []
