"""Ranks over the whole run in the reports: the sentence, the heat map, the table and the frames."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceopt
from fixtures.run_ledgers import Run, Slow, documents
from traceopt.analysis import Analysis
from traceopt.reports.agent.report import render_agent
from traceopt.reports.html.charts.run_ranks_chart import draw_run_ranks
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.reports.words.charts.run_ranks import LONGER, SHORTER, run_heat_map
from traceopt.reports.words.rank_words import slow_ranks
from traceopt.testing import A100, Machine


def result_of(folder: Path, run: Run) -> Analysis:
    for rank, document in enumerate(documents(run)):
        machine = Machine(A100)
        machine.metadata |= {**document, "distributedInfo": {"rank": rank, "world_size": run.ranks}}
        for _ in range(3):
            with machine.step():
                machine.launch(5_000)
                machine.synchronize()
        (folder / f"rank{rank}.json").write_bytes(machine.to_bytes())
    return traceopt.analyze(str(folder), jobs=1)


@pytest.fixture(scope="module")
def slow_for_a_while(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    planted = [Slow([2], 100, 200, 1.4), Slow([1], 200, 240, 1.5)]
    return result_of(tmp_path_factory.mktemp("ranks"), Run(3, 240, planted, evaluate_every=60, ranks_per_node=1))


SENTENCE = "Rank 2 was slow in steps 100 to 199, 1.4 times the others' median: 5"


def test_the_first_sentence_says_who_when_how_much_and_what_it_costs(slow_for_a_while: Analysis) -> None:
    told = slow_ranks(slow_for_a_while)
    assert told is not None
    assert told.startswith(SENTENCE)
    assert told.endswith("% of the run. The report has 1 more slow period.")
    terminal = " ".join(render_terminal(slow_for_a_while, width=80, color=False, unicode=True).split())
    assert told.replace("\N{NO-BREAK SPACE}", " ") in terminal
    assert "Rank 2 was slow" in render_markdown(slow_for_a_while)
    assert "Rank 2 was slow" in render_agent(slow_for_a_while)


def test_ranks_that_wait_for_each_other(tmp_path: Path) -> None:
    result = result_of(tmp_path, Run(3, 240, [Slow([1], 120, 240, 1.5, loads=True)], waits=True))
    assert (slow_ranks(result) or "").startswith(
        "Rank 1 came 10.0\N{NO-BREAK SPACE}ms late to the backward pass from step 120 to the end, waiting for data, "
        "and the other ranks waited: "
    )


def test_only_one_rank_saves(tmp_path: Path) -> None:
    told = slow_ranks(result_of(tmp_path, Run(3, 240, save_every=100, waits=True)))
    assert (told or "").startswith("Only rank 0 saves checkpoints: ")


def test_the_heat_map_shows_each_rank_by_step(slow_for_a_while: Analysis) -> None:
    drawn = run_heat_map(slow_for_a_while)
    assert drawn is not None
    assert [row.name for row in drawn.rows] == ["Median rank", "Rank 0", "Rank 1", "Rank 2", "Evaluation"]
    rank = drawn.rows[3]
    at = drawn.first_steps.index(150)
    assert (rank.colors[at], rank.texts[at]) == (LONGER, rank.texts[at])
    assert "to the median of the others" in rank.texts[at]
    assert rank.opacities[at] > 5 * rank.opacities[drawn.first_steps.index(50)]
    assert SHORTER in rank.colors
    figure = slow_for_a_while.figures.run_ranks
    assert [trace.name for trace in figure.data] == [row.name for row in reversed(drawn.rows)]


def test_the_page_has_the_picture_and_the_table(slow_for_a_while: Analysis) -> None:
    drawing = draw_run_ranks(slow_for_a_while)
    assert drawing is not None
    assert {cells.color for cells in drawing.cells} >= {LONGER, "link"}
    page = slow_for_a_while.to_html()
    assert 'id="run-ranks"' in page
    assert SENTENCE.replace("'", "&#39;") in page


def test_frames_have_slow_ranks_and_each_stretch(slow_for_a_while: Analysis) -> None:
    slow, cells = slow_for_a_while.frames.slow_ranks, slow_for_a_while.frames.run_ranks
    assert slow.ranks.tolist() == ["2", "1"]
    assert slow.ratio[0] == pytest.approx(1.4, abs=0.05)
    assert set(cells.ranks) == {"0", "1", "2"}
    assert len(cells) == 3 * len(set(cells.first_step))
    assert cells.longer.isna().any()  # while the profiler ran


def test_the_picture_of_many_ranks_has_a_bounded_size(tmp_path: Path) -> None:
    result = result_of(tmp_path, Run(70, 600, [Slow([41], 100, 600, 1.4)]))
    assert result.whole_run is not None
    run = result.whole_run.ranks
    assert run is not None
    assert len(run.rows) == 35
    assert len(run.first_steps) <= 128
    assert (run.rows[20].ranks, run.slow[0].ranks) == ([40, 41], [41])
    assert max(value or 0 for value in run.rows[20].longer) == pytest.approx(0.4, abs=0.05)


def test_without_ledgers_of_several_ranks_there_is_no_picture(tmp_path: Path) -> None:
    alone = result_of(tmp_path, Run(1, 240))
    assert (slow_ranks(alone), draw_run_ranks(alone)) == (None, None)
    assert "not recorded" in alone.figures.run_ranks.layout.annotations[0].text
    assert alone.frames.slow_ranks.empty
