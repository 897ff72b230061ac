"""The documents as JSON: orjson writes them, and asks here for the fields of each part."""

from __future__ import annotations

from typing import Any

import orjson
from msgspec.structs import asdict


def to_json(document: object) -> bytes:
    """In one line."""
    return orjson.dumps(document, default=_fields)


def to_indented_json(document: object) -> bytes:
    """Byte for byte the same for the same document."""
    return orjson.dumps(document, default=_fields, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _fields(part: Any) -> dict[str, Any]:
    """All but a finding's price, which is no part of the document. Raises TypeError for what is no Struct."""
    fields = asdict(part)
    fields.pop("_price", None)
    return fields
