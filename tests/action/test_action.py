"""The GitHub Action: its scripts run against a stand-in for `gh`, its files pass the linters."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from linters import lint

from traceopt.cli import cli
from traceopt.comparison.gates import Gate
from traceopt.reports.text.markdown import UNCHANGED, tag

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "action").glob("*.sh"))
TRACE = ROOT / "fixtures" / "traces" / "five_faults.json.gz"
COMMENT = f"{tag('traceopt')}\n\n### traceopt: The GPU is idle.\n"

RECORDER = """#!/bin/sh
for word; do echo "$word"; done >>"{folder}/asked"
echo >>"{folder}/asked"
[ "$3" = run ] || {{ touch "{folder}/temp/comment.md"; exit {code}; }}
"""


class Job:
    """A job on a runner: its environment, what `gh` knows and was asked, what the steps left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "github"
        self.state.mkdir()
        self.output, self.summary = folder / "output", folder / "summary.md"
        self.output.touch()
        self.summary.touch()
        programs = folder / "bin"
        programs.mkdir()
        gh = programs / "gh"
        gh.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("github_stand_in.py")}" "$@"\n')
        gh.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "GITHUB_STATE": str(self.state),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_REPOSITORY": "acme/model",
            "FOLDER": str(folder / "temp"),
            "LABEL": "traceopt",
            "RUN": "",
            "RUN_OPTIONS": "",
            "TRACES": "",
            "OPTIONS": "",
            "FAIL_ON": "",
            "BASELINE": "",
            "SOURCE": ".",
            "COMMENT": "changed",
            "PULL_REQUEST": "7",
            "REPORT_URL": "",
            "BASE_BRANCH": "main",
        }

    def step(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "action" / f"{script}.sh"],
            env={**self.environment, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def comment(self, markdown: str = COMMENT, **environment: str) -> subprocess.CompletedProcess[str]:
        file = self.folder / "comment.md"
        file.write_text(markdown)
        return self.step("comment", FILE=str(file), **environment)

    def known(self, name: str) -> list[Any]:
        file = self.state / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else []

    def know(self, name: str, entries: list[dict[str, Any]]) -> None:
        (self.state / f"{name}.json").write_text(json.dumps(entries))

    def refuse(self, *calls: str) -> None:
        (self.state / "refused").write_text("\n".join(calls))

    @property
    def calls(self) -> list[str]:
        return [" ".join(call["words"][:2]) for call in self.known("calls")]

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


class TestComment:
    def test_the_first_run_writes_it_and_the_next_one_replaces_it(self, job: Job) -> None:
        assert job.comment(REPORT_URL="https://github.example/report").returncode == 0
        [comment] = job.known("comments")
        assert comment["body"] == COMMENT + "\n[Full report](https://github.example/report)\n"
        assert job.summary.read_text() == "\n[Full report](https://github.example/report)\n"
        newer = COMMENT + "\nMore.\n"
        assert job.comment(newer).returncode == 0
        assert [comment["body"] for comment in job.known("comments")] == [newer]
        assert job.calls == ["pr view", "pr comment", "pr view", "api --silent"]

    def test_no_comment_where_nothing_changed(self, job: Job) -> None:
        unchanged = COMMENT.replace("\n", f"\n{UNCHANGED}\n", 1)
        quiet = job.comment(unchanged)
        assert (quiet.returncode, job.calls) == (0, ["pr view"])
        assert "Nothing changed against the baseline, so no comment is posted." in quiet.stdout
        assert job.comment(unchanged, COMMENT="always").returncode == 0
        assert len(job.known("comments")) == 1

    def test_a_comment_that_is_there_is_brought_up_to_date_also_where_nothing_changed(self, job: Job) -> None:
        job.comment()
        unchanged = COMMENT.replace("\n", f"\n{UNCHANGED}\n", 1)
        job.comment(unchanged)
        assert [comment["body"] for comment in job.known("comments")] == [unchanged]

    def test_comments_of_other_people_and_of_other_jobs_stay(self, job: Job) -> None:
        others = [
            {"url": "https://github.example/x#issuecomment-1", "body": COMMENT, "viewerDidAuthor": False},
            {
                "url": "https://github.example/x#issuecomment-2",
                "body": tag("traceopt-2") + "\n",
                "viewerDidAuthor": True,
            },
            {"url": "https://github.example/x#issuecomment-3", "body": f"See {COMMENT}", "viewerDidAuthor": True},
        ]
        job.know("comments", others)
        job.comment()
        assert job.known("comments")[:3] == others
        assert job.known("comments")[3]["body"] == COMMENT

    @pytest.mark.parametrize("refused", ["pr view", "pr comment", "api --silent"])
    def test_a_token_that_may_not_write_is_a_warning(self, job: Job, refused: str) -> None:
        if refused.startswith("api"):
            job.comment()
        job.refuse(refused)
        done = job.comment()
        assert done.returncode == 0
        assert done.stdout.startswith("::warning title=traceopt::could not write the comment")
        assert done.stdout.count("\n") == 1


def artifact(
    run: int, created: str, *, branch: str = "main", fork: bool = False, expired: bool = False
) -> dict[str, Any]:
    return {
        "name": "traceopt-baseline-traceopt",
        "created_at": created,
        "expired": expired,
        "workflow_run": {"id": run, "head_branch": branch, "repository_id": 1, "head_repository_id": 2 if fork else 1},
    }


class TestBaseline:
    def test_the_newest_of_the_branch_is_fetched(self, job: Job) -> None:
        job.know(
            "artifacts",
            [
                artifact(16, "2026-11-06", expired=True),
                artifact(15, "2026-11-05", fork=True),
                artifact(14, "2026-11-04", branch="feature"),
                artifact(12, "2026-11-02"),
                artifact(13, "2026-11-03"),
            ],
        )
        folder = job.state / "artifacts" / "13" / "traceopt-baseline-traceopt"
        folder.mkdir(parents=True)
        (folder / "baseline.json").write_text("{}")
        done = job.step("baseline")
        assert (done.returncode, done.stderr) == (0, "")
        assert Path(job.outputs["file"]).read_text() == "{}"
        assert job.known("calls")[0]["words"][1] == (
            "repos/acme/model/actions/artifacts?name=traceopt-baseline-traceopt&per_page=100"
        )

    @pytest.mark.parametrize("artifacts", [[], [artifact(14, "2026-11-04", branch="feature")]])
    def test_a_branch_without_one_is_no_mistake(self, job: Job, artifacts: list[dict[str, Any]]) -> None:
        job.know("artifacts", artifacts)
        done = job.step("baseline")
        assert done.returncode == 0
        assert done.stdout.startswith("No baseline for main yet")
        assert job.outputs == {}

    @pytest.mark.parametrize("refused", ["api repos", "run download"])
    def test_a_token_that_may_not_read_is_a_warning(self, job: Job, refused: str) -> None:
        job.know("artifacts", [artifact(13, "2026-11-03")])
        job.refuse(refused)
        done = job.step("baseline")
        assert done.returncode == 0
        assert done.stdout.startswith("::warning title=traceopt::could not")
        assert job.outputs == {}


class TestAnalyze:
    def test_traces_become_a_report_a_comment_annotations_and_a_summary(self, job: Job) -> None:
        shutil.copy(TRACE, job.folder / "a trace.json.gz")
        done = job.step("analyze", TRACES="'a trace.json.gz'", OPTIONS="--ignore EF001", LABEL="resnet")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("::warning title=traceopt DL001 saves about 8.0\u00a0ms per step (19%25) alone")
        outputs = job.outputs
        assert outputs.pop("code") == "0"
        assert Path(outputs["markdown"]).read_text().startswith("<!-- traceopt:resnet -->\n")
        assert Path(outputs["markdown"]).read_text() == job.summary.read_text()
        assert json.loads(Path(outputs["sarif"]).read_text())["version"] == "2.1.0"
        assert {finding["code"] for finding in json.loads(Path(outputs["json"]).read_text())["findings"]} >= {"DL001"}
        assert (job.folder / "temp" / "traceopt-resnet.html").stat().st_size > 100_000

    def test_a_second_run_is_compared_with_the_first_and_judged(self, job: Job) -> None:
        first = job.step("analyze", TRACES=str(TRACE), FAIL_ON="step_time=+5% new-high")
        assert first.returncode == 0
        assert first.stdout.splitlines()[0] == "No baseline yet, so the gate step_time=+5% is skipped."
        assert job.outputs["code"] == "0"
        baseline = shutil.copy(job.outputs["baseline"], job.folder / "baseline.json")
        job.output.write_text("")
        gates = "step_time=+50% new-high gpu_idle=10%"
        second = job.step("analyze", TRACES=str(TRACE), FAIL_ON=gates, BASELINE=str(baseline))
        assert second.returncode == 0
        assert second.stdout.startswith("::error title=traceopt gate::gpu_idle is 47%25")
        assert second.stdout.count("::error") == 1
        assert job.outputs["code"] == "1"
        comment = Path(job.outputs["markdown"]).read_text()
        assert "**Within noise: " in comment
        assert UNCHANGED not in comment  # a gate failed

    @pytest.mark.parametrize("gate", ["high", "new-high", "finding=new-low", "finding=medium", "gpu_idle=0.4",
        "gpu_idle=+5%", "step_time=+5%", "step_time=400ms", "tokens_per_s=-5%", "tokens_per_s=9"])  # fmt: skip
    def test_gates_that_need_a_baseline_wait_for_one(self, recorder: Any, gate: str) -> None:
        [analyze] = [call for call in recorder(0, TRACES="x.json", FAIL_ON=gate) if "analyze" in call]
        assert ("--fail-on" in analyze) is not Gate.parse(gate, "fail").needs_baseline

    def test_its_options_are_those_of_the_program(self, recorder: Any) -> None:
        calls = recorder(0, RUN="train.py", FAIL_ON="high", BASELINE="base.json")
        for call in calls:
            command = cli.commands[call[2]]
            known = {name for parameter in command.params for name in parameter.opts}
            given = {word for word in call[3 : call.index("--")] if word.startswith("--")}
            assert given
            assert given <= known

    def test_a_program_that_breaks_down_is_no_gate_that_failed(self, job: Job) -> None:
        done = job.step("analyze", TRACES="x.json", PYTHON="false")
        assert done.returncode == 1
        assert job.outputs == {}

    def test_a_mistake_ends_the_job(self, job: Job) -> None:
        done = job.step("analyze", TRACES="gone.json")
        assert done.returncode == 2
        assert done.stderr.startswith("traceopt: error: ")
        assert job.outputs == {}

    @pytest.fixture
    def recorder(self, job: Job) -> Callable[[int], list[list[str]]]:
        """In place of Python: writes down what it is called with, and ends with a code."""

        def calls(code: int, **environment: str) -> list[list[str]]:
            program = job.folder / "python"
            program.write_text(RECORDER.format(folder=job.folder, code=code))
            program.chmod(0o755)
            done = job.step("analyze", PYTHON=str(program), **environment)
            assert done.returncode == (code if code > 1 else 0)
            asked = (job.folder / "asked").read_text()
            return [call.split("\n") for call in asked.removesuffix("\n\n").split("\n\n")]

        return calls

    def test_a_script_is_recorded_and_its_traces_are_analyzed(self, job: Job, recorder: Any) -> None:
        run = "torchrun --nproc-per-node 2 train.py --name 'two words $(x)'"
        [record, analyze] = recorder(0, RUN=run, RUN_OPTIONS="--preset long")
        assert record == [
            "-m", "traceopt", "run", "--no-analyze", "--logdir", f"{job.folder}/temp/traces", "--preset", "long", "--",
            "torchrun", "--nproc-per-node", "2", "train.py", "--name", "two words $(x)",
        ]  # fmt: skip
        assert analyze[-2:] == ["--", f"{job.folder}/temp/traces"]
        assert "--baseline" not in analyze
        assert "--fail-on" not in analyze

    def test_a_gate_that_fails_is_kept_for_the_last_step(self, job: Job, recorder: Any) -> None:
        [analyze] = recorder(1, TRACES="a.json b.json", FAIL_ON="high step_time=+5%", BASELINE="base.json")
        assert job.outputs["code"] == "1"
        assert analyze[-3:] == ["--", "a.json", "b.json"]
        text = " ".join(analyze)
        assert "--baseline base.json --fail-on high --fail-on step_time=+5%" in text


class TestInputs:
    def test_either_a_script_or_traces(self, job: Job) -> None:
        assert job.step("inputs", RUN="train.py").returncode == 0
        assert job.step("inputs", TRACES="logs", COMMENT="never", LABEL="a-b_c.1").returncode == 0

    @pytest.mark.parametrize(
        ("inputs", "told"),
        [
            ({}, "set what to record"),
            ({"RUN": "train.py", "TRACES": "logs"}, "either run or traces"),
            ({"RUN": "train.py", "LABEL": "a/b"}, "label: use at most 80 letters"),
            ({"RUN": "train.py", "COMMENT": "yes"}, "comment: use changed, always or never"),
            ({"TRACES": "logs", "RUN_OPTIONS": "--preset long"}, "run-options: they need a script"),
            ({"RUN": "train.py 'a"}, "unclosed quote: train.py 'a"),
            ({"RUN": "train.py 'a\n::warning::100%"}, "unclosed quote: train.py 'a%0A::warning::100%25"),
        ],
    )
    def test_mistakes_are_told_at_once(self, job: Job, inputs: dict[str, str], told: str) -> None:
        done = job.step("inputs", **inputs)
        assert done.returncode == 2
        assert done.stdout.startswith("::error title=traceopt::")
        assert told in done.stdout
        assert done.stdout.count("\n") == 1


class TestLint:
    def test_the_action_has_the_form_of_one(self) -> None:
        lint("check-jsonschema", "--builtin-schema", "vendor.github-actions", ROOT / "action.yml")

    def test_the_action_is_safe(self) -> None:
        lint("zizmor", "--offline", "--no-progress", "--pedantic", ROOT / "action.yml")

    def test_its_scripts_are_sound(self) -> None:
        lint("shellcheck", *SCRIPTS)

    def test_every_script_is_run_with_what_it_reads(self) -> None:
        """What a script reads comes from its step's env, from the runner, or from itself."""
        steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
        given = {Path(step["run"].strip('"')).stem: set(step["env"]) for step in steps if ".sh" in step.get("run", "")}
        assert set(given) == {script.stem for script in SCRIPTS}
        for script in SCRIPTS:
            assert os.access(script, os.X_OK)
            source = script.read_text()
            read = set(re.findall(r"\$\{?#?([A-Z][A-Z_]*)\b", source)) | set(re.findall(r"\benv\.([A-Z_]+)", source))
            own = set(re.findall(r"^([A-Z_]+)=", source, re.MULTILINE))
            runner = {name for name in read if name.startswith("GITHUB_")}
            assert read - own - runner == given[script.stem] - {"GH_TOKEN"}, script.name


def examples(section: str) -> list[str]:
    """The YAML of a section of the page for users."""
    page = (ROOT / "docs" / "pull-requests.md").read_text()
    return re.findall(r"^```yaml\n(.*?)^```$", page.partition(f"## {section}\n")[2].partition("\n## ")[0], re.M | re.S)


class TestExamples:
    def test_the_workflow(self, tmp_path: Path) -> None:
        workflow, upload = examples("GitHub")
        file = tmp_path / "workflow.yml"
        file.write_text(workflow)
        lint("check-jsonschema", "--builtin-schema", "vendor.github-workflows", file)
        [job] = yaml.safe_load(workflow)["jobs"].values()
        job["steps"] += yaml.safe_load(upload)
        file.write_text(yaml.safe_dump({"on": "push", "jobs": {"speed": job}}))
        lint("check-jsonschema", "--builtin-schema", "vendor.github-workflows", file)

    def test_the_pipeline(self, tmp_path: Path) -> None:
        [pipeline] = examples("GitLab")
        file = tmp_path / ".gitlab-ci.yml"
        file.write_text(pipeline)
        lint("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", file)

    def test_inputs_are_documented_with_their_defaults(self) -> None:
        page = (ROOT / "docs" / "pull-requests.md").read_text()
        told = dict(re.findall(r"^\| `([\w-]+)` \| (.*?) ?\|", page, re.MULTILINE))
        inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
        expected = {name: f"`{value['default']}`" if value["default"] else "" for name, value in inputs.items()}
        assert {name: told[name] for name in inputs} == {**expected, "token": "the job's token"}
        [step] = [
            one for one in yaml.safe_load(examples("GitHub")[0])["jobs"]["speed"]["steps"] if "traceopt" in one["uses"]
        ]
        assert set(step["with"]) <= set(inputs)
