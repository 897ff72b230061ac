"""What the CPU of a run without a GPU reaches: measured after the run, in another process, and added to its traces.

The rates are cached for ten minutes in the user's cache folder, by CPU model, threads and torch version. If anything
goes wrong, the traces stay as they are: the report then has rates, and no share of a peak.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..metadata.cpu import describe_machine
from ..recording.trace_file import open_saved

REPEAT_S = 600  # after which a measurement is repeated: other programs may have begun or ended
LIMIT_S = 60  # to import torch on a slow disk, and to measure
NATIVE_BF16 = ("amx_bf16", "avx512_bf16", "bf16")


def add_cpu_peaks(traces: Sequence[Path]) -> None:
    """Adds the key `cpu_peaks` to the traces of runs without a GPU on this machine. Measures once for all of them."""
    for path in traces:
        try:
            saved, head = open_saved(path)
            rates = _rates(head)
            if rates is not None:
                saved.replace_head(head | {"cpu_peaks": rates})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # of a damaged or foreign file
            continue


def _rates(head: dict[str, Any]) -> dict[str, Any] | None:
    """The rates for the run of a trace; None if it used a GPU, ran elsewhere, or they cannot be measured."""
    environment = head.get("environment") or {}
    cpu, threads, version = environment.get("cpu") or {}, environment.get("threads"), head.get("torch_version")
    here = describe_machine()
    if environment.get("gpus") or not threads or any(cpu.get(name) != here[name] for name in here):
        return None
    key = {
        "version": 3,
        "cpu": here,
        "torch_version": version,
        "threads": threads,
        "all_threads": _more_threads(environment, threads),
        "bf16": any(flag in (here["flags"] or ()) for flag in NATIVE_BF16),
    }
    text = json.dumps(key, sort_keys=True)
    cached = cache_folder() / "cpu-peaks" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    known, age_s = _read(cached, key)
    if known is not None and age_s <= REPEAT_S:
        return known
    measured = _measure(key)
    if measured is None or (known is not None and _complete(known) and not _complete(measured)):
        measured = known
    if measured is not None:
        _write(cached, {"key": key, "cpu_peaks": measured})
    return measured


def _complete(rates: object) -> bool:
    """Whether every rate was measured; on a busy machine some are null."""
    return all(map(_complete, rates.values())) if isinstance(rates, dict) else rates is not None


def _more_threads(environment: dict[str, Any], threads: int) -> int | None:
    """The threads that would use all physical cores of this rank; None if the run has as many."""
    cores = environment.get("cpu_affinity") or environment.get("cpu_count") or 1
    if environment.get("cpu_quota"):
        cores = min(cores, int(environment["cpu_quota"]))
    cores //= (environment.get("local_world_size") or 1) * (environment["cpu"].get("threads_per_core") or 2)
    return cores if cores > threads else None


def _measure(key: dict[str, Any]) -> dict[str, Any] | None:
    wanted = json.dumps({name: key[name] for name in ("threads", "all_threads", "bf16")})
    script = str(Path(__file__).with_name("measure_cpu.py"))
    try:
        done = subprocess.run(  # noqa: S603 - this Python and our own script
            [sys.executable, script, wanted], capture_output=True, timeout=LIMIT_S, check=True, stdin=subprocess.DEVNULL
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    same = isinstance(found, dict) and found.get("torch_version") == key["torch_version"]
    return found.get("cpu_peaks") if same else None


def cache_folder() -> Path:
    """The user's folder for what programs may compute again."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "traceopt"
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "traceopt" / "cache"
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "traceopt"


def _read(path: Path, key: dict[str, Any]) -> tuple[dict[str, Any] | None, float]:
    """The cached rates and their age; None if there are none."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        age_s = time.time() - path.stat().st_mtime
    except (OSError, ValueError):
        return None, 0.0
    rates = entry.get("cpu_peaks") if isinstance(entry, dict) and entry.get("key") == key else None
    return (rates if isinstance(rates, dict) else None), age_s


def _write(path: Path, entry: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(entry), encoding="utf-8")
        os.replace(temporary, path)
    except OSError:
        return
