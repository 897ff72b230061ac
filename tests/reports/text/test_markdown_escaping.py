"""Hostile strings in Markdown: GitHub's own parser turns them into their text and nothing else."""

from __future__ import annotations

import pytest
from rendered_page import Page

from fixtures.hostile import HOSTILE
from traceopt.reports.text import markdown_escaping
from traceopt.reports.words import safe_text
from traceopt.result.words.message import named

REFERENCES = [
    "@octocat", "(@team/all)", "#1", "acme/model#12", "acme/model@0123abc", "GH-7", "a1b2c3d", "x@example.org",
    10 * "abcd",
    "https://example.org/x", "ftp://example.org", "www.example.org", "WWW.EXAMPLE.ORG", ":tada:", "a:+1:b", "$x^2$",
    "!3", "~bug", "&4", "&amp;", "&#64;octocat", "%17",
]  # fmt: skip
MARKUP = [
    "*a* _b_ **c** ~~d~~", "a`b", "``", "`", "a | b", "a\\|b", "\\\\|", "|", "[a](b)", "![a](b)", "[a]: b", "# a",
    "- a", "+ a", "1. a", "12) a", "===", "---", "> a", "/close", "    code", "<b>a</b>", "<!-- a", "\\", "a\\`b",
    "[^1]", "{a}",
]  # fmt: skip
STRINGS = [*HOSTILE, *REFERENCES, *MARKUP]


@pytest.mark.parametrize("string", STRINGS)
def test_prose_is_text(string: str) -> None:
    for before in ("", "saves "):
        shown = Page(before + markdown_escaping.prose(string))
        assert set(shown.tags) <= {"p", "code"}
        # As clean() prints it; in code, a pipe behind a backslash is written as an escape.
        expected = before + safe_text.clean(string, safe_text.PROSE_CAP).strip()
        assert shown.text.strip().replace("\\x7c", "|") == expected.strip().replace("\\x7c", "|")


@pytest.mark.parametrize("string", REFERENCES)
def test_what_a_host_would_link_is_code(string: str) -> None:
    shown = Page(markdown_escaping.prose(f"see {string}, please"))
    assert [part.strip("(),;:.") for part in shown.outside_code.split()] == ["see", "", "please"]


@pytest.mark.parametrize("string", STRINGS)
def test_code_is_one_piece_of_code(string: str) -> None:
    shown = Page(markdown_escaping.code(string))
    assert shown.tags == ["p", "code"]
    assert shown.text.strip() == safe_text.clean(string).strip().replace("\\|", "\\\\x7c")
    assert not shown.outside_code.strip()


@pytest.mark.parametrize("string", STRINGS)
def test_a_table_keeps_its_columns(string: str) -> None:
    cells = [markdown_escaping.code(string), markdown_escaping.prose(string), "end"]
    shown = Page("text\n\n" + markdown_escaping.table(["a", "b", "c"], "lrl", [cells, cells]))
    assert [tag for tag in shown.tags if tag not in ("code", "p")] == [
        "table", "thead", "tr", "th", "th", "th", "tbody", *["tr", "td", "td", "td"] * 2,
    ]  # fmt: skip
    for line in safe_text.clean(string).replace("\\|", "\\\\x7c").split("\n"):
        assert line.strip() in shown.text


@pytest.mark.parametrize("string", STRINGS)
def test_a_block_of_code_keeps_its_end(string: str) -> None:
    block = markdown_escaping.code_block(f"first\n{string}\n```\nlast\n", "diff")
    shown = Page(markdown_escaping.folded("Patch", block) + "\n\nafter")
    assert [tag for tag in shown.tags if tag != "p"] == ["details", "summary", "pre", "code"]
    assert safe_text.clean_source(string) in shown.text
    assert shown.outside_code.split() == ["Patch", "after"]


def test_ordinary_text_stays_readable() -> None:
    for sentence in (
        "The GPU is idle for 61% of each step.",
        "Pad N from 50257 to 50304, x1.9 (NVIDIA A100-SXM4-40GB)",
    ):
        assert markdown_escaping.prose(sentence) == sentence
    assert markdown_escaping.code("train.py:33") == "`train.py:33`"


def test_punctuation_is_not_part_of_a_name() -> None:
    assert markdown_escaping.prose("Look (at ~/train.py:33), then stop.") == "Look (at `~/train.py:33`), then stop."
    assert markdown_escaping.prose("(~/a.py:1):") == "(`~/a.py:1`):"


def test_names_in_a_sentence_are_code_between_spaces() -> None:
    name = named("aten::mm")
    assert markdown_escaping.prose_with_names(f"Waiting for {name}") == "Waiting for `aten::mm`"
    assert markdown_escaping.prose_with_names(f"{name} and *others* ({name})") == (
        r"`aten::mm` and \*others\* (`aten::mm`)"
    )
    assert markdown_escaping.prose_with_names(f"1. {name}") == r"1\. `aten::mm`"
