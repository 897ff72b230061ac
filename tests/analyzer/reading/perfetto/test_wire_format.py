"""Fields of many messages are read like those of one, and damaged messages end at their damage."""

from __future__ import annotations

import random

import numpy as np
import pytest

from traceopt.analyzer.reading.perfetto.wire import Fields, fields_of, packed, read_fields


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(rng: random.Random) -> bytes:
    """Fields of each wire type."""
    out = b""
    for _ in range(rng.randrange(8)):
        number, wire = rng.choice((1, 7, 15, 16, 1001)), rng.choice((0, 1, 2, 5))
        out += varint(number << 3 | wire)
        text = rng.randbytes(rng.choice((0, 3, 200)))
        out += {
            0: varint(rng.choice((0, 1, 127, 128, 2**35, 2**63, 2**64 - 1))),
            1: rng.randbytes(8),
            2: varint(len(text)) + text,
            5: rng.randbytes(4),
        }[wire]
    return out


def read(messages: list[bytes]) -> tuple[Fields, int]:
    data = packed(b"".join(messages))
    ends = np.cumsum([len(one) for one in messages])
    return read_fields(data, ends - [len(one) for one in messages], ends), data.damaged


def rows(fields: Fields) -> list[list[int]]:
    return np.stack((fields.message, fields.number, fields.wire, fields.value, fields.begin, fields.end), 1).tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("flips", [0, 30])
def test_all_at_once_is_one_by_one(seed: int, flips: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    data = bytearray(b"".join(messages := [message(rng) for _ in range(200)]))
    for _ in range(flips):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    fields, damaged = read([bytes(data)[start : start + len(one)] for one, start in _placed(messages)])
    wanted = [
        [place, *field]
        for place, (one, start) in enumerate(_placed(messages))
        for field in fields_of(bytes(data), start, start + len(one))
    ]
    assert rows(fields) == wanted
    assert flips or not damaged


def _placed(messages: list[bytes]) -> list[tuple[bytes, int]]:
    return [(one, sum(map(len, messages[:place]))) for place, one in enumerate(messages)]


def test_a_message_of_many_fields_among_small_ones() -> None:
    fields, damaged = read([b"\x08\x01"] * 20 + [b"\x08\x02" * 5_000])
    assert (len(fields), damaged) == (5_020, 0)


@pytest.mark.parametrize("count", [1, 100])
def test_damaged_messages_are_counted(count: int) -> None:
    for broken in (
        b"\x08\x01\x08",
        b"\x08\x01\x12\x7f",
        b"\x08\x01\x0b",
        b"\x08\x01" + b"\xff" * 11,
        b"\x08\x01\x09\0",
    ):
        fields, damaged = read([broken] * count)
        assert (len(fields.of(1, 0)), damaged) == (count, count)
