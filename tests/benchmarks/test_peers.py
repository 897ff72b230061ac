"""The benchmark measures whole processes and writes tables; how fast anything is, is no test's business."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.big_trace import enlarge
from benchmarks.peers import Part, growth_table, json_bytes, page, table
from benchmarks.processes import ROOT, Contender, Sample, interleaved, measure
from fixtures.generate import generate
from traceopt.api import analyze

pytestmark = pytest.mark.slow  # each starts processes


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def test_a_process_is_measured_whole() -> None:
    sample = measure(python("x = bytearray(b'x') * 300_000_000; sum(range(10**6))"))
    assert sample.peak_bytes > 300e6
    assert sample.cpu_s > 0
    assert sample.wall_s > 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory of other processes is read from /proc")
def test_the_memory_of_all_processes_counts() -> None:
    half = "import time; x = bytearray(b'x') * 150_000_000; time.sleep(1)"
    both = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {half!r}]); {half}; p.wait()"
    assert measure(python(both)).peak_bytes > 300e6


def test_a_process_that_fails_ends_the_benchmark_with_its_words() -> None:
    with pytest.raises(SystemExit, match="failed with exit code 3:\nno such trace"):
        measure(python("import sys; print('no such trace'); sys.exit(3)"))


def test_runs_take_turns_after_a_warm_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    who = [Contender(name, "", python(f"open({str(log)!r}, 'a').write({name!r})"), ()) for name in "ab"]
    samples = interleaved(who, 2)
    assert log.read_text() == "ababab"
    assert {name: len(measured) for name, measured in samples.items()} == {"a": 2, "b": 2}
    samples = interleaved(who, 3, warm_up=False, once="b")
    assert log.read_text() == "ababab" + "abaa"
    assert {name: len(measured) for name, measured in samples.items()} == {"a": 3, "b": 1}


def test_the_table_gives_medians_and_multiples_of_the_first() -> None:
    first = [Sample(1.0, 0.5, 50_000_000), Sample(9.0, 0.6, 60_000_000), Sample(2.0, 0.7, 70_000_000)]
    rows = table({"us": first, "them": [Sample(6.0, 1.5, 240_000_000)]}).splitlines()
    assert rows[2] == "| us | 2.00 (1.00 to 9.00) | 0.60 (0.50 to 0.70) | 60 | 1.0 | 1.0 | 1.0 |"
    assert rows[3] == "| them | 6.00 | 1.50 | 240 | 3.0 | 2.5 | 4.0 |"
    assert len({row.count("|") for row in rows}) == 1


def test_the_growth_table_gives_the_pace_and_multiples() -> None:
    small, large = {"us": [Sample(1, 0.5, 100_000_000)], "them": [Sample(9, 9, 10**9)]}, {"us": [Sample(9, 8, 10**9)]}
    rows = growth_table({50_000_000: small, 10**9: large}).splitlines()
    assert rows[2] == "| 50 MB | us | 1.0 | 0.5 | 10.0 | 100 | 1.0 | 1.0 | 1.0 |"
    assert rows[3] == "| 50 MB | them | 9.0 | 9.0 | 180.0 | 1,000 | 9.0 | 18.0 | 10.0 |"
    assert rows[4] == "| 1,000 MB | us | 9.0 | 8.0 | 8.0 | 1,000 | 1.0 | 1.0 | 1.0 |"
    assert len({row.count("|") for row in rows}) == 1


def test_the_page_says_what_was_run_on_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SAMPLES", tmp_path)
    sample = {"wall_s": 1.0, "cpu_s": 1.0, "peak_bytes": 1}
    for name in ("A100", "growth-50"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"traceopt": [sample], "json_bytes": 2_000_000}))
    monkeypatch.setattr(peers, "contender", lambda tool, _: Contender(tool, "everything", python(""), ("click",)))
    first, other = Part("A100", "made up"), Part("not measured", "unheard of")
    text = page([first, other], [Part("growth-50", "", 50, first), Part("growth-50-other", "", 50, other)])
    assert "## 2 MB: made up" in text
    assert "unheard of" not in text
    assert "| 2 MB |" not in text  # of another tool than the part's
    assert "- **traceopt**: everything (click " in text
    assert str(tmp_path) not in text
    assert str(ROOT) not in text


def test_the_size_of_a_trace_is_that_of_its_json(tmp_path: Path) -> None:
    trace = tmp_path / "some.json.gz"
    trace.write_bytes(gzip.compress(b" " * 2_000_000))
    assert json_bytes(trace) == 2_000_000


def test_a_grown_trace_is_one_long_recording(tmp_path: Path) -> None:
    small = generate("slow_loader").write(tmp_path / "small.json.gz")
    size = json_bytes(small)
    written = enlarge(small, tmp_path / "large.json.gz", int(2.5 * size))
    assert json_bytes(tmp_path / "large.json.gz") == written > 2.5 * size
    before, after = analyze(str(small)), analyze(str(tmp_path / "large.json.gz"))
    assert after.step.count == 3 * before.step.count
    assert after.step.median_us == pytest.approx(before.step.median_us, rel=0.005)
    assert after.run.files[0].lost_events == 0
    assert {finding.code for finding in before.findings} <= {finding.code for finding in after.findings}
