"""Baselines and gates of `analyze` and `run`: compares, prints the outcome, and decides the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from traceopt.cli.shared.options import Command, options, split_codes
from traceopt.cli.shared.results import check_all_writable, terminal, write_output
from traceopt.output import emit

if TYPE_CHECKING:
    from traceopt.comparison.gates import Gate
    from traceopt.comparison.runs import RunOfSide
    from traceopt.config import Config
    from traceopt.result.comparison import Comparison, GateOutcome
    from traceopt.result.document import Result

EXIT_GATE = 1
# The keys of comparison/metrics.py, which --help need not load.
GATE_METRICS = (
    "step_time", "gpu_idle", "data_stall", "sync_stall", "exposed_communication", "exposed_copies", "peak_memory",
    "mfu", "tokens_per_s", "samples_per_s", "measured_gain",
)  # fmt: skip

gate_options = options(
    click.option(
        "--fail-on",
        multiple=True,
        callback=split_codes,
        metavar="GATE",
        help="Exit 1 if a limit is exceeded: high, finding=new-high, gpu_idle=40%, step_time=+5%. "
        f"Metrics: {', '.join(GATE_METRICS)}.",
    ),
    click.option(
        "--warn-on", multiple=True, callback=split_codes, metavar="GATE", help="The same, but only print a warning."
    ),
    click.option("--exit-zero", is_flag=True, help="Exit 0 even if a gate failed."),
)


def baseline_options(command: Command) -> Command:
    """Adds the options of a `Gating`, and passes it to the command as `gating`."""

    @wraps(command)
    def with_gating(
        *arguments: Any,
        baseline: tuple[str, ...],
        write_baseline: str | None,
        fail_on: tuple[str, ...],
        warn_on: tuple[str, ...],
        exit_zero: bool,
        **others: Any,
    ) -> None:
        command(*arguments, gating=Gating(baseline, write_baseline, fail_on, warn_on, exit_zero), **others)

    add_options = options(
        click.option(
            "--baseline",
            multiple=True,
            metavar="FILE",
            help="Compare with this run: a result document, a report or traces. Repeat to give several runs.",
        ),
        click.option("--write-baseline", metavar="FILE", help="Write a file for a later --baseline."),
        gate_options,
    )
    return add_options(with_gating)


def parsed_gates(fail_on: Iterable[str], warn_on: Iterable[str], config: Config) -> list[Gate]:
    """The gates of the command line, or else of the settings. Raises ConfigError for a gate that does not exist."""
    from traceopt.comparison.gates import Gate

    failing, warning = tuple(fail_on) or config.fail_on, tuple(warn_on) or config.warn_on
    return [*(Gate.parse(text, "fail") for text in failing), *(Gate.parse(text, "warn") for text in warning)]


def failed(outcomes: Iterable[GateOutcome]) -> bool:
    """Whether a --fail-on gate did not pass. A gate whose metric was not measured does not pass."""
    return any(outcome.level == "fail" and outcome.status != "passed" for outcome in outcomes)


class Gating:
    """Baseline and gates of a command. Call `prepare` before the analysis, and the other methods after it."""

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

    @property
    def requested(self) -> bool:
        """Whether the command line names a baseline or a gate."""
        return bool(self.baseline or self.write_baseline or self.fail_on or self.warn_on)

    def prepare(self, config: Config, *, debug: bool) -> None:
        """Reads gates and baseline. Raises ConfigError, InputError or OutputError if one cannot be used."""
        check_all_writable(self.write_baseline)
        self._gates = parsed_gates(self.fail_on, self.warn_on, config)
        paths = self.baseline or config.baseline
        missing = [gate.text for gate in self._gates if gate.needs_baseline]
        if missing and not paths:
            raise click.UsageError(f"{', '.join(missing)} needs a run to compare with: add --baseline FILE")
        if paths:
            from traceopt.run_comparison import runs_of

            self._runs = runs_of(
                paths, rules_dir=config.rules_dir, thresholds=config.rules, devices=config.devices, debug=debug
            )

    def judge(self, result: Result, inputs: Iterable[str]) -> None:
        """Compares the result with the baseline, checks the gates, and writes a new baseline if requested."""
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
        """Marks all gates as not checked, for a run without a result."""
        from traceopt.result.comparison import GateOutcome

        self.outcomes = [GateOutcome(gate.text, gate.level, "not_checked", reason) for gate in self._gates]

    def report(self, color: bool | None, *, on_stdout: bool) -> None:
        """Prints the comparison, then one line per gate."""
        if self.comparison is None and not self.outcomes:
            return
        from traceopt.reports.text.comparison_terminal import render_against_baseline, render_gates

        style: dict[str, Any] = terminal(color)
        blocks = [
            render_against_baseline(self.comparison, **style) if self.comparison is not None else "",
            render_gates(self.outcomes, **style),
        ]
        text = "".join(f"\n{block}" for block in blocks if block)
        if on_stdout:
            emit(text)
        else:
            click.echo(text.removeprefix("\n"), nl=False, err=True)

    @property
    def exit_code(self) -> int:
        return EXIT_GATE if failed(self.outcomes) and not self.exit_zero else 0
