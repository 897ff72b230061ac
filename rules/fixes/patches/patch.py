"""Makes patches for findings from the user's files, if the change is unambiguous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.python_frames import is_library_file
from traceopt.result.finding import Finding, Fix, Location
from traceopt.result.words.message import named, placed
from traceopt.rules.fixes.optimizers import FOREACH, FUSED
from traceopt.rules.fixes.patches import arguments, attention, checkpoints, frameworks, loaders, loops, precision
from traceopt.rules.fixes.patches.files import find_source
from traceopt.rules.fixes.patches.places import statements_at
from traceopt.rules.fixes.patches.source import GivenElsewhereError, PythonSource, UnclearError
from traceopt.rules.fixes.patches.text_edits import TextEdit, applied
from traceopt.rules.fixes.patches.unified import apply_diff, unified_diff

# Makes a fix in a source; raises UnclearError if a person has to decide. The finding has only locations in the source.
Recipe = Callable[[PythonSource, Finding], list[TextEdit]]
# By what the edits of a fix set.
RECIPES: dict[str, Recipe] = {
    "DataLoader.num_workers": loaders.arguments,
    "DataLoader.persistent_workers": loaders.arguments,
    "DataLoader.pin_memory": loaders.arguments,
    "DataLoader.prefetch_factor": loaders.arguments,
    "DataLoader.sampler": loaders.batch_sampler,
    "DistributedDataParallel.broadcast_buffers": arguments.ddp_buffers,
    "DistributedDataParallel.find_unused_parameters": arguments.ddp_search,
    "F.scaled_dot_product_attention": attention.fused_attention,
    "gc.collect.every": loops.collect_at_interval,
    "images.to.non_blocking": loaders.pinned_copies,
    "log.every": loops.log_at_interval,
    "model.gradient_checkpointing_disable": checkpoints.without_checkpoint,
    "model.to.memory_format": precision.channels_last,
    "nn.Embedding.sparse": arguments.sparse_embedding,
    "optimizer.zero_grad.set_to_none": arguments.zero_grad,
    "torch.autocast": precision.autocast,
    "torch.backends.cudnn.allow_tf32": precision.tf32,
    "torch.backends.cudnn.benchmark": precision.cudnn_benchmark,
    "torch.cuda.synchronize.removed": loops.no_synchronize,
    "torch.set_float32_matmul_precision": precision.tf32,
    checkpoints.REMOVED: checkpoints.without_checkpoint,
    "torch.set_flush_denormal": precision.flush_denormal,
    **{f"torch.optim.{kind}.fused": arguments.fused_optimizer for kind in FUSED},
    **{f"torch.optim.{kind}.foreach": arguments.fused_optimizer for kind in FOREACH},
}


class FilePatch(Struct, frozen=True):
    """The edits of one finding in one file."""

    source: PythonSource
    edits: list[TextEdit]


def with_patches(findings: Sequence[Finding], folders: Sequence[Path], *, debug: bool = False) -> list[Finding]:
    """The findings, with a patch if one can be made from the files in these folders. Where the value to change comes
    from elsewhere, the fix quotes the source.

    With `debug`, an exception in a recipe is raised. Otherwise only that patch is missing.
    """
    out = []
    for finding, change in zip(findings, _changes(findings, folders, debug), strict=True):
        fix = finding.fix
        if isinstance(change, FilePatch):
            fix = replace(fix, patch=_patch(change.source, change.edits))
        elif isinstance(change, GivenElsewhereError):
            fix = _quoting(fix, finding.locations[0].file, change)
        out.append(replace(finding, fix=fix) if fix is not finding.fix else finding)
    return out


def _quoting(fix: Fix, file: str, given: GivenElsewhereError) -> Fix:
    """The fix in the words of the source, whose value a person has to change."""
    place = placed(Location(file, given.line))
    said = f" {place} takes {given.name} from {named(given.expression)}: set that to {given.wanted}."
    return replace(fix, text=fix.text + said, code=f"{given.name}={given.expression}  # let this be {given.wanted}")


def combined_patch(findings: Sequence[Finding], folders: Sequence[Path]) -> tuple[str, list[str]]:
    """One patch with all compatible fixes, and their codes. If two clash, it has the more valuable one."""
    chosen: dict[str, FilePatch] = {}
    codes = []
    for finding, change in zip(findings, _changes(findings, folders, debug=False), strict=True):
        if not isinstance(change, FilePatch):
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


def why_not(finding: Finding, folders: Sequence[Path]) -> str:
    """Why there is no patch, in a clause. A finding with a patch of its own lost it to another on the same lines."""
    [change] = _changes([finding], folders, debug=False)
    return str(change) if isinstance(change, UnclearError) else "another fix changes the same lines"


def _changes(findings: Iterable[Finding], folders: Sequence[Path], debug: bool) -> list[FilePatch | UnclearError]:
    files: dict[str, PythonSource | None] = {}
    out: list[FilePatch | UnclearError] = []
    for finding in findings:
        try:
            out.append(_change(finding, folders, files))
        except UnclearError as unclear:
            out.append(unclear)
        except Exception as error:
            if debug:
                raise
            out.append(UnclearError(f"the change failed ({type(error).__name__})"))
    return out


def _change(finding: Finding, folders: Sequence[Path], files: dict[str, PythonSource | None]) -> FilePatch:
    """The change in the first file of the finding that is the user's; `files` caches files by their name in the trace.

    Raises UnclearError if a person has to make the change.
    """
    recipe = _recipe(finding.fix)
    if recipe is None:
        raise UnclearError("this fix has no automatic edit")
    places = [place for place in finding.locations if not is_library_file(place.file)]
    if not places:
        raise UnclearError("the trace names no line of your code")
    name = places[0].file
    if name not in files:
        files[name] = find_source(name, folders)
    source = files[name]
    if source is None:
        raise UnclearError(f"{name} is not in the source folders, or cannot be read")
    here = [place for place in places if place.file == name]
    if not statements_at(source, here[0]):
        raise UnclearError(f"{name} has changed since the recording")
    return FilePatch(source, recipe(source, replace(finding, locations=here)))


def _recipe(fix: Fix) -> Recipe | None:
    if fix.in_framework is not None:
        return frameworks.framework_settings
    return next((RECIPES[name] for name in fix.settings if name in RECIPES), None)


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
