"""`traceopt export`: the document comes back byte for byte; anything else is one line and exit code 2."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import Result as Outcome
from support import command_line
from support.command_line import run
from support.traces import GetExample

from fixtures.hostile import hostile_trace
from traceopt.api import analyze
from traceopt.reports.html.page import render_html, without_spans
from traceopt.result.encoding import packing

_EMBEDDED = re.compile(r'(?<=<script type="application/json" id="traceopt-result">).*?(?=</script>)', re.DOTALL)


def export(*arguments: str | Path) -> Outcome:
    return run("export", *arguments)


def one_error(outcome: Outcome) -> str:
    message = command_line.one_error(outcome)
    assert message.startswith("traceopt: error: ")
    return message


@pytest.fixture(scope="module")
def page(example: GetExample) -> str:
    return render_html(example("five_faults").result)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("scenario", ["five_faults", "cpu_only", "memory_pressure", "straggler", "cold_start"])
def test_the_document_comes_back(example: GetExample, tmp_path: Path, scenario: str, static: bool) -> None:
    result = example(scenario).result
    (tmp_path / "report.html").write_text(render_html(result, static=static), encoding="utf-8")
    embedded = without_spans(result) if static else result  # a static report has no room for the spans
    assert export(tmp_path / "report.html").stdout_bytes == embedded.to_json()


def test_names_that_attack_come_back_too(tmp_path: Path) -> None:
    result = analyze(str(hostile_trace().write(tmp_path / "hostile.json")))
    (tmp_path / "report.html").write_text(render_html(result), encoding="utf-8")
    assert export(tmp_path / "report.html").stdout_bytes == result.to_json()


def test_into_a_file(page: str, example: GetExample, tmp_path: Path) -> None:
    report, document = tmp_path / "report.html", tmp_path / "result.json"
    report.write_text(page, encoding="utf-8")
    assert export(report, "--json", document).output == ""
    assert document.read_bytes() == example("five_faults").result.to_json()
    assert "overwrite an input" in one_error(export(report, "--json", report))
    assert report.read_text(encoding="utf-8") == page


def test_a_report_that_went_through_an_editor(page: str, example: GetExample, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_bytes(b"\xef\xbb\xbf" + page.replace("\n", "\r\n").encode() + b"<!-- caf\xe9 -->")
    assert export(report).stdout_bytes == example("five_faults").result.to_json()


FOREIGN = {"empty": b"", "page": b"<html></html>", "json": b"{}", "binary": bytes(range(256)) * 100}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_report(tmp_path: Path, name: str) -> None:
    (tmp_path / "page.html").write_bytes(FOREIGN[name])
    assert "not a traceopt report" in one_error(export(tmp_path / "page.html"))


def test_a_report_in_another_encoding_is_none(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page, encoding="utf-16")
    assert "not a traceopt report" in one_error(export(tmp_path / "page.html"))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in one_error(export(tmp_path / "missing.html"))
    assert "directory" in one_error(export(tmp_path))


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("traceopt.cli.export"), "MOST_BYTES", 1_000)
    (tmp_path / "page.html").write_bytes(b" " * 1_001)
    assert "larger than 1,000 bytes" in one_error(export(tmp_path / "page.html"))
    assert "larger than 1,000 bytes" in one_error(export("/dev/zero"))


ENVELOPES = {  # what stands in place of the embedded document, and what the line says of it
    "nothing": ("", "damaged"),
    "a list": ("[]", "damaged"),
    "only a number": ("5", "damaged"),
    "nested": ("[" * 100_000, "damaged"),
    "no document": ('{"encoding": "gzip+base64"}', "`document`"),
    "a number": ('{"encoding": "gzip+base64", "document": 5}', "damaged"),
    "no letters": ('{"encoding": "gzip+base64", "document": ""}', "its end is missing"),
    "foreign letters": ('{"encoding": "gzip+base64", "document": "0äöüß~"}', "damaged"),
    "other letters": ('{"encoding": "gzip+base64", "document": "0!!!"}', "damaged"),
    "digits": ('{"encoding": "gzip+base64", "document": "' + "9" * 1000 + '"}', "damaged"),
    "another packing": ('{"encoding": "brotli", "document": "0"}', "`$.encoding`"),
}


@pytest.mark.parametrize("name", ENVELOPES)
def test_a_damaged_envelope(page: str, tmp_path: Path, name: str) -> None:
    content, complaint = ENVELOPES[name]
    (tmp_path / "page.html").write_text(_EMBEDDED.sub(content, page), encoding="utf-8")
    assert complaint in one_error(export(tmp_path / "page.html"))
    page = str(tmp_path / "page.html")
    assert complaint in one_error(run("compare", page, page))


def with_letters(page: str, letters: str) -> str:
    return _EMBEDDED.sub(lambda _: json.dumps({"encoding": packing.ENCODING, "document": letters}), page)


def letters_of(page: str) -> str:
    found = _EMBEDDED.search(page)
    assert found is not None
    letters: str = json.loads(found[0])["document"]
    return letters


def test_a_damaged_document(page: str, tmp_path: Path) -> None:
    letters = letters_of(page)
    middle = len(letters) // 8 * 4
    other = "A" if letters[middle] != "A" else "B"
    for damaged in (letters[:middle], letters[: middle + 1], letters[:middle] + other + letters[middle + 1 :]):
        (tmp_path / "page.html").write_text(with_letters(page, damaged), encoding="utf-8")
        assert "damaged" in one_error(export(tmp_path / "page.html"))


DOCUMENTS = {
    "no JSON": (b"hello", "malformed"),
    "nested": (b'{"schema_version": 1, "x":' + b"[" * 100_000, "not a result document"),  # too deep, or too short
    "nested objects": (b'{"schema_version": 1, "x":' + b'{"a":' * 100_000, "not a result document"),
    "NaN": (b'{"schema_version": 1, "tool": NaN}', "malformed"),
    "no schema": (b"{}", "`schema_version`"),
    "a later schema": (b'{"schema_version": 2}', "of schema 2; this traceopt reads schema 1"),
    "a part": (b'{"schema_version": 1}', "`tool`"),
    "not UTF-8": (b'{"schema_version": 1, "verdict": "\xff"}', "not a result document"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_another_document(page: str, tmp_path: Path, name: str) -> None:
    document, complaint = DOCUMENTS[name]
    (tmp_path / "page.html").write_text(with_letters(page, packing.pack(document)), encoding="utf-8")
    assert complaint in one_error(export(tmp_path / "page.html"))


def test_a_document_that_unpacks_without_end(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LARGEST_BYTES", 1_000_000)
    (tmp_path / "page.html").write_text(with_letters(page, packing.pack(b" " * 1_000_001)), encoding="utf-8")
    assert "more than 1,000,000 bytes" in one_error(export(tmp_path / "page.html"))
