"""Markdown as GitHub shows it: rendered by GitHub's own parser, then read back as tags and text."""

from __future__ import annotations

from html.parser import HTMLParser

from cmarkgfm import github_flavored_markdown_to_html
from cmarkgfm.cmark import Options


class Page(HTMLParser):
    """The tags of a rendered page, its comments, and its text: all of it, what is bold, what stands outside of code."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.comments: list[str] = []
        self.folded: list[str] = []
        self.bold: list[str] = []
        self.text = self.outside_code = ""
        self._open: list[str] = []
        # GitHub lets some HTML through, such as details; here all of it comes through.
        self.feed(github_flavored_markdown_to_html(markdown, Options.CMARK_OPT_UNSAFE))

    def handle_starttag(self, tag: str, _: object) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        if tag == "summary":
            self.folded.append("")
        if tag == "strong":
            self.bold.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_comment(self, data: str) -> None:
        self.comments.append(data.strip())

    def handle_data(self, data: str) -> None:
        self.text += data
        if "code" not in self._open:
            self.outside_code += data
        if "summary" in self._open:
            self.folded[-1] += data
        if "strong" in self._open:
            self.bold[-1] += data
