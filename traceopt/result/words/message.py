"""Text with typed slots: a sentence that still knows its quantities, names, places and vendor's words.

Whoever writes a sentence writes an f-string. What `ms()`, `percent()`, `named()` or `placed()` insert keeps its type,
and so do the terms that vendors name differently (`CUDA_GRAPH`). Each is a slot, written between private-use
characters. The fields of a document that hold sentences make a `Message` of it: a string of plain English that anybody
can print, and whose `parts` say what it speaks of. Links, vendors' words and escaping follow from the parts. An
f-string around a message loses its slots; `message + " more"` keeps them.

Nothing reads the words: in a `pseudo_locale`, only the words of a result differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from traceopt.result.words import quantities
from traceopt.result.words.vendors import Term, vendor_called

SlotKind = Literal["time", "share", "bytes", "rate", "name", "place", "rank", "step", "memory", "term"]

_KINDS: Mapping[str, SlotKind] = {kind: kind for kind in get_args(SlotKind)}
_TEXTS = ("name", "place", "rank", "memory", "term")  # kinds whose value is a text
_OF_WORDS = ("rank", "memory", "term")  # kinds whose text is words

_OPEN, _SEPARATOR, _CLOSE = "\ue000", "\ue001", "\ue002"
_RESERVED = re.compile(f"[{_OPEN}-{_CLOSE}]")
_SLOT = re.compile(f"{_OPEN}([a-z]+){_SEPARATOR}([^{_OPEN}-{_CLOSE}]*){_SEPARATOR}([^{_OPEN}-{_CLOSE}]*){_CLOSE}")


class Slot(Struct, frozen=True):
    """What a sentence says of one thing, as it is printed in `text`.

    `value` is what it is: ns of a time or of the step, 0..1 of a share, bytes of a size, the rate per second, the name
    of an operator or kernel, the place, the ranks, or the key of a term that vendors name differently. What the
    device's memory holds has none.
    """

    kind: SlotKind
    value: float | str
    text: str


class Message(str):
    """A sentence as plain English. `parts`: its words, and the slots between them."""

    __slots__ = ("source",)

    source: str  # with its slots, for another process

    def __new__(cls, source: str) -> Message:
        if isinstance(source, Message):
            return source
        self = super().__new__(cls, plain(source))
        self.source = source
        return self

    @property
    def parts(self) -> tuple[str | Slot, ...]:
        return tuple(_parts(self.source))

    def has(self, kind: SlotKind) -> bool:
        """Whether it speaks of something of this kind."""
        return any(isinstance(part, Slot) and part.kind == kind for part in self.parts)

    def for_vendor(self, key: str | None) -> Message:
        """The same message in the words of a GPU's vendor."""
        if not has_slots(self.source) or not self.has("term"):
            return self
        vendor = vendor_called(key)

        def said(part: str | Slot) -> str:
            if isinstance(part, Slot) and part.kind == "term" and part.value in Term.__members__:
                return vendor.word(Term[str(part.value)])
            return part if isinstance(part, str) else part.text

        return self._with(said)

    def mapped(self, change: Callable[[str], str]) -> Message:
        """The same message with its words and the text of its slots changed, such as cleaned."""
        return self._with(lambda part: change(part if isinstance(part, str) else part.text))

    def _with(self, text_of: Callable[[str | Slot], str]) -> Message:
        """The same slots with another text."""
        source = "".join(_again(part, text_of(part)) for part in self.parts)
        return self if source == self.source else Message(source)

    def __add__(self, more: str) -> Message:
        return Message(self.source + (more.source if isinstance(more, Message) else more))

    def __radd__(self, before: str) -> Message:
        return Message(before + self.source)

    def __reduce__(self) -> tuple[type[Message], tuple[str]]:
        return Message, (self.source,)


_Spoken = TypeVar("_Spoken", bound="Spoken")


class Spoken(Struct, frozen=True):
    """A part of a document with sentences: the fields named in `messages` hold a `Message`, however they were given."""

    messages: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in self.messages:
            value = getattr(self, field)
            if isinstance(value, str) and not isinstance(value, Message):
                force_setattr(self, field, Message(value))
            elif isinstance(value, list):
                force_setattr(self, field, [Message(item) for item in value])

    def for_vendor(self: _Spoken, vendor: str | None) -> _Spoken:
        """The same part, and all in it, in the words of a GPU's vendor."""
        fields = {field: getattr(self, field) for field in self.__struct_fields__}
        said = {field: _for_vendor(value, vendor) for field, value in fields.items()}
        changed = {field: value for field, value in said.items() if value is not fields[field]}
        return replace(self, **changed) if changed else self


def _for_vendor(value: Any, vendor: str | None) -> Any:
    if isinstance(value, Message | Spoken):
        return value.for_vendor(vendor)
    if isinstance(value, list) and any(isinstance(item, Message | Spoken) for item in value):
        return [_for_vendor(item, vendor) for item in value]
    return value


# What a sentence can speak of. Times are nanoseconds, shares 0..1.


def ms(ns: float) -> str:
    """A measured time: "12.3 ms", "0.095 ms", and "43.4 s" from 10 s on."""
    return _slot("time", float(ns), quantities.ms(ns))


def seconds(ns: float) -> str:
    """The time of a part of the run: "0.52 s", "12.3 s", "140 s"."""
    return _slot("time", float(ns), quantities.seconds(ns))


def microseconds(ns: float) -> str:
    """The time of a single call: "2.5 µs"."""
    return _slot("time", float(ns), quantities.microseconds(ns))


def step_time(ns: float) -> str:
    """The time of the typical step, or of the recording without steps: "43.0 ms"."""
    return _slot("step", float(ns), quantities.ms(ns))


def percent(share: float | None) -> str:
    """A share of 0..1: "34%"."""
    return _slot("share", share, quantities.percent(share))


def size(number: float | None) -> str:
    """Bytes of memory: "23.4 GiB", "5.0 MiB"."""
    return _slot("bytes", number, quantities.size(number))


def megabytes(number: float) -> str:
    """Bytes that were moved: "33.6 MB"."""
    return _slot("bytes", number, quantities.megabytes(number))


def per_second(value: float, unit: str) -> str:
    """A rate in `unit` per second: "5.1 GB/s"."""
    return _slot("rate", value, quantities.per_second(value, unit))


def named(text: str) -> str:
    """The name of an operator, kernel, function or the like, as the trace or the program has it."""
    return _slot("name", text, text)


def placed(location: object) -> str:
    """A place in the user's code: "train.py:31"."""
    return _slot("place", str(location), str(location))


def of_ranks(text: str) -> str:
    """The ranks that the message is about: "rank 3", "ranks 4 and 5"."""
    return _slot("rank", text, text)


def of_memory(text: str) -> str:
    """Words about what the device's memory holds, which the chart of memory shows."""
    return _slot("memory", "", text)


def _term(term: Term) -> str:
    return _slot("term", term.name, term.value)


def has_slots(source: str) -> bool:
    """Whether a text is more than plain words."""
    return _OPEN in source


def plain(source: str) -> str:
    """A text as people read it, without its slots."""
    return "".join(map(_said, _parts(source))) if _RESERVED.search(source) else _words(source)


def encoded(value: object) -> Any:
    """msgspec's `enc_hook` for messages: another process gets the text with its slots."""
    if isinstance(value, Message):
        return value.source
    raise NotImplementedError(f"{type(value).__name__} is not part of a document")


@contextmanager
def pseudo_locale(change: Callable[[str], str]) -> Iterator[None]:
    """For tests: all messages made inside have other words. What a program decides must not change with them."""
    global _words
    before, _words = _words, change
    try:
        yield
    finally:
        _words = before


def _english(text: str) -> str:
    return text


_words: Callable[[str], str] = _english


def _said(part: str | Slot) -> str:
    if isinstance(part, str):
        return _words(part)
    return _words(part.text) if part.kind in _OF_WORDS else part.text


def _slot(kind: SlotKind, value: float | str | None, text: str) -> str:
    """A slot as text. What it holds has no slots of its own."""
    if value is None:
        return text
    held = value if not isinstance(value, str) else _flat(value)
    return f"{_OPEN}{kind}{_SEPARATOR}{held}{_SEPARATOR}{_flat(text)}{_CLOSE}"


def _flat(source: str) -> str:
    if not _RESERVED.search(source):
        return source
    return "".join(part if isinstance(part, str) else part.text for part in _parts(source))


def _again(part: str | Slot, text: str) -> str:
    """A part with another text. The value of a name, place or rank is its text."""
    if isinstance(part, str):
        return text
    return _slot(part.kind, text if part.kind in ("name", "place", "rank") else part.value, text)


def _parts(source: str) -> Iterator[str | Slot]:
    """Words and slots in turn. A slot whose value does not fit its kind is words."""
    end = 0
    for found in _SLOT.finditer(source):
        if found.start() > end:
            yield _RESERVED.sub("", source[end : found.start()])
        yield _read(*found.groups())
        end = found.end()
    if end < len(source):
        yield _RESERVED.sub("", source[end:])


def _read(kind: str, value: str, text: str) -> str | Slot:
    if kind in _TEXTS:
        return Slot(_KINDS[kind], value, text)
    try:
        return Slot(_KINDS[kind], float(value), text)
    except (KeyError, ValueError):
        return text


# Terms that vendors name differently: in NVIDIA's words, until the vendor of the GPU is known.
COUNTER_TOOLS = _term(Term.COUNTER_TOOLS)
CUDA_GRAPH = _term(Term.CUDA_GRAPH)
CUDNN = _term(Term.CUDNN)
CUPTI = _term(Term.CUPTI)
NCCL = _term(Term.NCCL)
SERVING_ENGINES = _term(Term.SERVING_ENGINES)
TENSOR_CORE = _term(Term.TENSOR_CORE)
TF32 = _term(Term.TF32)
