"""What `analyze` and `run` write: the report and other files, then one format on stdout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceopt.cli.shared.gating import Gating, baseline_options
from traceopt.cli.shared.options import (
    Command,
    csv_option,
    format_option,
    json_option,
    options,
    patch_option,
    report_options,
)
from traceopt.cli.shared.pull_request import FORMATS, PullRequest, pull_request_options
from traceopt.cli.shared.results import check_all_writable, html_target, rendered, write_html, write_output, write_patch
from traceopt.errors import visible
from traceopt.output import emit

if TYPE_CHECKING:
    from traceopt.config import Config
    from traceopt.result.document import Result


def output_options(command: Command) -> Command:
    """Adds the options of `Outputs`, and passes it to the command as `outputs`."""

    @wraps(command)
    def with_outputs(*arguments: Any, **values: Any) -> None:
        outputs = Outputs(**{name: values.pop(name) for name in signature(Outputs).parameters})
        command(*arguments, outputs=outputs, **values)

    add_options = options(
        report_options,
        json_option("result document"),
        csv_option,
        format_option("text", "concise", "agent", "json", *FORMATS),
        pull_request_options,
        baseline_options,
        patch_option,
    )
    return add_options(with_outputs)


class Outputs:
    """The requested output. Call `prepare` before the analysis."""

    def __init__(
        self,
        html: str | None,
        no_html: bool,
        static: bool,
        json_path: str | None,
        csv: Path | None,
        format_: str,
        pull_request: PullRequest,
        gating: Gating,
        patch_path: str | None,
        color: bool | None,
    ) -> None:
        self.html, self.no_html, self.static = html, no_html, static
        to_stdout = json_path == "-"
        self.json_path, self.format = (None, "json") if to_stdout else (json_path, format_)
        self.pull_request, self.gating, self.patch_path, self.color = pull_request, gating, patch_path, color
        self.csv = csv
        self._html_path: str | None = None

    @property
    def requested(self) -> bool:
        """Whether the command line names a file, a format or a gate."""
        files = (self.html, self.json_path, self.csv, self.patch_path, *self.pull_request.files)
        return any(files) or self.format != "text" or self.gating.requested

    @property
    def in_files_only(self) -> bool:
        """Whether all of it can be made for several runs: files, and text on stdout."""
        more = self.gating.requested or self.pull_request.files
        return not more and self.format in ("text", "concise", "agent")

    def of_run(self, name: str) -> Outputs:
        """The same in files with the name of a run: "report.html" is "report-branch.html". Call it after `prepare`."""
        safe = re.sub(r"[^\w.-]+", "_", name)

        def named(path: str | None) -> str | None:
            return None if path is None else str(Path(path).with_stem(f"{Path(path).stem}-{safe}"))

        mine = copy(self)
        mine._html_path, mine.json_path, mine.patch_path = map(
            named, (self._html_path, self.json_path, self.patch_path)
        )
        mine.csv = None if self.csv is None else self.csv / safe
        return mine

    def prepare(self, config: Config, *, debug: bool) -> None:
        """Raises click.UsageError, or OutputError for a file that cannot be written, and what Gating.prepare raises."""
        self._html_path = html_target(self.html, self.no_html, config)
        check_all_writable(self._html_path, self.json_path, self.patch_path)
        self.pull_request.check()
        self.gating.prepare(config, debug=debug)

    def write(
        self, result: Result, inputs: Sequence[str], source: Sequence[Path], *, quiet: bool, footer: str = ""
    ) -> None:
        """Writes the files, then prints. `footer` follows the text, or goes to stderr with any other format."""
        self.gating.judge(result, inputs)
        if self._html_path is not None:
            write_html(self._html_path, result, inputs, static=self.static)
        if self.json_path is not None:
            write_output(self.json_path, result.to_json(), inputs)
        if self.csv is not None:
            from traceopt.cli.shared.csv_tables import write_tables

            write_tables(self.csv, result)
        if self.patch_path is not None:
            write_patch(self.patch_path, result, source, inputs, quiet=quiet)
        self.pull_request.write(result, self.gating, source, inputs, quiet=quiet)
        if self.format in FORMATS:
            emit(self.pull_request.rendered(result, self.gating, self.format, source, quiet=quiet))
        else:
            emit(rendered(result, self.format, self.color, self._html_path))
        is_text = self.format == "text"
        if is_text:
            emit(footer)
        elif not quiet:
            report = "" if self._html_path is None else f"Report: {visible(self._html_path)}\n"
            click.echo(report + footer, nl=False, err=True)
        self.gating.report(self.color, on_stdout=is_text)
