"""Where the script constructed its DataLoaders, optimizers and framework settings, as `traceopt run` noted it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.json_values import flag, rows, whole, word
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary.python_frames import is_library, parse_frame
from traceopt.analyzer.vocabulary.training_frameworks import (
    FRAMEWORKS,
    REPLACE_LOADERS,
    TrainingFramework,
    framework_of_frame,
    framework_of_package,
)
from traceopt.result.finding import Location

MOST_FRAMES = 64  # read of one stack
MOST_STACKS = 3
MOST_SETTINGS = 20


class Construction(Struct, frozen=True):
    """Who constructed an object. `site` is the user's line: of the constructor, or of the call into the library that
    called it. `library` is the package that called the constructor; None if the user's code did.
    """

    site: Location
    library: str | None


class FrameworkSettings(Struct, frozen=True):
    """The object that configures a framework, such as Hugging Face's TrainingArguments; `class_name` has no module."""

    framework: TrainingFramework
    class_name: str
    built: Construction


class Ddp(Struct, frozen=True):
    """A DistributedDataParallel. `looks_for_unused`: it looks for parameters without a gradient in each iteration.
    `unused_bytes`: the size of those that it found; None if that is unknown, or changed.
    """

    looks_for_unused: bool
    unused_bytes: int | None
    built: Construction | None


def read_construction(stacks: object) -> Construction | None:
    """Of several stacks, the latest of the user's code, else of a library that does not just replace the loader."""
    found = [one for stack in _lists(stacks)[:MOST_STACKS] if (one := _construction(stack)) is not None]
    originals = [one for one in found if one.library not in REPLACE_LOADERS]
    return next((one for one in found if one.library is None), next(iter(originals or found), None))


def read_ddp(wrappers: object) -> tuple[Ddp, ...]:
    return tuple(
        Ddp(looks, whole(row.get("unused_bytes")), read_construction(row.get("built")))
        for row in rows(wrappers)[:MOST_SETTINGS]
        if (looks := flag(row.get("looks_for_unused"))) is not None
    )


def read_framework_settings(settings: object) -> tuple[FrameworkSettings, ...]:
    """Settings that a framework makes for itself are left out."""
    found = []
    for row in rows(settings)[:MOST_SETTINGS]:
        framework = framework_of_package(word(row.get("framework")) or "")
        name, built = word(row.get("class")), read_construction(row.get("built"))
        if framework is not None and name is not None and name.isidentifier() and built is not None:
            found.append(FrameworkSettings(framework, name, built))
    return tuple(found)


def find_framework(trace: Trace, settings: Sequence[FrameworkSettings]) -> TrainingFramework | None:
    """The framework that runs the steps: by the Python frames of the trace; without any, by the script's settings."""
    names = [trace.names[code] for code in distinct_values(trace.python.name)]
    found = set(map(framework_of_frame, names)) if names else {setting.framework for setting in settings}
    return next((framework for framework in FRAMEWORKS if framework in found), None)


def _construction(stack: list[object]) -> Construction | None:
    frames = [frame for frame in map(word, stack[:MOST_FRAMES]) if frame is not None]
    user = next((frame for frame in frames if not is_library(frame)), None)
    site = parse_frame(user) if user is not None else None
    if site is None:
        return None
    caller = parse_frame(frames[0])
    library = None if frames[0] == user or caller is None else caller.file.partition("/")[0]
    return Construction(site, library)


def _lists(value: object) -> list[list[object]]:
    return [one for one in value if isinstance(one, list)] if isinstance(value, list) else []
