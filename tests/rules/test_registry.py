"""Rules are found, told apart and chosen; a broken plug-in is a warning."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.errors import ConfigError
from traceopt.rules import registry
from traceopt.rules.engine import prepare
from traceopt.rules.registry import TRACE_QUALITY, Registry, builtin_rules, flaw, load_rules, rule_page, select
from traceopt.rules.rule import Former, Rule, threshold

ROOT = Path(__file__).parents[2]
GOOD_RULE = '''
from __future__ import annotations
from traceopt.rules.rule import Former, Rule, threshold

class Mine(Rule):
    """My page."""
    code = "{code}"
    name = "{name}"
    title = "Do it my way"
    family = "mine"
    min_share: float = threshold(0.5, "share of the step")
'''


def make(code: str, name: str, family: str = "sample") -> type[Rule]:
    return type(code, (Rule,), {"code": code, "name": name, "title": f"Fix {name}", "family": family})


DL001, DL002, HS001 = (make("DL001", "dataloader-stall"), make("DL002", "main-thread"), make("HS001", "scalar-read"))
TQ001 = make("TQ001", "no-gpu-events", TRACE_QUALITY)
RULES = [DL001, DL002, HS001, TQ001]


@pytest.fixture
def only_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "builtin_rules", lambda: iter([HS001, DL001]))


def test_builtin_rules_are_sound_and_documented() -> None:
    rules = list(builtin_rules())
    assert [flaw(rule) for rule in rules] == [None] * len(rules)
    for rule in rules:
        module = rule.__module__.rpartition(".")[2]
        assert module == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"
        assert len(rule.page()) > 200, f"{rule.code} has no page"
        assert not rule.title.endswith(".")
    assert len(load_rules().rules) >= len(rules)


def test_rules_name_only_rules_that_exist() -> None:
    """In sentences and shared causes; `former` names those that are gone."""
    codes = {rule.code for rule in builtin_rules()}
    families = "|".join(sorted({code[:2] for code in codes}))
    for path in (ROOT / "rules").rglob("*.py"):
        text = re.sub(r"(?:Former\(|former=\()[^)]*\)", "", path.read_text(encoding="utf-8"))
        found = set(re.findall(rf"\b(?:{families})\d{{3}}\b", text))
        assert path.name == "registry.py" or found <= codes, (path.name, found - codes)


@pytest.mark.usefixtures("only_mine")
def test_rules_dir_adds_rules_and_broken_files_are_warnings(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD_RULE.format(code="MY001", name="my-rule"))
    (tmp_path / "clash.py").write_text(GOOD_RULE.format(code="DL001", name="other"))
    (tmp_path / "syntax.py").write_text("def (")
    (tmp_path / "quits.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "nothing.py").write_text("x = 1")
    (tmp_path / "mute.py").write_text(
        "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\nraise Mute"
    )
    (tmp_path / "_helper.py").write_text("raise RuntimeError")
    found = load_rules(tmp_path)
    assert [rule.code for rule in found.rules] == ["DL001", "HS001", "MY001"]
    assert len(found.warnings) == 5
    by_file = {Path(warning.split(": ")[0].split()[-1]).name: warning for warning in found.warnings}
    assert "DL001 is taken by" in by_file["clash.py"]
    assert "SyntaxError" in by_file["syntax.py"]
    assert "SystemExit: 3" in by_file["quits.py"]
    assert by_file["mute.py"].endswith("left out: Mute:")
    assert "defines no rule" in by_file["nothing.py"]
    assert found.find("my-rule") is found.find("MY001")


def test_rules_dir_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rules folder .*missing does not exist"):
        load_rules(tmp_path / "missing")


@pytest.mark.usefixtures("only_mine")
def test_entry_points_may_name_a_rule_or_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_module.py").write_text(GOOD_RULE.format(code="MY001", name="my-rule"))
    (tmp_path / "plugin_class.py").write_text(GOOD_RULE.format(code="MY002", name="my-other-rule"))
    monkeypatch.syspath_prepend(str(tmp_path))
    values = ["plugin_module", "plugin_class:Mine", "plugin_gone", "plugin_class:threshold"]
    package = tmp_path / "plugins-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    declared = "".join(f"{number} = {value}\n" for number, value in enumerate(values))
    (package / "entry_points.txt").write_text(f"[traceopt.rules]\n{declared}")
    found = load_rules()
    assert [rule.code for rule in found.rules] == ["DL001", "HS001", "MY001", "MY002"]
    assert [warning.partition(": ")[0] for warning in found.warnings] == [
        "plug-in plugin_gone",
        "plug-in plugin_class:threshold",
    ]
    for name in ("plugin_module", "plugin_class"):
        sys.modules.pop(name, None)


def test_builtin_clash_is_a_programming_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "builtin_rules", lambda: iter([DL001, make("DL001", "twin")]))
    with pytest.raises(TypeError, match="DL001 is taken"):
        load_rules()


def test_flaws_are_named() -> None:
    class Tuned(DL001):  # type: ignore[misc, valid-type]
        min_share: float = threshold(0.1, "share")

    @dataclass(frozen=True)
    class Hiding(Tuned):
        code = "HD001"
        max_share: float = threshold(0.2, "share")

    @dataclass(frozen=True)
    class Decorated(DL001):  # type: ignore[misc, valid-type]
        max_share: float = threshold(0.2, "share")

    class NoDefault(DL001):  # type: ignore[misc, valid-type]
        code: ClassVar[str] = "ND001"
        min_share: float

    assert flaw(DL001) is None
    assert flaw(Decorated) is None
    assert (Decorated().max_share, Decorated(max_share=0.3).max_share) == (0.2, 0.3)
    assert "needs no decorator" in (flaw(Hiding) or "")
    assert flaw(NoDefault) == "threshold min_share has no default"
    assert "capital letters" in (flaw(make("dl1", "x")) or "")
    assert "kebab-case" in (flaw(make("DL001", "Not Kebab")) or "")
    assert "has no code" in (flaw(type("Bare", (Rule,), {})) or "")


@pytest.mark.parametrize(
    ("wanted", "unwanted", "expected"),
    [
        ([], [], ["DL001", "DL002", "HS001", "TQ001"]),
        (["DL"], [], ["DL001", "DL002", "TQ001"]),
        (["dl001"], [], ["DL001", "TQ001"]),
        (["scalar-read"], [], ["HS001", "TQ001"]),
        (["DL"], ["DL002"], ["DL001", "TQ001"]),
        (["DL002"], ["DL"], ["DL002", "TQ001"]),
        (["DL002"], ["DL002"], ["TQ001"]),
        ([], ["TQ", "HS001"], ["DL001", "DL002"]),
    ],
)
def test_select(wanted: list[str], unwanted: list[str], expected: list[str]) -> None:
    assert [rule.code for rule in select(RULES, wanted, unwanted)] == expected


@given(st.lists(st.sampled_from(["DL", "DL0", "DL001", "HS", "TQ001"])), st.lists(st.sampled_from(["D", "HS001"])))
def test_an_equal_or_longer_ignore_always_wins(wanted: list[str], unwanted: list[str]) -> None:
    chosen = {rule.code for rule in select(RULES, wanted, unwanted)}
    assert "HS001" not in chosen or "HS001" not in unwanted
    if not unwanted:
        assert chosen >= {rule.code for rule in RULES if any(rule.code.startswith(entry) for entry in wanted)}


@pytest.mark.parametrize("entry", ["DL009", "dataloder-stall", "", "ZZ"])
def test_an_unknown_code_is_an_error_with_the_closest(entry: str) -> None:
    with pytest.raises(ConfigError, match=f"no rule '{entry}'") as caught:
        select(RULES, [entry])
    assert "\n" not in str(caught.value)
    if entry == "DL009":
        assert "did you mean 'DL001' or 'DL002'" in str(caught.value)


class TestFormer:
    """Rules that became part of another one."""

    class Merged(Rule):
        """Measures both."""

        code = "DL003"
        name = "late-copy"
        title = "Copy early"
        family = "sample"
        former = (Former("HS009", "late-read", {"min_us": "min_read_us", "max_us": None}),)
        min_us: float = threshold(1.0, "microseconds of a copy")
        min_read_us: float = threshold(2.0, "microseconds of a read")

    REGISTRY = Registry((DL001, Merged, HS001, TQ001))

    @pytest.mark.parametrize("entry", ["HS009", "hs009", "late-read"])
    def test_their_codes_and_names_stand_for_it(self, entry: str) -> None:
        assert self.REGISTRY.find(entry) is self.Merged
        assert self.REGISTRY.present_code(entry) == "DL003"
        assert select(self.REGISTRY.rules, [entry]) == [self.Merged, TQ001]
        assert select(self.REGISTRY.rules, [], [entry]) == [DL001, HS001, TQ001]

    def test_a_prefix_does_not(self) -> None:
        assert select(self.REGISTRY.rules, [], ["HS"]) == [DL001, self.Merged, TQ001]
        assert self.REGISTRY.present_code("HS") == "HS"

    def test_their_settings_still_hold(self) -> None:
        def prepared(thresholds: dict[str, dict[str, float]]) -> str:
            return repr(prepare(self.REGISTRY, select_codes=["DL003"], thresholds=thresholds)[0])

        assert prepared({"HS009": {"min-us": 7.0, "max_us": 9.0}}).endswith("Merged(min_us=1.0, min_read_us=7.0)")
        both = {"late-copy": {"min_us": 5.0, "min_read_us": 6.0}, "HS009": {"min_us": 7.0}}
        assert prepared(both) == prepared(dict(reversed(both.items())))
        assert prepared(both).endswith("Merged(min_us=5.0, min_read_us=6.0)")

    def test_the_page_names_them(self) -> None:
        assert "former rules, whose codes and names still work: HS009 late-read." in rule_page(self.Merged)

    def test_their_codes_are_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registry, "builtin_rules", lambda: iter([self.Merged, make("HS009", "other")]))
        with pytest.raises(TypeError, match="HS009 is taken"):
            load_rules()


def test_page_lists_thresholds() -> None:
    class Tuned(DL001):  # type: ignore[misc, valid-type]
        """What it measures."""

        min_share: float = threshold(0.03, "share of the step")

    page = rule_page(Tuned)
    assert page.startswith("# DL001 dataloader-stall\n")
    assert "What it measures." in page
    assert "| `min_share` | `0.03` | share of the step |" in page


def test_thresholds_are_inherited_and_stay() -> None:
    class Base(DL001):  # type: ignore[misc, valid-type]
        min_share: float = threshold(0.1, "share of the step")

    class Stricter(Base):
        min_us: float = threshold(5.0, "microseconds of a call")
        min_share: float = 0.2

    rule = Stricter(min_us=7.0)
    assert repr(rule).endswith("Stricter(min_share=0.2, min_us=7.0)")
    assert [(one.name, one.default, one.text) for one in Stricter.thresholds()] == [
        ("min_share", 0.2, "share of the step"),
        ("min_us", 5.0, "microseconds of a call"),
    ]
    assert (Base().min_share, Base.min_share) == (0.1, 0.1)
    with pytest.raises(AttributeError, match="min_us cannot be set"):
        rule.min_us = 1.0
    with pytest.raises(TypeError, match="Stricter has no threshold max_us"):
        Stricter(max_us=1.0)


class TestRetired:
    """Rules that are none any more."""

    @pytest.mark.parametrize("entry", ["EF001", "ef001", "low-mfu"])
    def test_options_and_settings_may_still_name_them(self, entry: str) -> None:
        rules = Registry((DL001, HS001))
        assert select(rules.rules, [], [entry]) == [DL001, HS001]
        assert [type(rule) for rule in prepare(rules, thresholds={entry: {"max_mfu": 0.5}})] == [DL001, HS001]

    def test_their_page_says_where_to_look(self) -> None:
        with pytest.raises(ConfigError, match="EF001 low-mfu is no rule any more: the verdict states"):
            load_rules().find("EF001")
