"""Serializes documents as JSON: orjson writes them and asks here for the fields of each part."""

from __future__ import annotations

from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict


def fields_of(part: Struct) -> dict[str, Any]:
    """The fields of a part, with its tag if it is one of several kinds."""
    tag = part.__struct_config__.tag
    return asdict(part) if tag is None else {"type": tag, **asdict(part)}


def to_json(document: object) -> bytes:
    """JSON on one line."""
    return orjson.dumps(document, default=fields_of)


def to_indented_json(document: object) -> bytes:
    """Indented JSON, byte for byte the same for the same document."""
    return orjson.dumps(document, default=fields_of, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
