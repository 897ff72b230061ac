"""Makes patches for findings from the user's files, if the change is unambiguous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.python_frames import is_library_file
from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches import arguments, attention, frameworks, loaders, loops, precision
from traceopt.rules.fixes.patches.files import find_source
from traceopt.rules.fixes.patches.places import statements_at
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError
from traceopt.rules.fixes.patches.text_edits import TextEdit, applied
from traceopt.rules.fixes.patches.unified import apply_diff, unified_diff

# Makes the edits for a rule's fix; raises UnclearError if a person has to decide. The finding has only locations in the
# source.
Recipe = Callable[[PythonSource, Finding], list[TextEdit]]
RECIPES: dict[str, Recipe] = {
    "AT001": attention.fused_attention,
    "CM007": arguments.ddp_buffers,
    "CV001": precision.channels_last,
    "CV003": precision.cudnn_benchmark,
    "DL001": loaders.workers,
    "DL003": loaders.pinned_copies,
    "DL006": loaders.restarted_workers,
    "HS001": loops.log_at_interval,
    "HS003": loops.no_synchronize,
    "LG001": loops.log_at_interval,
    "LG002": loops.log_at_interval,
    "OP001": arguments.fused_optimizer,
    "OP003": arguments.zero_grad,
    "PY001": loops.collect_at_interval,
    "TC001": precision.autocast,
    "TC002": precision.tf32,
}


class FilePatch(Struct, frozen=True):
    """The edits of one finding in one file."""

    source: PythonSource
    edits: list[TextEdit]


def with_patches(findings: Sequence[Finding], folders: Sequence[Path], *, debug: bool = False) -> list[Finding]:
    """The findings, with a patch if one can be made from the files in these folders.

    With `debug`, an exception in a recipe is raised. Otherwise only that patch is missing.
    """
    out = []
    for finding, change in zip(findings, _changes(findings, folders, debug), strict=True):
        patch = _patch(change.source, change.edits) if change is not None else None
        out.append(replace(finding, fix=replace(finding.fix, patch=patch)) if patch else finding)
    return out


def combined_patch(findings: Sequence[Finding], folders: Sequence[Path]) -> tuple[str, list[str]]:
    """One patch with all compatible fixes, and their codes. If two clash, it has the more valuable one."""
    chosen: dict[str, FilePatch] = {}
    codes = []
    for finding, change in zip(findings, _changes(findings, folders, debug=False), strict=True):
        if change is None:
            continue
        path = change.source.path
        before = chosen.get(path, FilePatch(change.source, []))
        if before.source.text != change.source.text:  # the file is from another folder
            continue
        together = FilePatch(change.source, [*before.edits, *change.edits])
        if _patch(together.source, together.edits) is not None:
            chosen[path] = together
            codes.append(finding.code)
    patches = [_patch(change.source, change.edits) or "" for _, change in sorted(chosen.items())]
    return "".join(patches), list(dict.fromkeys(codes))


def _changes(findings: Iterable[Finding], folders: Sequence[Path], debug: bool) -> list[FilePatch | None]:
    files: dict[str, PythonSource | None] = {}
    out = []
    for finding in findings:
        try:
            out.append(_change(finding, folders, files))
        except Exception as error:
            if debug and not isinstance(error, UnclearError):
                raise
            out.append(None)
    return out


def _change(finding: Finding, folders: Sequence[Path], files: dict[str, PythonSource | None]) -> FilePatch | None:
    """The change in the first file of the finding that is the user's; `files` caches files by their name in the trace.

    Raises UnclearError if a person has to make the change.
    """
    recipe = frameworks.framework_settings if frameworks.changes_settings(finding) else RECIPES.get(finding.code)
    places = [place for place in finding.locations if not is_library_file(place.file)]
    if recipe is None or not places:
        return None
    name = places[0].file
    if name not in files:
        files[name] = find_source(name, folders)
    source = files[name]
    here = [place for place in places if place.file == name]
    if source is None or not statements_at(source, here[0]):
        return None
    return FilePatch(source, recipe(source, replace(finding, locations=here)))


def _patch(source: PythonSource, edits: list[TextEdit]) -> str | None:
    """The diff of the edits, if the result is valid Python and the diff applies to the file."""
    try:
        text = applied(source.text, edits)
        PythonSource.parse(source.path, text)
        diff = unified_diff(source.path, source.text, text)
        if text != source.text and apply_diff(source.text, diff) == text:
            return diff
    except (UnclearError, ValueError):
        pass
    return None
