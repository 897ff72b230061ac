"""DL008: the DataLoader takes the items of a data set in memory one by one, and joins them to a batch."""

from __future__ import annotations

from traceopt.analyzer.run_log.loaders import InMemory
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules import (
    Edit,
    Facts,
    Findings,
    Fix,
    Price,
    Rule,
    SetArguments,
    area_of,
    counted,
    each_step,
    microseconds,
    ms,
    percent,
    priced_host,
    site_evidence,
    site_locations,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.constructed import loader_places
from traceopt.rules.fixes.advice.loading.loader_plans import loader_rows, loader_sites, loading_plan
from traceopt.rules.fixes.advice.loading.loader_workers import LoaderPlan

LOW = 0.7  # of the expected saving: the profiler makes each small operator of an item look slower
BY_BATCH = """\
sampler = BatchSampler(loader.sampler, batch_size={size}, drop_last={drop_last})  # of the loader that you have
loader = DataLoader(dataset, sampler=sampler, batch_size=None)  # and its other arguments"""


class ItemsOneByOne(Rule):
    """Measures the time to load a batch from a data set whose items are rows of tensors or arrays in memory. `traceopt
    run` finds these tensors, and measures how long the rows of a batch take if they are taken at once.

    Why it costs: for a batch of 2,048 items, the loader calls the data set 2,048 times, makes as many small tensors of
    each column, and joins them. The same rows can be taken with one operator per column. Worker processes only move
    that work elsewhere, and sending the batch costs time too.

    How to fix: let the sampler give the indices of a whole batch, and turn the loader's own batching off.

        from torch.utils.data import BatchSampler, DataLoader, RandomSampler

        sampler = BatchSampler(RandomSampler(dataset), batch_size=2048, drop_last=False)
        loader = DataLoader(dataset, sampler=sampler, batch_size=None)

    The data set then gets a list of indices. A TensorDataset takes it as it is, and so does a `__getitem__` that
    only indexes tensors or arrays. DataLoader rejects shuffle and drop_last then: the samplers have them. For any
    other data set let `__getitem__` accept a list. Or leave the loader as it is, and write `__getitems__` with a
    `collate_fn` that returns the batch unchanged. With the same seed the order stays the same. `loader.batch_size`
    is None then.

    When it is wrong: an item may need work of its own, such as random augmentation. The rule is silent if an item takes
    long, so little of that is expected. A small batch gains little.

    Sources: PyTorch documentation, "torch.utils.data": disable automatic batching, and loading batched data.
    """

    code = "DL008"
    name = "items-one-by-one"
    title = "Take batches of in-memory data at once"
    family = "input pipeline"
    requires = ("work", "whole")

    min_share: float = threshold(0.03, "smallest expected saving, as a share of the step, to report")
    most_item_us: float = threshold(100.0, "longest time of an item that is taken from memory, in µs")

    def applies(self, facts: Facts) -> str | None:
        if not len(facts.host.rows_of(DATA_LOADING)):
            return "No DataLoader in this trace."
        if facts.training_framework is not None:
            return "A training framework batches the samples."
        return None if _in_memory(facts) is not None else "The DataLoader takes no items from memory one by one."

    def check(self, facts: Facts) -> Findings:
        data, plan = _in_memory(facts), loading_plan(facts)
        saved_ns = _saved_ns(facts, plan)
        if data is None or saved_ns < self.min_share * facts.step_ns or self._item_ns(plan) > 1e3 * self.most_item_us:
            return
        sites, size = loader_sites(facts), plan.settings.batch_size or 0
        stall_ns = facts.stalls.typical_ns(DATA_LOADING)
        edits = _edits(data, size) if data.plain and not plan.multiprocess else []
        yield self.finding(
            why=(
                f"The data loader takes {counted(size, 'item')} of a batch one by one from memory, "
                f"{microseconds(self._item_ns(plan))} each, and joins them. Loading takes {ms(stall_ns)} of "
                f"{each_step(facts)}. The same rows, taken at once, took {ms(data.batch_ns)} on this machine."
            ),
            confidence=None if data.plain else "medium",
            saving=_price(facts, saved_ns, stall_ns),
            evidence=site_evidence(facts, sites),
            locations=[*loader_places(facts), *site_locations(sites, 2)],
            fix=Fix(
                "Let the sampler give the indices of a whole batch, and turn the loader's own batching off. DataLoader "
                "rejects shuffle and drop_last then."
                + (
                    ""
                    if data.plain
                    else " The data set must accept a list of indices, and what it returns is the batch."
                )
                + (" The loader then needs no workers: set num_workers=0." if plan.multiprocess else ""),
                None if edits else BY_BATCH.format(size=size, drop_last=data.drop_last),
                edits=edits,
            ),
            shares_cause_with=["DL001"],
        )

    def _item_ns(self, plan: LoaderPlan) -> float:
        """CPU time of an item."""
        build = plan.settings.build
        batch_ns = (build.cpu_ns or build.batch_ns) if build is not None else (plan.build_ns or 0.0) / plan.fetches
        return batch_ns / max(1, plan.settings.batch_size or 1)

    def passed(self, facts: Facts) -> str:
        share = percent(facts.stalls.typical_ns(DATA_LOADING) / facts.step_ns)
        return f"Loading items from memory takes {share} of {the_step(facts)}."


def _in_memory(facts: Facts) -> InMemory | None:
    loader = facts.captured.training_loader
    return loader.in_memory if loader is not None else None


def _saved_ns(facts: Facts, plan: LoaderPlan) -> float:
    data = plan.settings.in_memory
    left_ns = plan.sampling_ns + plan.fetches * data.batch_ns if data is not None else 0.0
    return facts.stalls.typical_ns(DATA_LOADING) - left_ns if data is not None else 0.0


def _price(facts: Facts, saved_ns: float, stall_ns: float) -> Price:
    share, area = saved_ns / stall_ns, area_of(facts, loader_rows(facts))
    return priced_host(
        facts,
        area,
        stall_ns,
        (LOW * share, share, share),
        "Assumes that a batch takes as long as its rows did when they were taken at once on this machine, or "
        f"{percent(LOW)} of what that saves.",
    )


def _edits(data: InMemory, size: int) -> list[Edit]:
    order = "RandomSampler" if data.shuffled else "SequentialSampler"
    sampler = f"BatchSampler({order}(dataset), {size}, drop_last={data.drop_last})"
    return [SetArguments("DataLoader", {"sampler": sampler, "batch_size": "None"})]
