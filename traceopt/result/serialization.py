"""Serializes documents as JSON: orjson writes them and asks here for the fields of each part."""

from __future__ import annotations

import orjson
from msgspec.structs import asdict


def to_json(document: object) -> bytes:
    """JSON on one line."""
    return orjson.dumps(document, default=asdict)


def to_indented_json(document: object) -> bytes:
    """Indented JSON, byte for byte the same for the same document."""
    return orjson.dumps(document, default=asdict, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
