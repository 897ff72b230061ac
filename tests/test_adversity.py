"""What surrounds the program goes wrong: closed streams, full disks, no memory, Ctrl-C, documents that are not ours."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import command_line

from fixtures.mangled import ODD
from traceopt.result.encoding import packing
from traceopt.result.encoding.packing import RESULT_ID

TRACE = Path(__file__).resolve().parents[1] / "fixtures" / "traces" / "healthy.json.gz"
TRACEOPT = (sys.executable, "-m", "traceopt")
NOWHERE = {0: "<&-", 1: ">&-", 2: "2>&-"}


def run(*arguments: str | Path, cwd: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*TRACEOPT, *map(str, arguments)], cwd=cwd, capture_output=True, check=False, **options)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_standard_streams_that_are_closed(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """Nothing is printed there, files are whole, and the exit codes are as ever."""
    nowhere = " ".join(NOWHERE[number] for number in closed)
    program = f"{sys.executable} -m traceopt"
    script = f"{program} analyze {TRACE} --html r.html {nowhere}; echo $?; {program} analyze gone {nowhere}; echo $?"
    done = subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "2"
    assert "0" in done.stdout.splitlines()
    assert ("no such file or folder: gone" in done.stderr) == (2 not in closed)
    assert "internal" not in done.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_error_that_cannot_be_told_still_has_its_code(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*TRACEOPT, "analyze", "gone"], cwd=tmp_path, stderr=full, check=False)
    assert done.returncode == 2


def test_a_full_disk_keeps_the_old_report(tmp_path: Path) -> None:
    """The limit on the size of a file fails as a full disk does: in the middle of writing."""
    report = tmp_path / "r.html"
    report.write_text("old")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = run("analyze", TRACE, "--html", report, cwd=tmp_path, preexec_fn=limit)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"traceopt: error: cannot write {report}: File too large\n"
    assert report.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.html"]


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("traceopt.api.analyze", no_memory)
    outcome = command_line.run("analyze", TRACE, "--no-html")
    assert outcome.exit_code == 2
    assert outcome.stderr == "traceopt: error: not enough memory: pass fewer or smaller traces\n"


def test_ctrl_c_leaves_no_half_file(tmp_path: Path) -> None:
    """While a large trace is read, which takes as long as it takes the signal to come."""
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 2, "args": {"x": [1, 2, 3]}},'
    trace = tmp_path / "large.json"
    with trace.open("wb") as file:
        file.write(b'{"traceEvents": [')
        for _ in range(300):
            file.write(event * 2000)
    arguments = ["analyze", "large.json", "--html", "r.html", "--json", "r.json"]
    process = subprocess.Popen([*TRACEOPT, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    maps = Path(f"/proc/{process.pid}/fd")
    while process.poll() is None and str(trace.resolve()) not in open_files(maps):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert err.decode().split() == ["traceopt:", "interrupted"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["large.json"]


def open_files(folder: Path) -> list[str]:
    """Where the links in /proc/<pid>/fd lead to. They come and go."""
    found = []
    with suppress(FileNotFoundError):
        for link in folder.iterdir():
            with suppress(FileNotFoundError):
                found.append(os.readlink(link))
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """A report's page and its document."""
    folder = tmp_path_factory.mktemp("report")
    page, document = folder / "r.html", folder / "r.json"
    done = command_line.run("analyze", TRACE, "--html", page, "--json", document, "--static")
    assert done.exit_code == 0
    return page.read_text(encoding="utf-8"), json.loads(document.read_bytes())


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in places(one, (*at, key)))]


def spoilt(document: dict[str, Any], choice: random.Random) -> bytes:
    """The document with something else in one place."""
    copy: Any = json.loads(json.dumps(document))
    *way, last = choice.choice(places(copy)[1:])
    holder = copy
    for key in way:
        holder = holder[key]
    holder[last] = choice.choice(ODD)
    return json.dumps(copy).encode("utf-8", "surrogatepass")


def with_document(page: str, envelope: str) -> str:
    start = page.index(">", page.index(f'id="{RESULT_ID}"')) + 1
    return page[:start] + envelope + page[page.index("</script>", start) :]


def ends_well(*arguments: str) -> int:
    """The exit code, after a look at the rest: 2 has one line, and nothing is internal."""
    outcome = command_line.run(*arguments)
    assert outcome.exit_code in (0, 2), outcome.stderr
    assert "internal error" not in outcome.stderr
    assert outcome.exit_code == 0 or (outcome.stderr.count("\n") == 1 and not outcome.stdout)
    return outcome.exit_code


@pytest.mark.parametrize("seed", range(20))
def test_documents_with_odd_values_are_refused_or_read(
    report: tuple[str, dict[str, Any]], tmp_path: Path, seed: int
) -> None:
    page, document = report
    other = spoilt(document, random.Random(seed))  # noqa: S311
    (tmp_path / "r.html").write_text(
        with_document(page, json.dumps({"encoding": packing.ENCODING, "document": packing.pack(other)}))
    )
    (tmp_path / "r.json").write_bytes(other)
    exported = ends_well("export", str(tmp_path / "r.html"))
    (tmp_path / "good.json").write_text(json.dumps(document))
    compared = ends_well("compare", str(tmp_path / "good.json"), str(tmp_path / "r.json"))
    assert compared == 2 or exported == 0


def test_a_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("x", "0", "-1", "nan", "1e99"):
        monkeypatch.setenv("TRACEOPT_MAX_GB", value)
        assert ends_well("analyze", str(TRACE), "--no-html") == 2
    monkeypatch.setenv("TRACEOPT_MAX_GB", "0.0001")
    outcome = command_line.run("analyze", TRACE, "--no-html")
    assert (
        "it has more than 0.0001 GB of text; to read it anyway, set TRACEOPT_MAX_GB to a higher limit" in outcome.stderr
    )


def test_a_report_cannot_have_a_nul_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traceopt.toml").write_text('html = "a\\u0000b"\n')
    assert ends_well("analyze", str(TRACE)) == 2
