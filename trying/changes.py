"""What can be tried: the fixes of a report, and changes that the user names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from traceopt.errors import ConfigError, InputError, one_line, suggestion
from traceopt.result.document import Result
from traceopt.result.finding import Finding
from traceopt.result.trial import ChangeKind, Via
from traceopt.rules.fixes.run_time import at_run_time
from traceopt.rules.registry import load_rules

MOST_PATCH_BYTES = 8 << 20
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|KEY$", re.IGNORECASE)  # not for a report
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Prediction(Struct, frozen=True):
    """What a fix should save per step, in microseconds. `correction`: of earlier trials on this machine, included."""

    us: float
    low_us: float
    high_us: float
    correction: float = 1.0


class Seen(Struct, frozen=True):
    """What the few runs of a search showed: the gain as a part of the step, and what its first steps took more."""

    gain_share: float
    extra_us: float


class Change(Struct, frozen=True):
    """One thing to try. What it changes is in the fields that are set; a `finding` has a patch of its own."""

    name: str
    kind: ChangeKind
    title: str
    via: Via
    finding: Finding | None = None
    diff: str | None = None
    revision: str | None = None
    switches: dict[str, Any] = {}
    environment: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    python: str | None = None  # the interpreter that runs the script; None: that of traceopt
    alone: Prediction | None = None
    in_plan: Prediction | None = None  # on top of the fixes above it
    needs: tuple[str, ...] = ()  # changes without which it saves little
    seen: Seen | None = None

    @property
    def compiles(self) -> bool:
        return "compile" in self.switches


class NotTried(Struct, frozen=True):
    """A fix that cannot be made without a person."""

    code: str
    title: str
    reason: str


def changes_of(
    result: Result, codes: Sequence[str], top: int | None, refused: Callable[[Finding], str | None] = lambda _: None
) -> tuple[list[Change], list[NotTried]]:
    """The fixes to try, in the plan's order: those of `codes`, or else the first `top` of the plan.

    Without a plan, the findings with a saving take its place. `refused` says why a fix is not tried; None: it is.
    Raises ConfigError for a code that was not found.
    """
    rows = {row.finding: row for row in result.plan}
    if codes:
        codes = [*map(load_rules().present_code, codes)]
        known = {finding.code for finding in result.findings} | {finding.name for finding in result.findings}
        for code in codes:
            if code not in known:
                hint = suggestion(code, known) or f"; found: {', '.join(sorted(f.code for f in result.findings))}"
                raise ConfigError(f"--fix {code}: not found in this run{hint if known else ''}")
        chosen = [finding for finding in result.findings if finding.code in codes or finding.name in codes]
    else:
        planned = [finding for _, finding in result.planned]
        chosen = (planned or [finding for finding in result.findings if finding.saving is not None])[:top]
    names = _unique(finding.code for finding in chosen)
    name_of = dict(zip((finding.id for finding in chosen), names, strict=True))
    changes, left = list[Change](), list[NotTried]()
    for finding in chosen:
        name, row, saving = name_of[finding.id], rows.get(finding.id), finding.saving
        correction = saving.correction if saving is not None else 1.0
        alone = Prediction(saving.est_us, saving.low_us, saving.high_us, correction) if saving is not None else None
        in_plan = Prediction(row.saving_us, row.low_us, row.high_us, correction) if row is not None else None
        needs = tuple(name_of.get(result.plan[n - 1].finding, "") for n in row.needs) if row is not None else ()
        patched = finding.fix.patch is not None
        settings = None if patched else at_run_time(finding.fix)
        reason = refused(finding)
        if settings is None and not patched:
            reason = "it has no patch, and no setting has its effect"
        if reason is not None:
            left.append(NotTried(name, finding.title, reason))
            continue
        changes.append(
            Change(
                name,
                "fix",
                finding.title,
                "patch" if patched else "runtime",
                finding=finding if patched else None,
                switches=settings.switches if settings is not None else {},
                environment=settings.environment if settings is not None else {},
                alone=alone,
                in_plan=in_plan,
                needs=tuple(name for name in needs if name),
            )
        )
    return changes, left


def patch_change(path: Path) -> Change:
    """Raises InputError for a file that cannot be read or has no diff."""
    try:
        if path.stat().st_size > MOST_PATCH_BYTES:
            raise InputError(f"cannot read {path}: it is larger than {MOST_PATCH_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"cannot read {path}: it is not UTF-8") from error
    if not re.search(r"^(\+\+\+ |diff --git |rename from )", text, re.MULTILINE):
        raise InputError(f"cannot read {path}: it is not a diff; write one with git diff")
    return Change(path.name, "patch", f"the patch {one_line(path.name)}", "patch", diff=text)


def revision_change(revision: str) -> Change:
    """Raises ConfigError for a name that git would take for an option."""
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise ConfigError(f"--against {revision}: expected a commit, branch or tag")
    return Change(revision, "revision", f"the source of {revision}", "revision", revision=revision)


def environment_change(text: str) -> Change:
    """Raises ConfigError if the text is not NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or "\0" in value:
        raise ConfigError(f"--env {text}: expected NAME=VALUE")
    shown = f"{name}=…" if _SECRET.search(name) else text
    return Change(shown, "environment", f"with {one_line(shown)}", "environment", environment={name: value})


def arguments_change(text: str) -> Change:
    """Raises ConfigError if a quote is not closed or there are no arguments."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--args {text}: {error}") from error
    if not words:
        raise ConfigError("--args: expected the arguments to add to the command")
    return Change(text, "arguments", f"with the arguments {one_line(text)}", "arguments", arguments=tuple(words))


def with_unique_names(changes: Sequence[Change]) -> list[Change]:
    from msgspec.structs import replace

    names = _unique(change.name for change in changes)
    return [replace(change, name=name) for change, name in zip(changes, names, strict=True)]


def _unique(names: Iterable[str]) -> list[str]:
    """Names that occur again get a number: OP001, OP001 (2)."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out
