"""Pages that follow from the code are current, and nothing in them is without a word."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate.py"))


def test_the_page_of_facts_is_current(generator: dict[str, Any]) -> None:
    assert (DOCS / "facts.md").read_text(encoding="utf-8") == generator["facts_page"](), "run: python docs/generate.py"


def test_every_fact_has_its_line(generator: dict[str, Any]) -> None:
    facts = generator["facts"]()
    assert len(facts) > 40
    assert [name for name, (_, about) in facts.items() if not about.endswith(".")] == []


def test_the_list_for_assistants_is_current(generator: dict[str, Any]) -> None:
    text = (DOCS / "llms.txt").read_text(encoding="utf-8")
    assert text == generator["llms_text"](), "run: make docs"
    files = re.findall(r"^- \[[^]]+\]\(([^)]+)\): .+$", text, re.MULTILINE)
    assert set(files) >= {"agents.md", "rules/DL001.md"}
    assert [file for file in files if not (DOCS / file).exists()] == []
