"""The read-only tools of the MCP server: each reads files under the roots and gives one answer."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock

from msgspec.structs import replace

from traceopt.analyzer.vocabulary.companion_kinds import TRIALS_FILE
from traceopt.assistants import finding_answers
from traceopt.assistants.answers import (
    UNTRUSTED,
    AnalyzeAnswer,
    CompareAnswer,
    ExplainAnswer,
    PatchAnswer,
    RuleRow,
    RulesAnswer,
    TriedAnswer,
    WhatIfAnswer,
)
from traceopt.assistants.comparison_answers import compared, what_if_answer
from traceopt.assistants.measured_changes import of_attempt, of_trial
from traceopt.assistants.roots import Roots
from traceopt.comparison.compare import compare_runs
from traceopt.comparison.runs import RunOfSide, read_run
from traceopt.config import Config
from traceopt.errors import ConfigError, InputError, one_line
from traceopt.result.document import Result
from traceopt.result.finding import Finding
from traceopt.rules.fingerprint import code_of
from traceopt.rules.fixes.patches.patch import combined_patch, why_not, with_patches
from traceopt.rules.registry import Registry, load_rules, rule_page
from traceopt.run_script import LOGDIR
from traceopt.trying import history
from traceopt.what_if import Scale, what_if

MOST_RESULTS = 4  # kept in memory, so that the next question about a trace does not read it again

MOST_NAMED = 12  # ids in an error

Analyze = Callable[[Sequence[str], str | None], Result]  # paths of traces, name of the run
Key = tuple[tuple[str, ...], str | None, tuple[tuple[str, int, int], ...]]


class Tools:
    """Answers from files under the roots. All methods raise TraceoptError; one analysis runs at a time."""

    def __init__(self, roots: Roots, config: Config, analyze: Analyze) -> None:
        self.roots, self._config, self._analyze = roots, config, analyze
        self._results: OrderedDict[Key, Result] = OrderedDict()
        self._lock = RLock()

    def analyze(self, path: str, source: str | None = None, run: str | None = None) -> AnalyzeAnswer:
        return finding_answers.analyzed(self.result(path, source, run))

    def explain(self, path: str, finding: str, source: str | None = None, run: str | None = None) -> ExplainAnswer:
        result = self.result(path, source, run)
        wanted, *others = _named(result.findings, finding)
        page = self._registry().find(wanted.code).page()
        return finding_answers.explained(result, wanted, others, page, self._source_folders(source))

    def patch(
        self, path: str, findings: Sequence[str] = (), source: str | None = None, run: str | None = None
    ) -> PatchAnswer:
        result = self.result(path, source, run)
        if findings:
            named = [finding for name in findings for finding in _named(result.findings, name)]
            chosen = list({finding.id: finding for finding in named}.values())
        else:
            chosen = [finding for _, finding in result.planned] or result.findings
        folders = self._source_folders(source)
        diff, codes = combined_patch(chosen, folders)
        done = [finding.id for finding in chosen if finding.code in codes and finding.fix.patch]
        return PatchAnswer(
            untrusted_text=UNTRUSTED,
            diff=diff or None,
            ids=done,
            without_patch=[
                f"{finding.id}: {one_line(why_not(finding, folders))}" for finding in chosen if finding.id not in done
            ],
        )

    def compare(self, base: Sequence[str], head: Sequence[str], *, in_turn: bool = False) -> CompareAnswer:
        sides = [
            [RunOfSide(match.name, self._result_of([match])) for given in side for match in self.roots.paths(given)]
            for side in (base, head)
        ]
        if not all(sides):
            raise InputError("compare needs a path on both sides")
        return compared(compare_runs(sides[0], sides[1], in_turn=in_turn))

    def whatif(
        self, path: str, fixes: Sequence[str] = (), scales: Sequence[Scale] = (), run: str | None = None
    ) -> WhatIfAnswer:
        if not fixes and not scales:
            raise ConfigError("nothing to change: name fixes or scales")
        trace = str(self.roots.path(path))
        self.roots.sources([trace])
        with self._lock:
            document = what_if(
                trace,
                fixes,
                scales,
                run=run,
                rules_dir=self._config.rules_dir,
                thresholds=self._config.rules,
                devices=self._config.devices,
            )
        return what_if_answer(document)

    def rules(self, code: str | None = None) -> RulesAnswer:
        """All rules, those whose code or name begins with `code`, or the page of the one rule that it names."""
        registry = self._registry()
        wanted = (code or "").lower()
        found = [
            rule for rule in registry.rules if rule.code.lower().startswith(wanted) or rule.name.startswith(wanted)
        ]
        if not found:
            found = [registry.find(code or "")]  # raises ConfigError with the closest names
        rows = [RuleRow(rule.code, rule.name, rule.family, rule.title) for rule in found]
        page = [part for part in rule_page(found[0]).split("\n\n") if part.strip()] if len(found) == 1 else []
        return RulesAnswer(untrusted_text=UNTRUSTED, rules=rows, page=page)

    def tried(self, path: str | None = None, change: str | None = None) -> TriedAnswer:
        """What `traceopt try` measured: from its history, or from a result document or report."""
        notes = []
        file = self._history() if path is None else self.roots.path(path)
        if file.suffix == ".jsonl":
            attempts, odd = history.read(file)
            rows = [of_attempt(attempt) for attempt in reversed(attempts)]
            notes += [f"{odd} lines of the history cannot be read"] if odd else []
        else:
            rows = [of_trial(row) for row in self._result_of([file]).tried]
        found = [row for row in rows if change is None or row.change.startswith(code_of(change))]
        return TriedAnswer(untrusted_text=UNTRUSTED, tried=found, notes=notes)

    def result(self, path: str, source: str | None, run: str | None) -> Result:
        """The result with the patches that today's source allows."""
        result = self._result_of(self.roots.paths(path), run)
        return replace(result, findings=with_patches(result.findings, self._source_folders(source)))

    def _result_of(self, paths: Sequence[Path], run: str | None = None) -> Result:
        """The result of traces, or the one in a document or report."""
        if len(paths) == 1 and run is None:
            return read_run(str(paths[0]), lambda path: self._of_traces([path], None))
        return self._of_traces([str(path) for path in paths], run)

    def _of_traces(self, paths: Sequence[str], run: str | None) -> Result:
        sources = self.roots.sources(paths)
        files = sorted({source.place for source in sources})
        state = tuple((file, about.st_mtime_ns, about.st_size) for file in files for about in [os.stat(file)])
        key = (tuple(paths), run, state)
        with self._lock:
            if key not in self._results:
                self._results[key] = self._analyze(paths, run)
                while len(self._results) > MOST_RESULTS:
                    self._results.popitem(last=False)
            self._results.move_to_end(key)
            return self._results[key]

    def _source_folders(self, source: str | None) -> list[Path]:
        return list(self.roots.folders) if source is None else [self.roots.folder(source)]

    def _history(self) -> Path:
        for folder in self.roots.folders:
            file = folder / LOGDIR / TRIALS_FILE
            if file.is_file():
                return self.roots.checked(file, str(file))
        raise InputError(f"nothing was tried yet: no {LOGDIR}/{TRIALS_FILE} under the roots")

    def _registry(self) -> Registry:
        return load_rules(self._config.rules_dir)


def _named(findings: Sequence[Finding], wanted: str) -> list[Finding]:
    """The finding with this id, or all of this code or name, most valuable first. Raises InputError."""
    named = [one for one in findings if wanted in (one.id, one.code, one.name)]
    if not named:
        known = ", ".join(finding.id for finding in findings[:MOST_NAMED]) or "nothing"
        raise InputError(f"no finding {one_line(wanted, 80)}; found: {known}")
    return named
