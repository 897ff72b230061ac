"""What the page of comparisons says of their accuracy, from made-up runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import compare_noise


def recorded(spread: float, slower: float = 0.05) -> dict[str, object]:
    rng = np.random.default_rng(0)

    def runs(number: int, factor: float) -> list[list[float]]:
        return [
            (70_000 * factor * np.exp(rng.normal(0, spread) + rng.normal(0, 0.02, 20))).tolist() for _ in range(number)
        ]

    environment = {"cores": 2, "machine": "x86_64", "torch": "2.13.0", "threads": "1"}
    return {
        "discarded": 3,
        "environment": environment,
        "runs": {"healthy": runs(24, 1), "slower": runs(12, 1 + slower)},
    }


def rows(page: str) -> dict[int, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {int(cells[0]): cells[1:] for cells in lines if cells[0].isdigit()}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_noise, "DRAWS", 40)


def test_where_runs_agree_few_of_them_find_the_slower_script() -> None:
    table = rows(compare_noise.section(recorded(0.002)))
    assert list(table) == [1, 2, 3, 5, 7, 10]
    assert table[5] == ["100.0%"] * 4


def test_a_regression_that_is_not_there_is_not_found() -> None:
    table = rows(compare_noise.section(recorded(0.02, slower=0.0)))
    assert all(float(cells[1].rstrip("%")) <= 10 for cells in table.values())


def test_the_page_says_how_many_rounds_the_data_has() -> None:
    data = json.loads(compare_noise.DATA.read_text(encoding="utf-8"))
    rounds = len(data["runs"]["slower"])
    assert rounds == compare_noise.ROUNDS
    assert len(data["runs"]["healthy"]) == 2 * rounds
    page = compare_noise.DATA.parents[1] / "docs" / "comparing.md"
    assert f"was recorded on the CPU in {rounds} rounds" in page.read_text(encoding="utf-8")
