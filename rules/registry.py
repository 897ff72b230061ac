"""Collects the rules: built-in, installed as plug-ins, or from the folder given with --rules-dir."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from glob import iglob
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct

from traceopt.errors import ConfigError, error_text, one_line, suggestion
from traceopt.rules.rule import Former, Rule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

CATALOGUE = "traceopt.rules.catalogue"
ENTRY_POINTS = "traceopt.rules"
TRACE_QUALITY = "trace quality"  # the family whose findings judge the trace instead of asking for a change

# Rules that are none any more, because they asked a question or guessed: code, name, and where to look instead. Options
# and settings that name them have no effect.
RETIRED = (
    ("EF001", "low-mfu", "the verdict states the model FLOP utilization"),
    ("EF003", "below-reference", "the verdict compares the throughput with the reference"),
    ("EF004", "cpu-efficiency", "the verdict says what the work on the CPU consists of"),
    ("TC005", "fp8-candidate", "the verdict says if FP8 has a higher peak"),
)

_CODE = re.compile(r"[A-Z]+[0-9]+")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Registry(Struct, frozen=True):
    """The rules ordered by code, and warnings about plug-ins that were left out."""

    rules: tuple[type[Rule], ...]
    warnings: tuple[str, ...] = ()

    def find(self, code_or_name: str) -> type[Rule]:
        """The rule of a code or name, or the one that a former rule became part of.

        Raises ConfigError with the closest codes and names if there is no such rule.
        """
        wanted = code_or_name.lower()
        for rule in self.rules:
            if wanted in (rule.code.lower(), rule.name) or former_of(rule, code_or_name) is not None:
                return rule
        raise _unknown(code_or_name, self.rules)

    def present_code(self, code_or_name: str) -> str:
        """The code of the rule that a former rule became part of; any other text as it is."""
        codes = (rule.code for rule in self.rules if former_of(rule, code_or_name) is not None)
        return next(codes, code_or_name)


def load_rules(rules_dir: str | Path | None = None) -> Registry:
    """All available rules. A plug-in that is broken or clashes with another rule causes a warning.

    Raises ConfigError if `rules_dir` is not a folder.
    """
    collected = _Collected()
    for rule in builtin_rules():
        if problem := collected.add(rule):
            raise TypeError(f"{rule.__module__}: {problem}")
    for point in _installed():
        collected.add_plugin(f"plug-in {point.value}", point)
    if rules_dir is not None:
        folder = Path(rules_dir)
        if not folder.is_dir():
            raise ConfigError(f"rules folder {folder} does not exist or is not a folder")
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith("_"):
                collected.add_plugin(f"rule file {path}", path)
    return Registry(tuple(sorted(collected.rules, key=lambda rule: rule.code)), tuple(collected.warnings))


def builtin_modules() -> list[str]:
    """The names of the catalogue's modules."""
    package = importlib.import_module(CATALOGUE)
    return sorted(f"{CATALOGUE}.{info.name}" for info in pkgutil.iter_modules(package.__path__))


def builtin_rules() -> Iterator[type[Rule]]:
    """Exactly one rule from each module of the catalogue. Raises TypeError if a module breaks that."""
    for name in builtin_modules():
        module = importlib.import_module(name)
        found = rules_of(module)
        if len(found) != 1:
            raise TypeError(f"{module.__name__} defines {len(found)} rules; expected exactly one")
        yield found[0]


def select(rules: Sequence[type[Rule]], select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[type[Rule]]:
    """The rules that `select` includes (all if empty) and `ignore` does not exclude; the more specific entry wins.

    Entries are codes ("DL001"), prefixes ("DL") or names. The code or name of a former rule stands for the rule that it
    became part of. Trace-quality rules run unless they are ignored, because they say how far to trust the other rules.
    Raises ConfigError for an entry that matches no rule.
    """
    for entry in (*select, *ignore):
        if not any(_match(entry, rule) for rule in rules) and not is_retired(entry):
            raise _unknown(entry, rules)

    def chosen(rule: type[Rule]) -> bool:
        wanted = max((_match(entry, rule) for entry in select), default=0)
        unwanted = max((_match(entry, rule) for entry in ignore), default=0)
        return unwanted < wanted or (not unwanted and (not select or rule.family == TRACE_QUALITY))

    return [rule for rule in rules if chosen(rule)]


def former_of(rule: type[Rule], code_or_name: str) -> Former | None:
    """The former rule of this code or name that is part of `rule` now, or None."""
    wanted = code_or_name.lower()
    if wanted in (rule.code.lower(), rule.name):
        return None
    return next((former for former in rule.former if wanted in (former.code.lower(), former.name)), None)


def is_retired(code_or_name: str) -> bool:
    return any(code_or_name.lower() in (code.lower(), name) for code, name, _ in RETIRED)


def rules_of(module: ModuleType) -> list[type[Rule]]:
    """The concrete rules (those with their own code) that `module` itself defines."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Rule)
        and value.__module__ == module.__name__
        and "code" in vars(value)
    ]


def flaw(rule: type[Rule]) -> str | None:
    """Why `rule` cannot be used, as one clause, or None."""
    for attribute in ("code", "name", "title", "family"):
        if not isinstance(value := getattr(rule, attribute, None), str) or not value.strip():
            return f"{rule.__name__} has no {attribute}"
    if not _CODE.fullmatch(rule.code):
        return f"code {rule.code!r} is not capital letters followed by a number, like DL001"
    if not _NAME.fullmatch(rule.name):
        return f"name {rule.name!r} is not in kebab-case, like dataloader-stall"
    for name in getattr(rule, "__annotations__", ()):
        if not hasattr(rule, name):
            return f"threshold {name} has no default"
    named = vars(rule).get("__dataclass_fields__")
    if named is not None and any(threshold.name not in named for threshold in rule.thresholds()):
        return f"@dataclass hides inherited thresholds of {rule.__name__}: a rule needs no decorator"
    return None


def rule_page(rule: type[Rule]) -> str:
    """The rule's documentation as one Markdown page: title, docstring, thresholds."""
    lines = [f"# {rule.code} {rule.name}", "", f"**{rule.title}.**", ""]
    lines += [f"Family: {rule.family}. Effort: {rule.effort}. Risk: {rule.risk_note or rule.risk}.", ""]
    if rule.former:
        names = ", ".join(f"{former.code} {former.name}" for former in rule.former)
        lines += [f"Includes former rules, whose codes and names still work: {names}.", ""]
    if page := rule.page().strip():
        lines += [page, ""]
    lines += ["## Thresholds", ""]
    if settings := rule.thresholds():
        lines += ["| setting | default | what it bounds |", "| --- | --- | --- |"]
        lines += [f"| `{s.name}` | `{s.default!r}` | {s.text} |" for s in settings]
        lines += ["", f"Change them under `[tool.traceopt.rules.{rule.code}]` in pyproject.toml."]
    else:
        lines += ["None."]
    return "\n".join(lines) + "\n"


def summary(rule: type[Rule]) -> dict[str, object]:
    """What `traceopt rules --format json` prints about a rule."""
    return {
        "code": rule.code,
        "name": rule.name,
        "title": rule.title,
        "family": rule.family,
        "effort": rule.effort,
        "risk": rule.risk,
        "risk_note": rule.risk_note,
        "former": [former.code for former in rule.former],
        "requires": list(rule.requires),
        "thresholds": [
            {"name": setting.name, "default": setting.default, "text": setting.text} for setting in rule.thresholds()
        ],
    }


def _installed() -> Sequence[EntryPoint]:
    """The plug-ins of installed packages. importlib.metadata takes 30 ms, so it is used only if one is declared."""
    if not any(map(_declares_rules, sys.path)):
        return ()
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINTS))


def _declares_rules(folder: str) -> bool:
    """Whether a package installed in the folder may declare plug-ins."""
    declarations = iglob("*-info/entry_points.txt", root_dir=folder)
    try:
        return any(ENTRY_POINTS.encode() in Path(folder, file).read_bytes() for file in declarations)
    except OSError:
        return True


class _Collected:
    """The rules collected so far, with the codes and names already taken."""

    def __init__(self) -> None:
        self.rules: list[type[Rule]] = []
        self.warnings: list[str] = []
        self._taken: dict[str, type[Rule]] = {}

    def add(self, rule: type[Rule]) -> str | None:
        """Why `rule` was left out, or None."""
        if problem := flaw(rule):
            return problem
        keys = [rule.code, rule.name, *(key for former in rule.former for key in (former.code, former.name))]
        for key in keys:
            if other := self._taken.get(key):
                return f"{key} is taken by the rule {other.__module__}.{other.__name__}"
        self._taken |= dict.fromkeys(keys, rule)
        self.rules.append(rule)
        return None

    def add_plugin(self, origin: str, source: EntryPoint | Path) -> None:
        try:
            loaded = _import_file(source) if isinstance(source, Path) else source.load()
            rules = rules_of(loaded) if isinstance(loaded, ModuleType) else [loaded]
            if not rules:
                raise TypeError("it defines no rule")
            for rule in rules:
                if not (isinstance(rule, type) and issubclass(rule, Rule)):
                    raise TypeError(f"{rule!r} is not a subclass of traceopt.rules.rule.Rule")
                if problem := self.add(rule):
                    self.warnings.append(one_line(f"{origin}: rule left out: {problem}"))
        except (Exception, SystemExit) as error:
            self.warnings.append(one_line(f"{origin}: left out: {error_text(error)}"))


def _import_file(path: Path) -> ModuleType:
    name = f"traceopt_rules_dir.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # typing looks up a class's module there
    spec.loader.exec_module(module)
    return module


def _match(entry: str, rule: type[Rule]) -> int:
    """How specifically `entry` matches `rule`: the length of the matching code or prefix, 0 for no match."""
    if entry.lower() == rule.name or former_of(rule, entry) is not None:
        return len(rule.code)
    return len(entry) if rule.code.startswith(entry.upper()) else 0


def _unknown(entry: str, rules: Sequence[type[Rule]]) -> ConfigError:
    for code, name, instead in RETIRED:
        if entry.lower() in (code.lower(), name):
            return ConfigError(f"{code} {name} is no rule any more: {instead}")
    known = [text for rule in rules for text in (rule.code, rule.name)]
    return ConfigError(f"no rule {entry!r}{suggestion(entry, known)} ('traceopt rules' lists all)")
