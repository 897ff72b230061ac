"""What a quick script would do: decode the whole file into one DataFrame with a column per field. No analysis."""

import gzip
import sys
from pathlib import Path

import orjson
import pandas as pd

ARGUMENTS = ("External id", "correlation", "stream", "device", "Input Dims", "Input type", "grid", "block", "bytes")


def main(path: Path) -> None:
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    document = orjson.loads(data)
    events = document["traceEvents"] if isinstance(document, dict) else document
    table = pd.DataFrame(events)
    for key in ARGUMENTS:
        table[key] = [args.get(key) if isinstance(args, dict) else None for args in table["args"]]
    del table["args"]


main(Path(sys.argv[1]))
