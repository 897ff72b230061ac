"""How evaluations are noticed and counted, without torch: a clock that the test sets, and modules that only count."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traceopt.capture.metadata import evaluations, step_ledger, user_line
from traceopt.capture.metadata.step_ledger import LedgerWriter
from traceopt.capture.script.evaluation_mode import EvaluationMode


class Clock:
    """Seconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(evaluations, "time", clock)
    monkeypatch.setattr(step_ledger, "time", clock)
    return clock


@pytest.fixture
def ledger(clock: Clock) -> LedgerWriter:  # noqa: ARG001 - the ledger starts with this clock
    ledger = LedgerWriter(lambda: None)
    end_step(ledger)
    return ledger


def end_step(ledger: LedgerWriter) -> None:
    ledger.close_step()
    ledger.open_step()


class TestLedger:
    def test_an_evaluation_lasts_from_its_first_sign_to_the_training(self, ledger: LedgerWriter, clock: Clock) -> None:
        clock.now = 1
        ledger.evaluates()
        clock.now = 3
        ledger.fetched(2)  # of the evaluation
        ledger.evaluates()
        clock.now = 4
        ledger.evaluated()
        ledger.fetched(0.5)
        clock.now = 5
        end_step(ledger)
        found = ledger.document()
        assert (found["step_us"], found["eval_us"]) == ([0, 5e6], [0, 3e6])
        assert found["fetch_us"] == [0, 0.5e6]
        [place] = found["evaluations"]
        assert (place["count"], place["us"], place["function"]) == (
            1,
            3e6,
            "test_an_evaluation_lasts_from_its_first_sign_to_the_training",
        )
        assert Path(place["file"]).name == "test_evaluations.py"
        assert not Path(place["file"]).is_absolute()

    def test_its_place_is_the_call_in_the_training_loop(self, ledger: LedgerWriter, clock: Clock) -> None:
        def evaluate() -> None:
            ledger.evaluates()
            clock.now += 3
            ledger.evaluates()

        for _ in range(2):
            ledger.close_step()
            ledger.open_step()
            evaluate()
            ledger.trains()
        [place] = ledger.document()["evaluations"]
        assert place["function"] == "test_its_place_is_the_call_in_the_training_loop"
        line = Path(__file__).read_text(encoding="utf-8").splitlines()[place["line"] - 1]
        assert line.strip() == "evaluate()"

    def test_without_a_sign_of_its_end_it_lasts_to_its_last_sign(self, ledger: LedgerWriter, clock: Clock) -> None:
        ledger.evaluates()
        clock.now = 3
        ledger.evaluates()
        clock.now = 10
        ledger.fetched(1)
        ledger.trains()
        end_step(ledger)
        found = ledger.document()
        assert (found["eval_us"], found["fetch_us"]) == ([0, 3e6], [0, 1e6])

    def test_a_single_sign_is_no_evaluation(self, ledger: LedgerWriter, clock: Clock) -> None:
        """A part of the model that is frozen, or another model that only infers."""
        for _ in range(2):
            ledger.evaluates()
            clock.now += 3
            ledger.trains()
            end_step(ledger)
        assert "eval_us" not in ledger.document()
        assert ledger.document()["evaluations"] == []

    def test_it_may_go_on_when_the_step_has_ended(self, ledger: LedgerWriter, clock: Clock) -> None:
        ledger.evaluates()
        clock.now = 1
        ledger.evaluates()
        ledger.close_step()
        clock.now = 7  # the profiler's work
        ledger.open_step()
        clock.now = 9
        ledger.evaluated()
        end_step(ledger)
        found = ledger.document()
        assert found["eval_us"] == [0, 1e6, 2e6]
        assert [place["count"] for place in found["evaluations"]] == [1]

    def test_saves_and_traceopt_s_own_work_are_no_part_of_it(self, ledger: LedgerWriter, clock: Clock) -> None:
        ledger.evaluates()
        clock.now = 4
        ledger.saved(3)
        with ledger.own_work():
            clock.now = 6
        clock.now = 7
        ledger.evaluated()
        end_step(ledger)
        found = ledger.document()
        assert (found["step_us"][1], found["eval_us"][1], found["own_us"]) == (5e6, 2e6, 2e6)
        assert [(place["count"], place["us"]) for place in found["saved_at"]] == [(1, 3e6)]

    def test_what_follows_the_last_step_is_counted_on_its_own(self, ledger: LedgerWriter, clock: Clock) -> None:
        ledger.evaluates()
        clock.now = 2
        ledger.evaluates()
        clock.now = 5
        ledger.saved(1)
        ledger.ends()
        assert ledger.document()["end"] == {"us": 5e6, "eval_us": 2e6, "save_us": 1e6, "early": False}


def test_libraries_have_no_line_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile("def call(): return user_line()\ndef outer(): return call()", "/x/site-packages/lib.py", "exec")
    library: dict[str, Any] = {"user_line": user_line.user_line}
    exec(code, library)  # noqa: S102 - the code above
    found = library["outer"]()
    assert found is not None
    assert found[2] == "test_libraries_have_no_line_of_the_user"
    monkeypatch.setattr(user_line, "_MOST_FRAMES", 2)
    assert library["outer"]() is None


class Tracker:
    """The calls that it receives, in order."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def evaluation_mode(self, gradients: bool) -> None:
        self.told.append(gradients)

    def training_mode(self) -> None:
        self.told.append("trains")


class Watched:
    """Modules as torch's: train() calls itself for every submodule, and eval() is train(False)."""

    def __init__(self) -> None:
        class Module:
            def __init__(self, *children: Any) -> None:
                self.children, self.training = children, True

            def train(self, mode: bool = True) -> Any:
                self.training = mode
                for child in self.children:
                    child.train(mode)
                return self

            def eval(self) -> Any:
                return self.train(False)

        self.Module = Module
        self.train = Module.train
        self.gradients = True
        self.tracker, self.notes = Tracker(), list[str]()
        torch = SimpleNamespace(nn=SimpleNamespace(Module=Module), is_grad_enabled=lambda: self.gradients)
        dynamo = SimpleNamespace(exclude=_same, is_compiling=lambda: False)
        EvaluationMode(torch, self.tracker, dynamo, self.notes.append).watch()  # type: ignore[arg-type]


def _same(function: Callable[..., Any], **_: bool) -> Callable[..., Any]:
    return function


class TestMode:
    def test_a_model_is_watched_until_it_trains_again(self) -> None:
        watched = Watched()
        part, model = watched.Module(), watched.Module()
        whole = watched.Module(part, model)
        whole.train()
        assert watched.tracker.told == []
        watched.gradients = False
        model.eval()
        assert watched.Module.train is not watched.train
        whole.train()  # as a wrapper around the model does
        assert watched.tracker.told == [False, "trains"]
        assert watched.Module.train is watched.train, "train() of every submodule costs nothing outside of evaluations"
        assert all(module.training for module in (part, model, whole))

    def test_another_model_that_trains_says_nothing(self) -> None:
        watched = Watched()
        teacher, student = watched.Module(), watched.Module()
        teacher.eval()
        student.train()
        assert watched.tracker.told == [True]
        assert not teacher.training

    def test_a_failure_is_a_note_and_the_script_goes_on(self) -> None:
        watched = Watched()
        watched.tracker.told = None  # type: ignore[assignment]
        model = watched.Module()
        assert model.eval() is model
        assert not model.training
        assert model.train() is model
        assert model.training
        assert "evaluations are not counted: AttributeError" in watched.notes[0]

    def test_in_any_thread_the_model_changes_as_it_would(self) -> None:
        watched = Watched()
        model = watched.Module(watched.Module())
        thread = threading.Thread(target=model.eval)
        thread.start()
        thread.join()
        assert not model.children[0].training
