"""`traceopt rules` and `traceopt rule`: lists all rules, and prints the page of one."""

from __future__ import annotations

from pathlib import Path

import click

from traceopt.cli.shared.options import config_option, debug_option, rules_dir_option
from traceopt.cli.shared.results import registry_of
from traceopt.output import emit


@click.command()
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
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
    rows = [(rule.code, rule.name, rule.family, rule.title) for rule in registry.rules]
    table = [("CODE", "NAME", "FAMILY", "TITLE"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        emit("  ".join([*cells, row[3]]) + "\n")


@click.command()
@click.argument("code")
@rules_dir_option
@config_option
@debug_option
def rule(code: str, rules_dir: str | None, config_path: Path | None) -> None:
    """Print the page of one rule, given its CODE or name."""
    from traceopt.rules.registry import rule_page

    emit(rule_page(registry_of(rules_dir, config_path).find(code)))
