"""The plan: each row saves what it states given the rows above it, the first alone, and the rows add up."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import pytest
from msgspec.structs import replace
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change, DropSync, RemoveHost, ScaleWork
from traceopt.analyzer.trace_quality import TraceQuality
from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY
from traceopt.document import sections
from traceopt.document.plan_rows import combine, document_rows
from traceopt.result.document import Combined
from traceopt.result.edits import Compile
from traceopt.result.finding import Finding, Fix
from traceopt.result.sections.work_rows import PlanRow
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.rules.plan import MIN_PLAN_SHARE, Plan, in_order, make_plan
from traceopt.rules.savings.correction import Correction
from traceopt.rules.savings.joint import JointSavings
from traceopt.rules.savings.price import Price, Priced
from traceopt.rules.savings.pricing import area_of
from traceopt.testing.machine import Machine

# One fault each, whose whole cost a single fix saves.
SINGLE = ("slow_loader", "logging_stall", "gc_pause_recorded", "item_stall", "misaligned_vocab", "metric_sync")


@pytest.mark.parametrize("scenario", ["healthy", "cuda_graph", "loss_item", "hidden_host_work"])
def test_nothing_to_plan(example: GetExample, scenario: str) -> None:
    assert example(scenario).result.combined is None
    assert example(scenario).result.plan == []


@pytest.mark.parametrize("scenario", SINGLE)
def test_the_step_after_is_the_step_of_the_fixed_twin(example: GetExample, scenario: str) -> None:
    subject = example(scenario)
    combined = subject.result.combined
    assert combined is not None
    assert combined.step_us_after == pytest.approx(fmean(subject.planted.fixed_step_us), rel=0.10)


def finding(code: str, est_us: float, *changes: Change, **attributes: object) -> Priced:
    est_ns = round(est_us * 1e3)
    bounds_ns = (0.0, est_ns, est_ns)
    price = Price(est_ns // 2, est_ns, est_ns, 0.2, "", bounds_ns, changes, changes, changes, by_replay=bool(changes))
    one = Finding(code, code, "", "high", "high", Effort.FEW_LINES, Risk.NONE, price.saving, "", [], [], Fix(""))
    return Priced(replace(one, **attributes), price)


def together(found: Sequence[Priced], facts: Facts) -> Combined | None:
    plan = make_plan(found, facts)
    return combine(plan, rows_of(plan), sections.breakdown(facts), facts)


def rows_of(plan: Plan) -> list[PlanRow]:
    return document_rows(plan, [row.fix.finding for row in plan.rows])


def codes(found: Sequence[Priced], facts: Facts) -> list[str]:
    return [row.fix.finding.code for row in make_plan(found, facts).rows]


def without(facts: Facts, activity: str) -> RemoveHost:
    rows = facts.host.rows_of(CAUSE_OF_KEY[activity])
    return RemoveHost(area_of(facts, rows[facts.slices.thread[rows] == facts.steps.thread]))


def test_of_one_cause_the_first_counts(example: GetExample) -> None:
    facts = example("five_faults").facts
    both = together([finding("DL001", 8000), finding("HS001", 5000, shares_cause_with=["DL001"])], facts)
    one = together([finding("DL001", 8000)], facts)
    assert both == one


def test_how_wide_ranges_are_does_not_choose_between_fixes(example: GetExample) -> None:
    """Of two choices that save about as much, the one that saves more, not the one whose ranges are narrower."""
    facts = example("five_faults").facts
    loader = finding("DL001", 20_000, without(facts, "data_loading"))
    logging = finding("LG001", 20_000, without(facts, "logging"))
    both = finding("ACME001", 13_900, shares_cause_with=["DL001", "LG001"])
    assert both.price is not None
    narrow = replace(both, price=replace(both.price, low_ns=both.price.est_ns))
    assert codes([loader, logging, narrow], facts) == ["DL001", "LG001"]


def test_independent_fixes_of_the_host_add_up(example: GetExample) -> None:
    """In five_faults the GPU is drained at the end of each step: what the host saves, the step saves."""
    facts = example("five_faults").facts
    loader = finding("DL001", 20_000, without(facts, "data_loading"))
    combined = together([loader, finding("LG001", 20_000, without(facts, "logging"))], facts)
    assert combined is not None
    assert combined.saving_us == pytest.approx(9_000 + 5_000, rel=0.02)
    assert combined.replay_error_share == pytest.approx(0, abs=0.001)


def test_trials_correct_what_a_fix_saves_beside_others(example: GetExample) -> None:
    """Half of what the loader saves; nothing where another fix saves the same time."""
    facts = example("five_faults").facts
    loader = finding("DL001", 20_000, without(facts, "data_loading"))
    assert loader.price is not None
    tried = replace(loader, price=replace(loader.price, correction=Correction(factor=0.5)))
    logging = finding("LG001", 20_000, without(facts, "logging"))
    savings = JointSavings(facts)
    assert savings.of([tried]) == pytest.approx(0.5 * savings.of([loader]))
    assert savings.of([tried, logging]) == pytest.approx(0.5 * savings.of([loader]) + savings.of([logging]), rel=0.02)
    assert savings.of([tried, loader]) == pytest.approx(savings.of([loader]))


def test_what_is_not_known_of_a_fix_is_added_to_the_replay(example: GetExample) -> None:
    facts = example("five_faults").facts
    loader = finding("DL001", 20_000, without(facts, "data_loading"))
    combined = together([loader, finding("ACME001", 3_000)], facts)
    assert combined is not None
    assert combined.saving_us == pytest.approx(9_000 + 3_000, rel=0.02)


def test_the_parts_that_are_left(example: GetExample) -> None:
    """With the names of the breakdown and without the fixed cause; only if the replay explains the saving."""
    subject = example("slow_loader")
    combined = subject.result.combined
    assert combined is not None
    left = {part.name: part.share for part in combined.breakdown_after}
    assert left["compute"] > 0.95
    assert left.get("data_loading", 0) < 0.02
    labels = {part.name: (part.label, part.busy) for part in subject.result.breakdown}
    assert all(labels.get(p.name, (p.label, p.busy)) == (p.label, p.busy) for p in combined.breakdown_after)
    loader = finding("DL001", 20_000, without(subject.facts, "data_loading"))
    partly = together([loader, finding("ACME001", 3_000)], subject.facts)
    assert partly is not None
    assert partly.breakdown_after == []


def test_a_faster_host_helps_only_to_the_gpus_own_path(example: GetExample) -> None:
    facts = example("hidden_host_work").facts
    assert together([finding("DL001", 0.0, without(facts, "data_loading"))], facts) is None
    facts = example("slow_loader").facts
    starved = facts.step_ns / 1e3 - facts.gpu.busy.total / facts.steps.count / 1e3
    combined = together([finding("DL001", 15_000, without(facts, "data_loading"))], facts)
    assert combined is not None
    assert combined.saving_us == pytest.approx(starved, rel=0.02)
    assert combined.limit_after == "compute"


def test_cheap_and_unpriced_findings_make_no_plan(example: GetExample) -> None:
    facts = example("slow_loader").facts
    cheap = finding("DL001", 0.9 * MIN_PLAN_SHARE * facts.step_ns / 1e3)
    info = finding("TC003", 0, saving=None, impact="info")
    assert codes([cheap, info], facts) == []
    assert codes([cheap, info, finding("LG001", 0.5 * facts.step_ns / 1e3)], facts) == ["LG001", "DL001"]


def test_no_fix_saves_the_whole_step(example: GetExample) -> None:
    """Not even on a CPU-only run, where one path is the step."""
    facts = example("cpu_only").facts
    step_us = facts.step_ns / 1e3
    combined = together([finding("DL001", step_us), finding("LG001", step_us)], facts)
    assert combined is not None
    assert combined.saving_us == pytest.approx(0.95 * step_us)


def test_a_sampled_file_has_no_plan(example: GetExample, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = example("slow_loader")
    assert subject.result.combined is not None
    monkeypatch.setattr(TraceQuality, "sampled_share", 0.01)
    assert codes([finding("DL001", 1e6)], subject.facts) == []


class TestOrder:
    """Loading takes 300 us before 500 us of GPU work, which the host then reads for 200 us: one after the other."""

    @pytest.fixture
    def facts(self) -> Facts:
        machine = Machine()
        for _ in range(5):
            with machine.step():
                machine.work(300, "load")
                machine.launch(500)
                machine.synchronize()
                machine.work(200, "log")
        return machine.facts()

    @staticmethod
    def removal(facts: Facts, name: str) -> RemoveHost:
        return RemoveHost(area_of(facts, (facts.slices.name == facts.trace.names.index(name)).nonzero()[0]))

    def test_the_largest_saving_goes_first(self, facts: Facts) -> None:
        log, load = (finding(code, 900, self.removal(facts, name)) for code, name in (("A", "log"), ("B", "load")))
        plan = make_plan([log, load], facts)
        assert [row.fix.finding.code for row in plan.rows] == ["B", "A"]
        assert [row.saving_ns for row in plan.rows] == pytest.approx([300_000, 200_000])
        assert [row.needs for row in plan.rows] == [(), ()]

    @pytest.mark.parametrize(
        ("attributes", "first"),
        [
            ({}, "B"),
            ({"confidence": "medium"}, "A"),
            ({"risk": Risk.NUMERICS}, "A"),
            ({"effort": Effort.REFACTORING}, "A"),
            ({"effort": Effort.DEPENDS}, "A"),
        ],
    )
    def test_of_two_that_look_the_same_the_surer_safer_or_simpler_one(
        self, facts: Facts, attributes: dict[str, object], first: str
    ) -> None:
        smaller = finding("A", 257, effort=Effort.ONE_LINE)
        larger = finding("B", 260, **{"effort": Effort.ONE_LINE} | attributes)
        assert codes([smaller, larger], facts)[0] == first

    def test_the_first_is_one_that_another_needs(self) -> None:
        """The host takes 1 ms and the GPU 1.1 ms, side by side: only faster kernels make a faster host worth it."""
        machine = Machine()
        for _ in range(5):
            with machine.step():
                for _ in range(10):
                    machine.work(100, "dispatch")
                    machine.launch(110)
                machine.synchronize()
                machine.work(150, "log")
        facts = machine.facts()
        kernels = finding("kernels", 900, ScaleWork(facts.gpu.is_kernel, 0.2), confidence="medium")
        log, dispatch = (finding(name, 900, self.removal(facts, name)) for name in ("log", "dispatch"))
        assert codes([log, kernels], facts) == ["log", "kernels"]
        assert codes([log, kernels, dispatch], facts) == ["kernels", "dispatch", "log"]

    def test_a_fix_that_itself_takes_time_beside_the_step_bounds_it(self, facts: Facts) -> None:
        """A thread that prepares inputs is not faster because the GPU is."""
        load, log = (finding(name, us, self.removal(facts, name)) for name, us in (("load", 300), ("log", 200)))
        assert load.price is not None
        bound = Priced(load.finding, replace(load.price, least_step_ns=650_000.0))
        rows = make_plan([bound, log], facts).rows
        assert [row.fix.finding.code for row in rows] == ["load", "log"]
        assert facts.step_ns - sum(row.saving_ns for row in rows) == pytest.approx(650_000, rel=0.01)
        assert rows[-1].high_ns == pytest.approx(rows[-1].saving_ns)

    def test_two_fixes_by_torch_compile_are_one_call(self, facts: Facts) -> None:
        plain, graphs = (Fix("", edits=[Compile(arguments=mode)]) for mode in ({}, {"mode": '"reduce-overhead"'}))
        load, log, other = (
            finding(name, us, self.removal(facts, name), fix=fix)
            for name, us, fix in (("load", 300, graphs), ("log", 200, plain), ("log", 200, Fix("", "log()")))
        )
        assert [row.same_edit for row in rows_of(make_plan([load, log], facts))] == [None, 1]
        assert [row.same_edit for row in rows_of(make_plan([load, other], facts))] == [None, None]

    def test_what_the_plan_treats_in_another_way_says_what_the_plan_saves_with_it(self, facts: Facts) -> None:
        load = finding("A", 300, self.removal(facts, "load"))
        same = finding("B", 200, self.removal(facts, "load"), shares_cause_with=["A"])
        plan = make_plan([load, same], facts)
        planned, left_out = (one.finding for one in in_order([load, same], plan, facts))
        assert (planned.after_plan_us, planned.instead_lost_us) == (None, None)
        assert (left_out.after_plan_us, left_out.instead_lost_us) == (None, pytest.approx(100, rel=0.01))

    @pytest.mark.parametrize(("unsure_us", "order"), [(260, "ABC"), (400, "BAC")])
    def test_the_surest_of_about_as_much_is_first_and_others_go_by_size(
        self, facts: Facts, unsure_us: float, order: str
    ) -> None:
        fixes = [finding("A", 250), finding("B", unsure_us, confidence="low"), finding("C", 230)]
        assert "".join(codes(fixes, facts)) == order

    @pytest.mark.parametrize(("guess_us", "first"), [(300, "A"), (700, "B")])
    def test_one_that_may_save_nothing_counts_half(self, facts: Facts, guess_us: float, first: str) -> None:
        guess = finding("B", guess_us, confidence="low")
        assert guess.price is not None
        guess = replace(guess, price=replace(guess.price, low_ns=0))
        assert codes([finding("A", 200), guess], facts)[0] == first

    def test_fixes_that_the_first_makes_useless_are_not_in_the_plan(self, facts: Facts) -> None:
        """Both fixes remove the same work."""
        twice = [finding(code, 300, self.removal(facts, "load")) for code in ("A", "B")]
        plan = make_plan(twice, facts)
        assert [row.fix.finding.code for row in plan.rows] == ["A"]
        ranked = in_order(twice, plan, facts)
        assert [one.finding.code for one in ranked] == ["A", "B"]  # but it stays a finding, with what it saves alone
        assert ranked[1].finding.saving is not None
        assert ranked[1].finding.saving.est_us == 300


class TestHiddenFixes:
    """The host loads for 2600 us. Then it takes 250 us before each of ten kernels of 30 us, and then 200 us before the
    last one. Without the 250 us it is far ahead of the GPU, which hides the 200 us.
    """

    @pytest.fixture
    def facts(self) -> Facts:
        machine = Machine()
        for _ in range(5):
            with machine.step():
                machine.work(2600, "load")
                for _ in range(10):
                    machine.work(250, "model")
                    machine.launch(30)
                machine.work(200, "zero")
                machine.launch(20)
                machine.synchronize()
        return machine.facts()

    @staticmethod
    def fixes(facts: Facts, effort: Effort, model_us: float = 2500) -> list[Priced]:
        model = finding("A", model_us, TestOrder.removal(facts, "model"), risk=Risk.CORRECTNESS)
        return [model, finding("B", 200, TestOrder.removal(facts, "zero"), effort=effort)]

    def test_one_that_a_larger_fix_hides_is_not_in_the_plan(self, facts: Facts) -> None:
        load = finding("C", 2600, TestOrder.removal(facts, "load"))
        assert codes([load, *self.fixes(facts, Effort.ONE_LINE)], facts) == ["C", "A"]

    def test_a_fix_hides_others_only_as_far_as_its_row_says(self, facts: Facts) -> None:
        """All of the change would save 2300 us and hide the other fix, but only 1000 us were measured."""
        plan = make_plan(self.fixes(facts, Effort.REFACTORING, model_us=1000), facts)
        assert [row.fix.finding.code for row in plan.rows] == ["A", "B"]
        assert [row.saving_ns for row in plan.rows] == pytest.approx([1_000_000, 180_000], rel=0.05)
        assert [row.capped for row in plan.rows] == [True, False]

    def test_else_the_finding_says_what_is_left_of_it_after_the_plan(self, facts: Facts) -> None:
        found = self.fixes(facts, Effort.REFACTORING)
        plan = make_plan(found, facts)
        assert [row.fix.finding.code for row in plan.rows] == ["A"]
        planned, hidden = in_order(found, plan, facts)
        assert planned.finding.after_plan_us is None
        assert hidden.finding.after_plan_us == pytest.approx(0, abs=1)


class TestEachOthersLimit:
    """The host needs 405 us a step and the GPU 401, overlapping: a fix of only one side gives nothing."""

    @pytest.fixture
    def facts(self) -> Facts:
        machine = Machine()
        for _ in range(6):
            with machine.step():
                machine.work(400, "load")
                machine.launch(400)
        return machine.facts()

    @pytest.fixture
    def halves(self, facts: Facts) -> list[Priced]:
        load = facts.slices.name == facts.trace.names.index("load")
        host = RemoveHost(area_of(facts, load.nonzero()[0]), 0.5)
        return [finding("A", 200, host), finding("B", 200, ScaleWork(facts.gpu.is_kernel, 0.5))]

    def test_alone_they_are_no_plan(self, facts: Facts, halves: list[Priced]) -> None:
        for one in halves:
            assert codes([one], facts) == []

    def test_together_the_second_needs_the_first(self, facts: Facts, halves: list[Priced]) -> None:
        plan = make_plan(halves, facts)
        assert len(plan.rows) == 2
        first, second = plan.rows
        assert first.needs == ()
        assert second.needs == (1,)
        assert second.alone_ns < 0.1 * second.saving_ns
        assert plan.saving_ns == pytest.approx(200_000, rel=0.05)

    def test_one_that_adds_nothing_to_them_is_not_dragged_along(self, facts: Facts, halves: list[Priced]) -> None:
        idle = finding("C", 100, DropSync((facts.slices.name < 0).nonzero()[0]))
        assert sorted(codes([idle, *halves], facts)) == ["A", "B"]


def test_without_a_replay_to_trust_the_plan_has_one_row() -> None:
    machine = Machine()
    for _ in range(5):
        with machine.step():
            machine.work(300, "load")
            machine.launch(100, after=machine.now + 508)  # half a millisecond late, for no reason
            machine.synchronize()
    facts = machine.facts()
    assert not facts.replay_trusted
    assert codes([finding("A", 300), finding("B", 200)], facts) == ["A"]


def test_what_cannot_shorten_the_step_is_no_finding(example: GetExample) -> None:
    facts = example("hidden_host_work").facts
    hidden = finding("LG001", 0.0, without(facts, "logging"))
    assert in_order([hidden], make_plan([hidden], facts), facts) == []
