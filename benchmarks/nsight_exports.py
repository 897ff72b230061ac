"""Writes a large export of Nsight Systems: the steps of a small training, repeated."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fixtures.generate import generate
from fixtures.nsight import Export

_TABLES = {"CUPTI_ACTIVITY_KIND_KERNEL": 5, "CUPTI_ACTIVITY_KIND_RUNTIME": 4, "NVTX_EVENTS": None}


def write(path: Path, megabytes: float) -> None:
    """Writes an export of about this size."""
    export = Export([generate("item_stall", steps=20).document])
    probe = export.write(path).stat().st_size
    copies = max(1, round(megabytes * 1e6 / probe))
    work = export.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    period = max(row[1] for row in work) - min(row[0] for row in work) + 1_000_000
    with sqlite3.connect(path) as connection:
        for table, correlation in _TABLES.items():
            rows = export.rows[table]
            insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"  # noqa: S608
            for copy in range(1, copies):
                ahead, calls = copy * period, copy * 1_000_000
                connection.executemany(
                    insert,
                    (
                        tuple(
                            value + ahead if place < 2 else value + calls if place == correlation else value
                            for place, value in enumerate(row)
                        )
                        for row in rows
                    ),
                )
    connection.close()
