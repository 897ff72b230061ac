"""MkDocs hooks: what the pages in docs/ need to be a site as well as a folder on GitHub.

- Links that leave docs/ lead to GitHub, or to the site's copy of CHANGELOG.md, CONTRIBUTING.md and SECURITY.md.
- A Mermaid diagram becomes a link to GitHub, which draws it: its script would be fetched from elsewhere.
- Until the repository has an address, nothing links to it.
- The search finds a reference page after the pages that explain.
- The rules stand in the navigation by family, in the order of docs/rules/README.md.
- Each page is also there as Markdown, which llms.txt links to.
- The finished site is searched for anything that a browser would fetch from elsewhere, and for links of llms.txt that
  lead nowhere.

Whatever is wrong is a warning, and `mkdocs build --strict` fails on warnings.
"""

from __future__ import annotations

import logging
import os.path
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PLACEHOLDER = "https://github.com/OWNER/traceopt"  # docs/repository_address.py writes the address everywhere but here
REFERENCE = ("reference/", "facts.md", "frames.md")  # pages with a section for each name
REFERENCE_BOOST = 0.1  # of their place in a search
COPIES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}

_LOG = logging.getLogger("mkdocs.hooks.traceopt")
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(?=[)#])")
_DEAD_LINK = re.compile(rf"\[([^\]]+)\]\({re.escape(PLACEHOLDER)}[^)\s]*\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_DIAGRAM = re.compile(r"^```mermaid\n.*?^```$", re.MULTILINE | re.DOTALL)
_FAMILY_OR_RULE = re.compile(r"^## (?P<family>.+)$|^\| \[(?P<code>\w+)\]\((?P<page>\w+\.md)\) \| (?P<name>\S+) ", re.M)
# What a browser fetches by itself: sources, style sheets, imports. Ordinary links (a href) are not fetched.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*?\bsrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|preconnect|icon|modulepreload))[^>]*?\bhref=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//[^"'\s)]+|url\(["']?(?:https?:)?//[^"'\s)]+"""
)


def on_config(config: MkDocsConfig) -> None:
    """Puts the pages of the rules into the navigation, and leaves out the addresses of a repository that has none."""
    if config.repo_url == PLACEHOLDER:
        config.repo_url = config.site_url = None
    [rules] = [entry["Rules"] for entry in config.nav or () if "Rules" in entry]
    rules[1:1] = families((ROOT / "docs" / "rules" / "README.md").read_text(encoding="utf-8"))


def families(index: str) -> list[dict[str, list[dict[str, str]]]]:
    """The navigation that the index of the rules describes: one entry a family, with one entry a rule."""
    nav: list[dict[str, list[dict[str, str]]]] = []
    pages: list[dict[str, str]] = []
    for found in _FAMILY_OR_RULE.finditer(index):
        if found["family"]:
            pages = []
            nav.append({found["family"]: pages})
        else:
            pages.append({f"{found['code']} {found['name']}": f"rules/{found['page']}"})
    return nav


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Adds the pages that stand outside docs/."""
    for source, page in COPIES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Redirects the links of a page, except in code, and ranks it for the search."""
    uri = page.file.src_uri
    if uri.startswith(REFERENCE):
        page.meta["search"] = {"boost": REFERENCE_BOOST}
    source = next((source for source, copy in COPIES.items() if copy == uri), f"docs/{uri}")
    repository = (config.repo_url or PLACEHOLDER).rstrip("/")
    drawn = _DIAGRAM.sub(f"[The diagram of this page]({repository}/blob/main/{source}) is in the repository.", markdown)
    return _DEAD_LINK.sub(r"\1", redirected(drawn, source, repository))


def redirected(markdown: str, source: str, repository: str) -> str:
    """The text of `source`, a path from the root of the repository, with links that work on the site.

    A link that leads nowhere stays as it is, and MkDocs reports it.
    """
    here = posixpath.dirname(COPIES.get(source, source.removeprefix("docs/")))

    def target(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        if path in COPIES:
            return os.path.relpath(COPIES[path], here or ".")
        if path.startswith("docs/") and not path.endswith(".py"):
            return os.path.relpath(path.removeprefix("docs/"), here or ".")
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{repository}/{kind}/main/{path}" if (ROOT / path).exists() else found[1]

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(target, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(target, markdown[end:])])


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Writes the Markdown of a page at the path that it has in docs/."""
    path = Path(config.site_dir, page.file.src_uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.markdown or "", encoding="utf-8")
    return output


def on_post_build(*, config: MkDocsConfig) -> None:
    """Warns about everything that a browser would fetch from another host, and about dead links in llms.txt."""
    site = Path(config.site_dir)
    for link in _LINK.findall((site / "llms.txt").read_text(encoding="utf-8")):
        if not (site / link).is_file():
            _LOG.warning("llms.txt links to %s, which the site does not have", link)
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".css"}:
            for address in fetched(path.read_text(encoding="utf-8")):
                _LOG.warning("%s fetches from elsewhere: %s", path.relative_to(site), address)


def fetched(text: str) -> list[str]:
    """The places where a page or a style sheet makes the browser fetch something from another host."""
    return [found[0] for found in _FETCHED.finditer(text)]
