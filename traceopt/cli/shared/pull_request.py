"""Output for pull requests: the comment, the job summary, annotations, code scanning, code quality."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from traceopt.cli.shared.options import Command, markdown_option, options
from traceopt.cli.shared.results import check_all_writable, write_output
from traceopt.errors import OutputError, visible

if TYPE_CHECKING:
    from traceopt.cli.shared.gating import Gating
    from traceopt.result.document import Result

FORMATS = ("markdown", "github", "gitlab", "sarif")
SUMMARY_LIMIT = 1 << 20  # bytes; GitHub shows nothing of a larger job summary
# What happens to a finding without a line of code in the formats that show findings at lines.
_BY_FILE = {
    "gitlab": "not in the Code Quality report, because these findings have no line in the repository",
    "sarif": "only a notification in the SARIF file, because these findings have no line in the repository",
}


def pull_request_options(command: Command) -> Command:
    """Adds the options of a `PullRequest`, and passes it to the command as `pull_request`."""

    @wraps(command)
    def with_pull_request(
        *arguments: Any, markdown_path: str | None, sarif: str | None, job_summary: bool, label: str, **others: Any
    ) -> None:
        command(*arguments, pull_request=PullRequest(markdown_path, sarif, job_summary, label), **others)

    add_options = options(
        markdown_option,
        click.option("--sarif", metavar="PATH", help="Also write SARIF 2.1.0, for code scanning."),
        click.option("--job-summary", is_flag=True, help="Add the comment to the summary of a GitHub Actions job."),
        click.option(
            "--label",
            default="traceopt",
            show_default=True,
            metavar="NAME",
            help="Unique name of this job, if several report on one pull request.",
        ),
    )
    return add_options(with_pull_request)


class PullRequest(NamedTuple):
    """The requested output. File names in findings are relative to the root of the repository."""

    markdown: str | None
    sarif: str | None
    job_summary: bool
    label: str

    @property
    def files(self) -> list[str]:
        """Raises OutputError for a job summary outside of GitHub Actions."""
        paths = (self.markdown, self.sarif, str(_summary_file()) if self.job_summary else None)
        return [path for path in paths if path is not None]

    def check(self) -> None:
        """Raises OutputError if a file cannot be written. Call it before the analysis."""
        check_all_writable(*self.files)

    def write(
        self, result: Result, gating: Gating, source: Sequence[Path], inputs: Iterable[str], *, quiet: bool
    ) -> None:
        for format_, path in (("markdown", self.markdown), ("sarif", self.sarif)):
            if path is not None:
                output = self.rendered(result, gating, format_, source, quiet=quiet)
                write_output(path, output.encode("utf-8", "backslashreplace"), inputs)
        if self.job_summary:
            _add_to_summary(self.rendered(result, gating, "markdown", source, quiet=quiet), quiet=quiet)

    def rendered(self, result: Result, gating: Gating, format_: str, source: Sequence[Path], *, quiet: bool) -> str:
        from traceopt.cli.shared.repository_paths import in_repository
        from traceopt.reports.ci.github import render_github
        from traceopt.reports.ci.gitlab import render_gitlab
        from traceopt.reports.ci.repository_places import without_a_place
        from traceopt.reports.ci.sarif import render_sarif
        from traceopt.reports.text.markdown import render_markdown

        result = in_repository(result, source)
        if format_ in _BY_FILE and not quiet and (codes := without_a_place(result.findings)):
            listed = ", ".join(map(visible, codes))
            click.echo(f"traceopt: {_BY_FILE[format_]}: {listed}", err=True)
        if format_ == "markdown":
            return render_markdown(result, label=self.label, comparison=gating.comparison, gates=gating.outcomes)
        if format_ == "sarif":
            return render_sarif(result, label=self.label, gates=gating.outcomes)
        return render_github(result, gates=gating.outcomes) if format_ == "github" else render_gitlab(result)


def _summary_file() -> Path:
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        raise OutputError("--job-summary needs a GitHub Actions job: GITHUB_STEP_SUMMARY is not set")
    return Path(name)


def _add_to_summary(comment: str, *, quiet: bool) -> None:
    path, data = _summary_file(), comment.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and path.stat().st_size + len(data) > SUMMARY_LIMIT:
            if not quiet:
                click.echo("traceopt: nothing added to the job summary: it would exceed 1 MiB", err=True)
            return
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise OutputError(f"cannot write the job summary: {error.strerror}") from error
