"""What a public project has: workflows, forms, hooks, and one place that says where the repository is."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from linters import lint

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(set((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) - {GITHUB / "ISSUE_TEMPLATE" / "config.yml"})
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def name_of(path: Path) -> str:
    return path.stem


class TestGitHub:
    @pytest.mark.parametrize("workflow", WORKFLOWS, ids=name_of)
    def test_a_workflow_has_the_form_of_one(self, workflow: Path) -> None:
        lint("check-jsonschema", "--builtin-schema", "vendor.github-workflows", workflow)

    def test_workflows_and_dependabot_are_safe(self) -> None:
        lint("zizmor", "--offline", "--no-progress", "--pedantic", GITHUB)

    @pytest.mark.parametrize("form", FORMS, ids=name_of)
    def test_an_issue_form_has_the_form_of_one(self, form: Path) -> None:
        lint("check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", form)

    def test_the_choice_of_forms_has_the_form_of_one(self) -> None:
        config = GITHUB / "ISSUE_TEMPLATE" / "config.yml"
        lint("check-jsonschema", "--builtin-schema", "vendor.github-issue-config", config)

    def test_dependabot_has_the_form_of_one(self) -> None:
        lint("check-jsonschema", "--builtin-schema", "vendor.dependabot", GITHUB / "dependabot.yml")

    def test_workflows_run_programs_and_tests_that_exist(self) -> None:
        jobs = [job for workflow in WORKFLOWS for job in yaml.safe_load(workflow.read_text())["jobs"].values()]
        scripts = "\n".join(step["run"] for job in jobs for step in job["steps"] if "run" in step)
        targets = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())  # type: ignore[index]
        asked = re.findall(r"\bmake (\w+) ", scripts)
        assert asked
        assert set(asked) <= targets
        paths = re.findall(r"[\w./]+\.py\b", scripts)
        assert paths
        assert [path for path in paths if not (ROOT / path).is_file()] == []

    def test_ci_tests_each_python_that_the_package_claims(self) -> None:
        jobs = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())["jobs"]
        matrix = jobs["test"]["strategy"]["matrix"]["python-version"]
        claimed = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
        assert matrix == claimed
        assert jobs["package"]["strategy"]["matrix"]["python-version"] == [claimed[0], claimed[-1]]
        assert PROJECT["requires-python"] == f">={claimed[0]}"

    def test_each_action_is_pinned_to_one_version(self) -> None:
        texts = [path.read_text() for path in (*WORKFLOWS, ROOT / "action.yml")]
        used = {line for text in texts for line in re.findall(r"uses: (\S+@[0-9a-f]{40} # v\S+)$", text, re.MULTILINE)}
        assert len(used) == len({line.partition("@")[0] for line in used})
        assert sum(text.count("uses: ") for text in texts) == sum(text.count(line) for text in texts for line in used)


def test_pre_commit_runs_what_lint_runs() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    lint_target = re.search(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert lint_target is not None
    for hook in repository["hooks"]:
        command = re.match(r"\.venv/bin/python -m ruff \w+|make \w+", hook["entry"])
        assert command is not None
        assert command[0].split()[-1] in lint_target[1], hook["id"]


class TestAddress:
    script = runpy.run_path(str(ROOT / "docs" / "repository_address.py"))

    def test_every_file_has_the_one_of_pyproject(self) -> None:
        texts = {file: file.read_text() for file in self.script["files"]()}
        address = self.script["repository"]()
        assert f"https://github.com/{address}" == PROJECT["urls"]["Repository"]
        assert sum(address in text for text in texts.values()) >= 4
        stale = [file for file, text in texts.items() if self.script["with_address"](text, address) != text]
        assert stale == [], "run: make docs"

    def test_no_placeholder_stands_elsewhere(self) -> None:
        files = {*self.script["files"](), *(ROOT / "action").iterdir(), *GITHUB.rglob("*.*")} - {
            ROOT / "pyproject.toml"
        }
        site = PROJECT["urls"]["Documentation"]
        texts = {file: file.read_text().replace(self.script["repository"](), "").replace(site, "") for file in files}
        assert [file for file, text in texts.items() if "OWNER" in text] == []

    @pytest.mark.parametrize(
        ("text", "changed"),
        [
            ("- uses: OWNER/traceopt@main", "- uses: acme/traceopt@main"),
            ("https://github.com/old-owner/traceopt/issues", "https://github.com/acme/traceopt/issues"),
            ("git+https://github.com/a.b/traceopt", "git+https://github.com/acme/traceopt"),
            ("https://OWNER.github.io/traceopt/latest/", "https://acme.github.io/traceopt/latest/"),
            ("https://github.com/OWNER/traceopt-plugin", None),
            ("- uses: actions/checkout@v6", None),
            ("import traceopt/traceopt", None),
        ],
    )
    def test_a_new_owner_takes_the_place_of_any(self, text: str, changed: str | None) -> None:
        assert self.script["with_address"](text, "acme/traceopt") == (changed or text)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the script runs in the release alone, on a newer Python")
class TestReleaseCheck:
    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        """What the script reads, prepared for version 1.2.3 of acme/traceopt."""
        script = tmp_path / ".github" / "check_release.py"
        script.parent.mkdir()
        shutil.copy(GITHUB / "check_release.py", script)
        urls = 'urls = { Repository = "https://github.com/acme/traceopt" }'
        (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "1.2.3"\n{urls}\n')
        (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2030-01-01\n")
        return script

    def check(self, script: Path, **environment: str) -> tuple[int, list[str]]:
        given = {
            "GITHUB_REF_NAME": "v1.2.3",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "acme/traceopt",
        }
        done = subprocess.run(
            [sys.executable, script],
            env={**os.environ, **given, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    def test_a_prepared_one_passes(self, checkout: Path) -> None:
        assert self.check(checkout) == (0, [])

    def test_another_tag_is_refused(self, checkout: Path) -> None:
        code, [problem] = self.check(checkout, GITHUB_REF_NAME="v1.2.4")
        assert code == 1
        assert problem.startswith(
            "::error title=release::the tag is v1.2.4, but the version in pyproject.toml is 1.2.3"
        )

    def test_a_changelog_without_the_version_is_refused(self, checkout: Path) -> None:
        checkout.parents[1].joinpath("CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
        code, [problem] = self.check(checkout)
        assert code == 1
        assert "no section [1.2.3]" in problem

    def test_an_address_of_another_repository_is_refused(self, checkout: Path) -> None:
        code, [problem] = self.check(checkout, GITHUB_REPOSITORY="fork/traceopt")
        assert code == 1
        assert "but this is https://github.com/fork/traceopt" in problem


def test_no_room_of_the_analyzer_is_crowded() -> None:
    files = Counter(path.parent for path in (ROOT / "analyzer").rglob("*.py") if path.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): count for folder, count in files.items() if count > 15} == {}
