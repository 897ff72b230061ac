"""What `traceopt run` wrote into the trace beside the events: settings that no event shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """Arguments of a DataLoader; None where not known."""

    num_workers: int | None
    prefetch_factor: int | None
    pin_memory: bool | None
    persistent_workers: bool | None
    batch_size: int | None


@dataclass(frozen=True, slots=True)
class Captured:
    """Empty for a trace that another program recorded."""

    cpu_count: int | None  # cores that the process may use
    loaders: tuple[LoaderSettings, ...]


def captured(header: Mapping[str, Any]) -> Captured:
    """From the top-level key `traceopt`; of unexpected types nothing is taken."""
    own = header.get("traceopt")
    own = own if isinstance(own, Mapping) else {}
    environment = own.get("environment")
    environment = environment if isinstance(environment, Mapping) else {}
    loaders = own.get("loaders")
    return Captured(
        cpu_count=_whole(environment.get("cpu_affinity")) or _whole(environment.get("cpu_count")),
        loaders=tuple(
            LoaderSettings(
                num_workers=_whole(one.get("num_workers")),
                prefetch_factor=_whole(one.get("prefetch_factor")),
                pin_memory=_flag(one.get("pin_memory")),
                persistent_workers=_flag(one.get("persistent_workers")),
                batch_size=_whole(one.get("batch_size")),
            )
            for one in (loaders if isinstance(loaders, list) else [])
            if isinstance(one, Mapping)
        ),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
