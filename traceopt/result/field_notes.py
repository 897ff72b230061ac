"""The meaning and unit of each field of a document: written with the field, read by frames, docs and JSON schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

Unit = Literal["us", "ms", "share", "bytes", "GB/s", "TFLOP/s", "FLOP", "per step", "per second", "steps"]

UNIT_WORDS: dict[str, str] = {"us": "µs", "share": "0..1"}  # the others are words already


def note(meaning: str, unit: Unit | None = None) -> Meta:
    """`share: Annotated[float, note("part of the step", "share")]`. Shares are 0..1, times microseconds."""
    return Meta(description=meaning, extra_json_schema=None if unit is None else {"unit": unit})


class FieldNote(Struct, frozen=True):
    """One field of a document: its type without the note, what it means, and its unit."""

    name: str
    type: Any
    meaning: str
    unit: str | None

    @property
    def words(self) -> str:
        """The meaning with the unit: "time per step, µs"."""
        return self.meaning if self.unit is None else f"{self.meaning}, {UNIT_WORDS.get(self.unit, self.unit)}"


def field_notes(part: type[Struct]) -> dict[str, FieldNote]:
    """The notes of a part of a document, by field. Fields without a note are left out."""
    notes = {}
    for name, hint in get_type_hints(part, include_extras=True).items():
        if get_origin(hint) is Annotated:
            type_, meta = get_args(hint)[:2]
            unit = (meta.extra_json_schema or {}).get("unit")
            notes[name] = FieldNote(name, type_, meta.description, unit)
    return notes
