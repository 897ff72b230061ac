"""`traceopt rules` and `traceopt rule`: lists all rules, and prints the page of one."""

from __future__ import annotations

from pathlib import Path

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import config_option, debug_option, rules_dir_option
from traceopt.cli.shared.results import registry_of, terminal
from traceopt.output import emit


@click.command(cls=ExplainedCommand)
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@rules_dir_option
@config_option
@debug_option
def rules(format_: str, rules_dir: str | None, config_path: Path | None) -> None:
    """List all rules."""
    registry = registry_of(rules_dir, config_path)
    if format_ == "json":
        import json

        from traceopt.rules.registry import summary

        emit(json.dumps([summary(rule) for rule in registry.rules], indent=2, default=str) + "\n")
        return
    from traceopt.reports.text.rule_terminal import rules_list
    from traceopt.reports.text.terminal_lines import Terminal

    families: dict[str, list[tuple[str, str, str]]] = {}
    for rule in registry.rules:
        families.setdefault(rule.family, []).append((rule.code, rule.name, rule.title))
    emit(rules_list(families, Terminal(**terminal(None))))


@click.command(cls=ExplainedCommand)
@click.argument("code")
@rules_dir_option
@config_option
@debug_option
def rule(code: str, rules_dir: str | None, config_path: Path | None) -> None:
    """Print the page of one rule, given its CODE or name."""
    from traceopt.reports.text.rule_terminal import rule_text
    from traceopt.reports.text.terminal_lines import Terminal
    from traceopt.rules.registry import rule_page

    emit(rule_text(rule_page(registry_of(rules_dir, config_path).find(code)), Terminal(**terminal(None))))
