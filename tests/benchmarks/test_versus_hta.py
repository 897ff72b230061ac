"""The benchmark measures whole processes and writes a table; how fast anything is, is no test's business."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from benchmarks import versus_hta
from benchmarks.versus_hta import Contender, Sample, interleaved, json_bytes, measure, page, table


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def test_a_process_is_measured_whole() -> None:
    sample = measure(python("x = bytearray(b'x') * 300_000_000; sum(range(10**6))"))
    assert sample.peak_bytes > 300e6
    assert sample.cpu_s > 0
    assert sample.wall_s > 0


def test_a_process_that_fails_ends_the_benchmark_with_its_words() -> None:
    with pytest.raises(SystemExit, match="ended with 3:\nno such trace"):
        measure(python("import sys; print('no such trace'); sys.exit(3)"))


def test_runs_take_turns_after_a_warm_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    who = [Contender(name, "", python(f"open({str(log)!r}, 'a').write({name!r})"), ()) for name in "ab"]
    samples = interleaved(who, 2)
    assert log.read_text() == "ababab"
    assert {name: len(measured) for name, measured in samples.items()} == {"a": 2, "b": 2}


def test_the_table_gives_medians_and_multiples_of_the_first() -> None:
    first = [Sample(1.0, 0.5, 50_000_000), Sample(9.0, 0.6, 60_000_000), Sample(2.0, 0.7, 70_000_000)]
    rows = table({"us": first, "them": [Sample(6.0, 1.5, 240_000_000)]}).splitlines()
    assert rows[2] == "| us | 2.00 (1.00 to 9.00) | 0.60 | 60 | 1.0 | 1.0 | 1.0 |"
    assert rows[3] == "| them | 6.00 (6.00 to 6.00) | 1.50 | 240 | 3.0 | 2.5 | 4.0 |"
    assert len({row.count("|") for row in rows}) == 1


def test_the_page_says_what_was_run_on_what(tmp_path: Path) -> None:
    trace = tmp_path / "some.json.gz"
    trace.write_bytes(gzip.compress(b" " * 2_000_000))
    assert json_bytes(trace) == 2_000_000
    who = [Contender("us", "everything", python(""), ("click",))]
    text = page(trace, "made up", {"us": [Sample(1.0, 1.0, 1)]}, who)
    assert "`some.json.gz`, 2.0 MB of JSON, made up" in text
    assert "(click " in text
    assert str(tmp_path) not in text
    assert str(versus_hta.ROOT) not in text
