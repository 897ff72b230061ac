"""Reads the settings: `[tool.traceopt]` of the nearest pyproject.toml, or traceopt.toml."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from traceopt.errors import ConfigError, one_line, suggestion

MOST_BYTES = 1 << 20  # of a settings file
Rate = Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)]


class PeakRates(TypedDict, total=False):
    """What the settings can say of a device: dense peaks in TFLOP/s (TOP/s for int8), and bandwidths."""

    fp64: Rate
    fp32: Rate
    tf32: Rate
    fp16: Rate
    bf16: Rate
    fp8: Rate
    fp4: Rate
    int8: Rate
    hbm_gb_per_s: Rate
    link_gb_per_s: Rate


class Config(Struct, frozen=True):
    """Every setting with its default. In TOML you can write the names with `-` or `_`.

    Relative paths start at the folder of the settings file. `html` is a path, or false for no HTML report. `fail_on`
    and `warn_on` are gates; `baseline` lists the runs to compare a new run with. `jobs` is the number of processes that
    read ranks, by default as many as cores and memory allow. `scheduler` is the address of a Dask scheduler. `cache` is
    a folder that stores the result of each rank.
    `rules` holds thresholds: `min_share = 0.05` under `[tool.traceopt.rules.DL001]`.
    `devices` holds peak rates by device name: `bf16 = 756` under `[tool.traceopt.devices."NVIDIA H100 PCIe"]`.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    rules_dir: str | None = None
    html: str | bool | None = None
    baseline: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    warn_on: tuple[str, ...] = ()
    tokens_per_step: float | None = None
    samples_per_step: float | None = None
    reference_throughput: float | None = None
    price_per_hour: float | None = None
    jobs: Annotated[int, msgspec.Meta(ge=1)] | None = None
    scheduler: str | None = None
    cache: str | None = None
    rules: dict[str, dict[str, Any]] = {}
    devices: dict[str, Any] = {}


def load_config(explicit: Path | None = None, start: Path | None = None) -> Config:
    """The settings of the file `explicit`, or else of the nearest file in `start` (the current folder) or above.

    Raises ConfigError if the file cannot be read, is not TOML, or has a setting that is unknown or of the wrong type.
    """
    if explicit is not None:
        return _read(explicit) or Config()
    folder = (start or Path.cwd()).absolute()
    for parent in (folder, *folder.parents):
        for name in ("traceopt.toml", "pyproject.toml"):
            if (parent / name).is_file() and (config := _read(parent / name)) is not None:
                return config
    return Config()


def typed_settings(schema: type, names: Sequence[str], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of `table`, converted to the types of the attributes `names` of `schema`.

    Raises ConfigError, with a message that begins with `where`, for an unknown key and for a value of the wrong type.
    """
    types = get_type_hints(schema, include_extras=True)
    values = {}
    for key, value in table.items():
        name = str(key).replace("-", "_")
        if name not in names:
            hint = suggestion(name, names) or f"; known: {', '.join(names) or 'none'}"
            raise ConfigError(f"{where}: unknown setting {one_line(repr(key), 80)}{hint}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{where}: {key}: expected a finite number, got {value}")
        try:
            values[name] = msgspec.convert(value, types[name])
        except msgspec.ValidationError as error:
            raise ConfigError(f"{where}: {key}: {_lower_first(str(error))}") from error
    return values


def checked_devices(devices: Mapping[str, Any], where: str = "devices") -> dict[str, dict[str, Any]]:
    """The peak rates in the settings, by device name.

    Raises ConfigError, with a message that begins with `where`, for a device without a table, an unknown rate, and a
    value that is not a peak rate.
    """
    checked = {}
    for name, figures in devices.items():
        table = f"{where}.{_quoted(name)}"
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"{where}: a device without a name")
        if not isinstance(figures, Mapping):
            kind = type(figures).__name__
            raise ConfigError(f"{table}: expected a table of peak rates such as bf16 = 989, got {kind}")
        checked[name] = typed_settings(PeakRates, list(PeakRates.__annotations__), figures, table)
    return checked


def _quoted(name: object) -> str:
    return json.dumps(one_line(str(name), 80), ensure_ascii=False)


def _read(path: Path) -> Config | None:
    """The settings in `path`; None if it is a pyproject.toml without a `[tool.traceopt]` table."""
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES >> 20} MiB, so it is not a settings file")
        document = toml.loads(data.decode())
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}") from error
    except RecursionError:
        raise ConfigError(f"{path}: values are nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both
        raise ConfigError(f"{path} is not valid TOML: {one_line(str(error))}") from error
    where = str(path)
    if path.name == "pyproject.toml":
        tool = document.get("tool", {})
        if not isinstance(tool, dict) or "traceopt" not in tool:
            return None
        document, where = tool["traceopt"], f"{path}: [tool.traceopt]"
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: expected a table, got {type(document).__name__}")
    config = Config(**typed_settings(Config, Config.__struct_fields__, document, where))
    prefix = "tool.traceopt." if path.name == "pyproject.toml" else ""
    devices = checked_devices(config.devices, f"{path}: {prefix}devices")
    return replace(
        config,
        devices=devices,
        rules_dir=_relative_to(path, config.rules_dir),
        html=_relative_to(path, config.html),
        cache=_relative_to(path, config.cache),
        baseline=tuple(_relative_to(path, run) for run in config.baseline),
    )


def _relative_to(path: Path, setting: Any) -> Any:
    """A path setting relative to the folder of the settings file `path`; other values stay as they are."""
    return str(path.parent / setting) if isinstance(setting, str) else setting


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
