"""What packets refer to by number: names, categories, kinds of GPU work, counters and threads."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from traceopt.analyzer.reading.perfetto.wire import VARINT, Fields

_LENGTH = 1 << 16  # of a name; event_types cuts names further


class Track(Struct, frozen=True):
    """A thread, by the numbers that the exporter gives it. `name`: "" if it has none."""

    pid: float
    tid: float
    name: str = ""


class Dictionaries(Struct):
    """Grows while the file is read: packets only refer to what came before them."""

    categories: dict[int, str] = {}
    names: dict[int, str] = {}
    stages: dict[int, str] = {}  # kinds of GPU work, and streams
    arguments: dict[int, str] = {}  # of launches
    counters: dict[int, tuple[int, dict[int, str]]] = {}  # number of the GPU, and the names
    tracks: dict[int, Track] = {}

    def add(self, interned: Fields) -> None:
        """Adds the contents of `TracePacket.interned_data`."""
        for number, known in ((1, self.categories), (2, self.names), (24, self.stages), (1001, self.arguments)):
            entries = interned.of(number)
            fields = entries.inside()
            ids, texts = fields.numbers(1, len(entries)).tolist(), fields.of(2)
            for row, entry in enumerate(texts.message.tolist()):
                known[ids[entry]] = _text(texts, row)
        described = interned.of(47)
        fields = described.inside()
        ids, gpus = fields.numbers(1, len(described)).tolist(), fields.numbers(3, len(described), 0).tolist()
        descriptors = fields.of(2)
        specs = descriptors.inside().of(1)
        counter = specs.inside()
        codes, texts = counter.numbers(1, len(specs), 0).tolist(), counter.of(2)
        for row, spec in enumerate(texts.message.tolist()):
            place = int(descriptors.message[specs.message[spec]])
            self.counters.setdefault(ids[place], (gpus[place], {}))[1][codes[spec]] = _text(texts, row)

    def add_tracks(self, descriptors: Fields) -> list[Track]:
        """Adds the contents of `TracePacket.track_descriptor`; returns the threads among them."""
        fields = descriptors.inside()
        uuids, threads = fields.of(1, VARINT), fields.of(4)
        thread = threads.inside()
        names = thread.of(5)
        named = dict(zip(names.message.tolist(), range(len(names)), strict=True))
        pids, tids = (thread.numbers(number, len(threads)).tolist() for number in (1, 2))
        uuid_of = dict(zip(uuids.message.tolist(), uuids.value.tolist(), strict=True))
        found = []
        for row, message in enumerate(threads.message.tolist()):
            name = _text(names, named[row]) if row in named else ""
            track = Track(float(pids[row]), float(tids[row]), name)
            self.tracks[uuid_of.get(message, -1)] = track
            found.append(track)
        return found


def named(values: Mapping[int, str], ids: list[int]) -> list[str]:
    """The names with these numbers; "" for one that the file lacks."""
    return [values.get(one, "") for one in ids]


def _text(fields: Fields, row: int) -> str:
    return fields.text(row)[:_LENGTH].decode("utf-8", "replace")
