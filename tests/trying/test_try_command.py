"""`traceopt try` on a script that runs no torch: what it finds, and what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from projects import FASTER, SCRIPT, Project, copies, process_numbers_in, refused, wait_for_the_hanging_run

from traceopt.api import analyze
from traceopt.capture.settings import Settings, plan_cycles
from traceopt.rules.fixes.patches.unified import unified_diff
from traceopt.try_script.one_plan import say_if_too_short
from traceopt.trying import workspace as workspace_module
from traceopt.trying.measured_run import Failure
from traceopt.trying.running.interruption import Interruption
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.workspace import Command, Workspace

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_a_faster_script_is_kept_and_the_rest_is_not(project: Project) -> None:
    faster = project.diff("faster.diff", *FASTER)
    nothing = project.diff("nothing.diff", "a checkpoint", "another checkpoint")
    rows = project.rows("--patch", str(faster), "--patch", str(nothing), "--env", "SLOWDOWN=1.5")
    assert [row["verdict"] for row in rows] == ["keep", "no_gain", "slower"]
    first, second, third = rows
    assert first["gain_share"] == pytest.approx(0.3, abs=0.02)
    assert first["low_share"] < 0.3 < first["high_share"]
    assert first["patch"] == faster.read_text()
    assert (first["on_top_of"], second["on_top_of"]) == ([], ["faster.diff"])
    assert third["gain_share"] == pytest.approx(-0.5, abs=0.03)
    assert [row["losses"]["verdict"] for row in rows] == ["identical"] * 3
    assert first["memory"] == {"where": "host", "before_bytes": 1_000_000, "after_bytes": 1_000_000}
    assert first["seeded_by"] == "traceopt"
    assert min(len(row["rounds"]) for row in rows) >= 2


def test_nothing_to_try_is_said(project: Project) -> None:
    trace = FIXTURES / "traces" / "healthy.json.gz"
    with project.start("--top", "0", TRACE=str(trace)) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "nothing was tried: the plan has no fix. Try your own change with --patch" in said


def test_a_budget_that_cannot_be_kept_is_said_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    result = analyze(str(FIXTURES / "traces" / "five_faults.json.gz"))
    say_if_too_short(0.1, 100, result, quiet=False)
    said = capsys.readouterr().err
    assert "0 s of the budget are left. The first change is measured all the same, in 4 runs of 100 steps" in said
    say_if_too_short(60.0, 100, result, quiet=False)
    assert capsys.readouterr().err == ""


def test_faster_with_other_losses_is_not_kept(project: Project) -> None:
    other = project.diff("other.diff", "STEP_US = 1000.0\nLOSS_FACTOR = 1.0", "STEP_US = 700.0\nLOSS_FACTOR = 1.1")
    [row] = project.rows("--patch", str(other))
    assert row["verdict"] == "trains_differently"
    assert (row["losses"]["verdict"], row["losses"]["from_step"]) == ("drifts", 0)


def test_changes_that_fail_are_rows(project: Project) -> None:
    stale = project.diff("stale.diff", *FASTER)
    stale.write_text(stale.read_text().replace("-STEP_US = 1000.0", "-STEP_US = 2000.0"))
    options = ("--patch", str(stale), "--args=--crash", "--args=--crash --memory", "--args=--hang", "--time-limit", "2")
    rows = project.rows(*options)
    assert [row["verdict"] for row in rows] == ["fails"] * 4
    assert "does not apply" in rows[0]["reason"]
    assert rows[1]["reason"] == "it ended with exit code 3"
    assert rows[1]["output"] == [f"some error in {project.script}"], "the user's path, not that of the copy"
    assert rows[2]["reason"] == "it ran out of memory"
    assert rows[3]["reason"] == "it took longer than 2 s"
    assert rows[3]["output"] == ["started"]


def test_another_commit(project: Project) -> None:
    before = project.script.read_text()
    project.script.write_text(before.replace(*FASTER))
    rows = project.rows("--against", "HEAD")  # the changes that are not committed are the baseline
    project.script.write_text(before)
    assert [row["verdict"] for row in rows] == ["slower"]


def test_without_a_repository(plain_project: Project, tmp_path: Path) -> None:
    diff = tmp_path / "faster.diff"
    before = plain_project.script.read_text()
    diff.write_text(unified_diff(SCRIPT, before, before.replace(*FASTER)))
    files = sorted(plain_project.folder.rglob("*"))
    assert [row["verdict"] for row in plain_project.rows("--patch", str(diff))] == ["keep"]
    assert [path for path in sorted(plain_project.folder.rglob("*")) if "traceopt-logs" not in path.parts] == files


def test_each_alone(project: Project) -> None:
    faster = project.diff("faster.diff", *FASTER)
    rows = project.rows("--each", "--patch", str(faster), "--env", "SLOWDOWN=0.8")
    assert [(row["verdict"], row["on_top_of"]) for row in rows] == [("keep", []), ("keep", [])]


def test_what_was_kept_together(project: Project) -> None:
    faster = project.diff("faster.diff", *FASTER)
    rows = project.rows("--patch", str(faster), "--env", "SLOWDOWN=0.8")
    assert [row["kind"] for row in rows] == ["patch", "environment", "all"]
    assert rows[2]["gain_share"] == pytest.approx(1 - 0.7 * 0.8, abs=0.02)


def test_the_patch_to_keep(project: Project) -> None:
    faster = project.diff("faster.diff", *FASTER)
    out = project.folder.parent / "kept.diff"
    project.rows("--patch", str(faster), "--patch-out", str(out))
    assert out.read_text() == faster.read_text()
    project.rows("--patch", str(faster), "--apply")
    assert FASTER[1] in project.script.read_text()
    assert "clean working tree" in refused(project, "--patch", str(faster), "--apply", SCRIPT)
    project.git("checkout", "--", ".")


@pytest.mark.parametrize(
    ("number", "to_all"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_a_signal_keeps_what_was_measured(
    project: Project, number: signal.Signals, to_all: bool, tmp_path: Path
) -> None:
    """`to_all`: the running script receives it as well, as Slurm sends it to all processes of a job."""
    faster = project.diff("faster.diff", *FASTER)
    found = tmp_path / "found.json"
    with project.start("--patch", str(faster), "--env", "HANG=1", "--json", str(found)) as process:
        wait_for_the_hanging_run(project)
        process.send_signal(number)
        process.send_signal(number)  # an impatient user
        for script in process_numbers_in(project.folder) if to_all else ():
            os.kill(script, number)
        process.communicate(timeout=60)
    assert process.returncode == 128 + number
    rows = json.loads(found.read_text())["tried"]
    assert [(row["verdict"], row["reason"]) for row in rows] == [("keep", None), ("not_tried", "interrupted")]


def test_a_signal_before_anything_is_measured_says_so(project: Project) -> None:
    (project.folder / "hangs.py").write_text("import time\nprint('started', flush=True)\ntime.sleep(600)\n")
    with project.start("--env", "SLOWDOWN=1", script=("hangs.py",)) as process:
        wait_for_the_hanging_run(project)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
    os.unlink(project.folder / "hangs.py")
    assert process.returncode == 128 + signal.SIGINT
    assert err == "traceopt: interrupted before anything was measured\n"


def test_a_kill_leaves_nothing(project: Project) -> None:
    """No program can handle SIGKILL, so another process cleans up."""
    with project.start("--env", "HANG=1", "--env", "SLOWDOWN=1") as process:
        wait_for_the_hanging_run(project)
        process.kill()
    until = time.monotonic() + 30
    while time.monotonic() < until and (copies(project) or ".traceopt-try" in project.git("worktree", "list")):
        time.sleep(0.05)
    assert not copies(project)


@pytest.mark.parametrize("after_s", [0.3, 0.8, 1.3])
def test_a_signal_at_any_moment_leaves_nothing(project: Project, after_s: float) -> None:
    """The fixture checks the repository; the moments differ from machine to machine, the outcome does not."""
    with project.start("--env", "SLOWDOWN=1") as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM, 0)
    assert not copies(project)


def test_a_file_that_does_not_fit(project: Project) -> None:
    """As on a full disk: the copy of the source cannot be written."""
    (project.folder / "job" / "large.py").write_bytes(b"#" * 900_000)
    command = " ".join(map(str, project.command("--env", "SLOWDOWN=1")))
    limited = f"ulimit -f 200; exec {command}"
    done = subprocess.run(["bash", "-c", limited], cwd=project.folder, capture_output=True, text=True, timeout=60)
    os.unlink(project.folder / "job" / "large.py")
    assert done.returncode == 2
    assert "cannot copy the source" in done.stderr
    assert not copies(project)


def test_a_script_that_fails_on_a_full_disk(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last lines could not be written either."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    logs = tmp_path / "logs"
    command = Command((SCRIPT, "--crash"), False, project.folder)
    with Interruption() as interruption, Workspace(command, logs, interruption) as workspace:
        [failed] = TimedRuns(workspace, Limits(10, 5, 60.0))([[]])
    assert isinstance(failed, Failure)
    assert failed.reason == f"it ended with exit code 3; the disk of {logs} is almost full"


def test_a_script_that_fails_by_itself(project: Project) -> None:
    project.script.write_text("raise SystemExit('no data')\n")
    with project.start("--env", "SLOWDOWN=1") as process:
        err = process.communicate(timeout=60)[1]
    project.git("checkout", "--", ".")
    assert process.returncode == 2
    assert "the script failed without any change: it ended with exit code 1\n    no data" in err


def test_a_script_that_is_not_there(project: Project) -> None:
    assert "no such script: missing.py" in refused(project, "--env", "SLOWDOWN=1", "missing.py")
    assert not [path for path in (project.folder / "traceopt-logs").iterdir() if path.is_dir()]


def test_paths_modules_and_folders(project: Project) -> None:
    """Named by its full path, as a module, and from another folder, the script is the one in the copy."""
    faster = project.diff("faster.diff", *FASTER)
    for options, script in ((("-m",), ("job.train",)), ((), (str(project.script),))):
        [row] = project.rows("--patch", str(faster), *options, script=script)
        assert row["verdict"] == "keep"


def test_from_a_folder_outside_of_the_source(project: Project, tmp_path: Path) -> None:
    """The repository of the script is copied and changed. What the script writes stays in a copy of the folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "settings.toml").write_text("")
    faster = project.diff("faster.diff", *FASTER)
    script = os.path.relpath(project.script, elsewhere)
    [row] = Project(elsewhere).rows("--patch", str(faster), "--apply", script=(script,))
    assert row["verdict"] == "keep"
    assert {path.name for path in elsewhere.iterdir()} == {"settings.toml", "traceopt-logs"}
    assert FASTER[1] in project.script.read_text()
    project.git("checkout", "--quiet", ".")


def test_from_the_home_folder(plain_project: Project) -> None:
    """Other projects are linked, not copied, however many files they have."""
    home = plain_project.folder.parent
    (home / "other").mkdir()
    (home / "other" / "model.py").write_text("")
    command = Command((os.path.relpath(plain_project.script, home),), False, home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        with Interruption() as interruption, Workspace(command, home / "logs", interruption) as workspace:
            assert workspace.root == plain_project.script.parent
            assert (home / "logs" / ".traceopt-try" / "start" / "other").is_symlink()
    assert not list((home / "logs").iterdir())
    [row] = Project(home).rows("--env", "SLOWDOWN=0.5", script=tuple(command.words), HOME=str(home))
    assert row["verdict"] == "keep"


def test_the_baseline_has_what_the_cpu_reaches(plain_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `traceopt run`: without it, several rules have no price or are not checked."""
    calibrated: list[object] = []
    monkeypatch.setattr(workspace_module, "add_cpu_peaks", calibrated.append)
    logs = plain_project.folder / "logs"
    with (
        Interruption() as interruption,
        Workspace(Command((SCRIPT,), False, plain_project.folder), logs, interruption) as one,
    ):
        recorded, _ = one.record(Settings(logs, plan_cycles(), stop_after=True), 60.0)
    assert calibrated == [recorded.traces]


def test_data_beside_the_repository(project: Project) -> None:
    (project.folder.parent / "data").mkdir()
    (project.folder.parent / "data" / "words.txt").write_text("x")
    [row] = project.rows("--env", "READS=../data/words.txt")
    assert row["verdict"] != "fails", row["output"]


def test_an_unusual_project(project: Project) -> None:
    """A submodule, a pointer of git LFS, a large data file and a file that nobody may write."""
    library = Project(project.folder.parent / "library")
    library.folder.mkdir()
    (library.folder / "words.txt").write_text("x")
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "first")):
        library.git(*words)
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.folder), "library")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (project.folder / "weights.bin").write_text(pointer)
    (project.folder / ".gitattributes").write_text("weights.bin filter=lfs diff=lfs merge=lfs -text\n")
    with (project.folder / "data.npy").open("wb") as data:
        data.truncate(100 << 30)  # sparse: a copy would fill the disk or take minutes
    project.script.chmod(0o444)
    project.script.parent.chmod(0o555)
    try:
        rows = project.rows("--env", "READS=library/words.txt", "--env", "READS=weights.bin", "--env", "READS=data")
    finally:
        project.script.parent.chmod(0o755)
        project.script.chmod(0o644)
        (project.folder / "data.npy").unlink()
        project.git("reset", "--quiet", "--hard")
        project.git("clean", "-qffd")
    assert [row["verdict"] == "fails" for row in rows] == [False, False, True], rows


def test_from_a_folder_below_the_script(plain_project: Project) -> None:
    """The log folder is in the current folder, so it is inside of what is copied."""
    plain_project.script.rename(plain_project.folder / "train.py")
    [row] = Project(plain_project.script.parent).rows("--env", "SLOWDOWN=0.5", script=("../train.py",))
    assert row["verdict"] == "keep"


@pytest.mark.parametrize("variable", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_one_of_several_tasks(project: Project, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that decide by themselves when to end would wait for each other forever."""
    monkeypatch.setenv(variable, "8")
    assert "was started 8 times" in refused(project, "--env", "SLOWDOWN=1", SCRIPT)
