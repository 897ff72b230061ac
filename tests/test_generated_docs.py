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


@pytest.mark.parametrize("script", ["generate.py", "generate_reference.py"])
def test_generated_pages_are_current(script: str) -> None:
    pages = runpy.run_path(str(DOCS / script))["pages"]()
    stale = [name for name, text in pages.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run: make docs"


def test_no_page_is_left_of_a_rule_that_is_gone(generator: dict[str, Any]) -> None:
    assert {path.name for path in (DOCS / "rules").glob("*.md")} == generator["rule_pages"]().keys()


def test_every_fact_has_its_line(generator: dict[str, Any]) -> None:
    facts = generator["facts"]()
    assert len(facts) > 40
    assert [name for name, (_, about) in facts.items() if not about.endswith(".")] == []


def test_the_list_for_assistants_links_to_pages(generator: dict[str, Any]) -> None:
    text = generator["llms_text"]()
    files = re.findall(r"^- \[[^]]+\]\(([^)]+)\): .+$", text, re.MULTILINE)
    assert set(files) >= {"agents.md", "rules/DL001.md"}
    assert [file for file in files if not (DOCS / file).exists()] == []
