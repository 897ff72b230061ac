"""The two cycles that `traceopt run` records of every rank: which of the files is analyzed.

Until both are joined into one result the detail cycle is taken: shapes and the lines of code are only there.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from traceopt.analyzer.sources import Source
from traceopt.errors import InputError

DETAIL = "detail"
_HEAD_BYTES = 4096
_KEY = '"traceopt": {"cycle": '


def one_cycle(sources: Sequence[Source]) -> list[Source]:
    """Leaves out, from each folder, the other cycles of a worker whose detail cycle is there too.

    A file that the user named stays.
    """
    by_worker: dict[tuple[str, str | None], list[Source]] = {}
    for source in sources:
        by_worker.setdefault((str(source.path.parent), source.worker), []).append(source)
    dropped: set[int] = set()
    for (_, worker), files in by_worker.items():
        if worker is None or len(files) < 2:
            continue
        cycles = {id(source): cycle_name(source) for source in files}
        if DETAIL in cycles.values():
            dropped |= {key for key, name in cycles.items() if name is not None and name != DETAIL}
    return [source for source in sources if id(source) not in dropped or source.named]


def cycle_name(source: Source) -> str | None:
    """As the capture wrote it at the very start of the file; None for a trace from elsewhere."""
    try:
        with source.open() as stream:
            start = stream.read(_HEAD_BYTES)
        if start.startswith(b"\x1f\x8b"):
            start = zlib.decompressobj(wbits=31).decompress(start, _HEAD_BYTES)
    except (OSError, InputError, zlib.error):
        return None
    text = start.decode("utf-8", "replace")
    at = text.find(_KEY)
    if at < 0:
        return None
    try:
        cycle, _ = json.JSONDecoder().raw_decode(text, at + len(_KEY))
    except ValueError:
        return None
    name = cycle.get("name") if isinstance(cycle, dict) else None
    return name if isinstance(name, str) else None
