"""Settings are found upward, typed, and refused with one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.config import Config, load_config
from traceopt.errors import ConfigError, one_line, visible


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_no_settings_file_means_defaults(tmp_path: Path) -> None:
    assert load_config(start=tmp_path) == Config()


def test_nearest_file_wins_and_a_pyproject_without_our_table_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[tool.traceopt]\nselect = ["DL"]\n')
    write(tmp_path / "a" / "pyproject.toml", "[tool.other]\nx = 1\n")
    (tmp_path / "a" / "b").mkdir()
    assert load_config(start=tmp_path / "a" / "b").select == ("DL",)
    write(tmp_path / "a" / "traceopt.toml", 'select = ["HS"]\n')
    assert load_config(start=tmp_path / "a" / "b").select == ("HS",)


def test_all_settings(tmp_path: Path) -> None:
    path = write(
        tmp_path / "pyproject.toml",
        """
        [tool.traceopt]
        select = ["DL", "HS001"]
        ignore = ["DL002"]
        rules-dir = "checks"
        html = "out/report.html"
        [tool.traceopt.rules.DL001]
        min_share = 0.05
        """,
    )
    assert load_config(path) == Config(
        select=("DL", "HS001"),
        ignore=("DL002",),
        rules_dir=str(tmp_path / "checks"),
        html=str(tmp_path / "out/report.html"),
        rules={"DL001": {"min_share": 0.05}},
    )
    assert load_config(write(tmp_path / "traceopt.toml", "html = false")).html is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selct = []", "unknown setting 'selct'; did you mean 'select'?"),
        ('select = "DL"', "select: expected `array`, got `str`"),
        ("select = [1]", "select: expected `str`, got `int`"),
        ("html = 3", "html: expected `bool | str | null`, got `int`"),
        ("rules = {DL001 = 3}", "rules: expected `object`, got `int`"),
        ("select = [", "is not valid TOML"),
        ("select = " + "[" * 5000 + "]" * 5000, "values are nested too deeply"),
        ("html = " + "{a=" * 2000 + "1" + "}" * 2000, "values are nested too deeply"),
        ("tokens-per-step = " + "9" * 5000, "is not valid TOML"),
        ("tokens-per-step = " + "9" * 400, "tokens-per-step: number out of range"),
        ("tokens-per-step = true", "tokens-per-step: expected `float | null`, got `bool`"),
        ("k" * 5000 + " = 1", "unknown setting 'kkk"),
        ("# " + "x" * (1 << 20), "is larger than 1 MiB, so it is not a settings file"),
    ],
)
def test_mistakes_are_one_line_and_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "traceopt.toml", text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the settings file .*gone\.toml: No such file"):
        load_config(tmp_path / "gone.toml")
    latin = tmp_path / "traceopt.toml"
    latin.write_bytes(b'html = "\xff"')
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(latin)
    tool = write(tmp_path / "pyproject.toml", "tool = 3")
    assert load_config(tool) == Config()
    with pytest.raises(ConfigError, match="expected a table, got int"):
        load_config(write(tool, "[tool]\ntraceopt = 3"))


@given(st.text())
def test_messages_are_printable_lines(text: str) -> None:
    for line in (one_line(text), visible(text)):
        assert line.isprintable()
    assert len(one_line(text)) <= 300
