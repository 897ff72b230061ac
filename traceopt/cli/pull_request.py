"""What a pull request shows: the comment, the job's summary, annotations, code scanning, code quality."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from traceopt.cli.results import check_all_writable, write_output
from traceopt.errors import OutputError, visible

if TYPE_CHECKING:
    from traceopt.cli.gating import Gating
    from traceopt.result.document import Result

FORMATS = ("markdown", "github", "gitlab", "sarif")
SUMMARY_LIMIT = 1 << 20  # bytes that GitHub takes from a step; of a larger summary it shows nothing
_BY_FILE = ("gitlab", "sarif")  # have no room for a finding without a line of code

_OPTIONS = (
    click.option("--markdown", metavar="PATH", help="Also write the comment of a pull request."),
    click.option("--sarif", metavar="PATH", help="Also write SARIF 2.1.0, for code scanning."),
    click.option("--job-summary", is_flag=True, help="Also add the comment to the summary of the GitHub Actions job."),
    click.option(
        "--label",
        default="traceopt",
        show_default=True,
        metavar="NAME",
        help="Keeps jobs that report on one pull request apart.",
    ),
)


def pull_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that become a `PullRequest`."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), command)


class PullRequest(NamedTuple):
    """What the options ask for. Files of findings are named from the root of the repository."""

    markdown: str | None
    sarif: str | None
    job_summary: bool
    label: str

    def check(self) -> None:
        """Raises OutputError, before the analysis rather than after it, for what cannot be written."""
        check_all_writable(self.markdown, self.sarif, str(_summary_file()) if self.job_summary else None)

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
        from traceopt.reports.ci.github import render_github
        from traceopt.reports.ci.gitlab import render_gitlab
        from traceopt.reports.ci.repository_places import without_a_place
        from traceopt.reports.ci.sarif import render_sarif
        from traceopt.reports.text.markdown import render_markdown
        from traceopt.repository_paths import in_repository

        result = in_repository(result, source)
        if format_ in _BY_FILE and not quiet and (codes := without_a_place(result.findings)):
            told = ", ".join(map(visible, codes))
            click.echo(f"traceopt: left out, without a line of the repository: {told}", err=True)
        if format_ == "markdown":
            return render_markdown(result, label=self.label, comparison=gating.comparison, gates=gating.outcomes)
        if format_ == "sarif":
            return render_sarif(result, label=self.label)
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
                click.echo("traceopt: nothing added to the job's summary: it would be larger than 1 MiB", err=True)
            return
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise OutputError(f"cannot write the job's summary: {error.strerror}") from error
