"""What analyze and run do with a baseline and with gates: compare, say so, decide the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from traceopt.cli.options import split_codes
from traceopt.cli.results import check_all_writable, terminal, write_output
from traceopt.output import emit

if TYPE_CHECKING:
    from traceopt.comparison.gates import Gate
    from traceopt.comparison.runs import RunOfSide
    from traceopt.config import Config
    from traceopt.result.comparison import Comparison, GateOutcome
    from traceopt.result.document import Result

EXIT_GATE = 1

_GATE_OPTIONS = (
    click.option(
        "--fail-on",
        multiple=True,
        callback=split_codes,
        metavar="GATE",
        help="Exit 1 where a limit is not kept: high, finding=new-high, gpu_idle=40%, step_time=+5%.",
    ),
    click.option("--warn-on", multiple=True, callback=split_codes, metavar="GATE", help="Only say so."),
    click.option("--exit-zero", is_flag=True, help="Exit 0 also when a gate failed."),
)
_BASELINE_OPTIONS = (
    click.option(
        "--baseline",
        multiple=True,
        metavar="FILE",
        help="Compare with this run: a result document, a report or traces. Several are several runs.",
    ),
    click.option("--write-baseline", metavar="FILE", help="Write what a later --baseline needs."),
)


def gate_options(command: Callable[..., None]) -> Callable[..., None]:
    return reduce(lambda wrapped, option: option(wrapped), reversed(_GATE_OPTIONS), command)


def baseline_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that become a `Gating`."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_BASELINE_OPTIONS), gate_options(command))


def parsed_gates(fail_on: Iterable[str], warn_on: Iterable[str], config: Config) -> list[Gate]:
    """Those of the command line, else of the settings. Raises ConfigError for what is no gate."""
    from traceopt.comparison.gates import Gate

    failing, warning = tuple(fail_on) or config.fail_on, tuple(warn_on) or config.warn_on
    return [*(Gate.parse(text, "fail") for text in failing), *(Gate.parse(text, "warn") for text in warning)]


def failed(outcomes: Iterable[GateOutcome]) -> bool:
    """Whether a gate of --fail-on has not passed: what was not measured has not."""
    return any(outcome.level == "fail" and outcome.status != "passed" for outcome in outcomes)


class Gating:
    """What the options ask for. `prepare` is for before the analysis, the rest for after it."""

    def __init__(
        self,
        baseline: Sequence[str],
        write_baseline: str | None,
        fail_on: Sequence[str],
        warn_on: Sequence[str],
        exit_zero: bool,
    ) -> None:
        self.baseline, self.write_baseline = baseline, write_baseline
        self.fail_on, self.warn_on, self.exit_zero = fail_on, warn_on, exit_zero
        self.comparison: Comparison | None = None
        self.outcomes: list[GateOutcome] = []
        self._gates: list[Gate] = []
        self._runs: list[RunOfSide] = []

    def prepare(self, config: Config, *, debug: bool) -> None:
        """Reads gates and baseline. Raises ConfigError, InputError or OutputError for what cannot be used."""
        check_all_writable(self.write_baseline)
        self._gates = parsed_gates(self.fail_on, self.warn_on, config)
        paths = self.baseline or config.baseline
        missing = [gate.text for gate in self._gates if gate.needs_baseline]
        if missing and not paths:
            raise click.UsageError(f"{', '.join(missing)}: what to compare with? --baseline FILE")
        if paths:
            from traceopt.run_comparison import runs_of

            self._runs = runs_of(
                paths, rules_dir=config.rules_dir, thresholds=config.rules, devices=config.devices, debug=debug
            )

    def judge(self, result: Result, inputs: Iterable[str]) -> None:
        """Compares and judges the result, and keeps it as a baseline where that was asked for."""
        if self._runs:
            from traceopt.comparison.compare import compare_runs
            from traceopt.run_comparison import runs_of

            self.comparison = compare_runs(self._runs, runs_of([result]), self._gates)
            self.outcomes = self.comparison.gates
        elif self._gates:
            from traceopt.comparison.gates import judge

            self.outcomes = [judge(gate, [result], None) for gate in self._gates]
        if self.write_baseline is not None:
            from traceopt.comparison.runs import slim

            write_output(self.write_baseline, slim(result).to_json(), inputs)

    def not_judged(self, reason: str) -> None:
        """For a run without a result: its gates have not passed."""
        from traceopt.result.comparison import GateOutcome

        self.outcomes = [GateOutcome(gate.text, gate.level, "not_checked", reason) for gate in self._gates]

    def tell(self, color: bool | None, *, on_stdout: bool) -> None:
        """Prints the comparison and a line a gate, the last of all."""
        if self.comparison is None and not self.outcomes:
            return
        from traceopt.reports.text.comparison_terminal import render_against_baseline, render_gates

        style: dict[str, Any] = terminal(color)
        blocks = [
            render_against_baseline(self.comparison, **style) if self.comparison is not None else "",
            render_gates(self.outcomes, **style),
        ]
        told = "".join(f"\n{block}" for block in blocks if block)
        if on_stdout:
            emit(told)
        else:
            click.echo(told.removeprefix("\n"), nl=False, err=True)

    @property
    def exit_code(self) -> int:
        return EXIT_GATE if failed(self.outcomes) and not self.exit_zero else 0
