"""The styles and scripts of a page, plotly.js among them, and the security policy that lets only these run."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from gzip import decompress
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import asdict

from traceopt.reports.figures import palette
from traceopt.reports.figures.figure import FigureDict
from traceopt.result.encoding import packing

ASSETS = Path(__file__).parent / "assets"  # style sheets and scripts
PLOTLY = ASSETS / "plotly.js.gz"  # made by setup.py; where it could not be made, charts stay drawings
# Later rules overrule earlier ones; paper and narrow screens come after what they change.
STYLES = ("base", "header", "parts", "fixes", "tables", "charts", "checks", "narrow", "print", "flame", "patterns")
# Of all pages; each uses those before it.
SCRIPTS = ("shared", "navigation", "copying", "tables", "fixes", "linked", "readouts", "parts", "ranks")
_COMMENTS = re.compile(r"\s*/\*(?:(?!\*/).)*\*/\s*$", re.MULTILINE | re.DOTALL)


class Plotly(Struct, frozen=True):
    """plotly.js as a page holds it: packed as by packing.pack, and its hash once it is unpacked."""

    packed: str
    hash: str


@lru_cache(maxsize=1)
def plotly() -> Plotly | None:
    """None if this installation has no plotly.js."""
    if not PLOTLY.exists():
        return None
    packed = PLOTLY.read_bytes()
    return Plotly(base64.b64encode(packed).decode("ascii"), _hash(decompress(packed)))


@lru_cache(maxsize=16)
def asset_text(name: str) -> str:
    """A style sheet or script without its indentation, and without comments: they add 15 kB to each page."""
    lines = _COMMENTS.sub("", (ASSETS / name).read_text(encoding="utf-8")).splitlines()
    return "\n".join(filter(None, map(str.strip, lines)))


def style() -> Markup:
    """The style sheet of a page."""
    sheets = "\n".join(asset_text(f"style/{name}.css") for name in STYLES)
    return Markup(palette.style_sheet() + sheets)  # noqa: S704 (our own files)


class Scripts(Struct, frozen=True):
    """The scripts of a page, the data that they unpack, and the policy that lets only them run."""

    head: Markup
    body: list[Markup]
    packed: dict[str, str]
    policy: str


def page_scripts(names: Sequence[str], data: Mapping[str, Any], figures: Mapping[str, FigureDict]) -> Scripts:
    """The scripts of all pages and of these names, and plotly.js if there are figures and it is installed."""
    packed = {name: packing.pack(orjson.dumps(one, default=asdict)) for name, one in data.items()}
    bundle = plotly() if figures else None
    hashes = []
    if bundle is not None:
        names = [*names, "charts.js"]
        packed |= {"plotly": bundle.packed, "figures": packing.pack(orjson.dumps(figures))}
        hashes.append(bundle.hash)
    of_all = "\n".join(asset_text(f"page/{name}.js") for name in SCRIPTS)
    head, *body = map(Markup, (asset_text("head.js"), of_all, *map(asset_text, names)))
    hashes += [_hash(script.encode()) for script in (head, *body)]
    return Scripts(head, body, packed, _content_security_policy(hashes))


def _hash(script: bytes) -> str:
    return f"sha256-{base64.b64encode(sha256(script).digest()).decode()}"


def _content_security_policy(hashes: Iterable[str]) -> str:
    """Only the scripts with these hashes run, and nothing is requested."""
    allowed = " ".join(f"'{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
