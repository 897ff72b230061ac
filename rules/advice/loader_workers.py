"""How many DataLoader workers hide the loading of a step, whether the cores allow it, and what to set beside them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.loaders import Loader
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.result.quantities import ms, percent

WAITING_SHARE = 0.5  # of a batch's time, computing: what computes less mostly waits
LEAST_SHARE = 0.02  # of a core that a worker is said to need, however little it computes
CROWDED_SHARE = 0.1  # of a batch's time, without a free core
CHEAPER = "make an item cheaper: decode once and cache it, use packed formats, move augmentation to the GPU"
FASTER = "read from faster storage (local NVMe or RAM), in larger packed files, or cache what was read"


class LoaderPlan(Struct, frozen=True):
    """What is known of the training's loader. Times are of a step.

    `settings` and `cores` are as `traceopt run` recorded them, `cores` None where it did not.
    """

    multiprocess: bool
    wait_ns: float  # in `__next__`
    rest_ns: float  # without the stall
    fetches: float  # batches that a step reads
    settings: Loader
    cores: int | None  # for this rank
    gpu: bool

    @property
    def build_ns(self) -> float | None:
        """What one process takes to build the batches of a step."""
        if not self.multiprocess:
            return self.wait_ns
        build = self.settings.build
        if build is not None:
            return build.batch_ns * self.fetches
        # With a queue that runs empty they deliver a batch a step: each takes as many steps as there are workers.
        workers = self.settings.num_workers
        return workers * (self.rest_ns + self.wait_ns) if workers else None

    @property
    def needed(self) -> int | None:
        """Workers that deliver in time, and one more for a batch that takes longer."""
        return None if self.build_ns is None else math.ceil(self.build_ns / self.rest_ns) + 1

    @property
    def waits(self) -> bool:
        """Building is mostly waiting for storage or the network: then more workers than cores help."""
        return self._computing is not None and self._computing < WAITING_SHARE

    @property
    def _computing(self) -> float | None:
        return self.settings.build.computing_share if self.settings.build is not None else None

    @property
    def most(self) -> int | None:
        """Workers that find a core beside the training thread; None where the cores are not known."""
        if self.cores is None:
            return None
        computing = 1.0 if self._computing is None else max(self._computing, LEAST_SHARE)
        return int(max(1, self.cores - 1) / computing)

    @property
    def suffices(self) -> bool:
        return self.needed is None or self.most is None or self.needed <= self.most

    @property
    def wanted(self) -> int | None:
        """The number of workers to set."""
        if self.needed is None or self.most is None:
            return self.needed
        return min(self.needed, self.most)

    @property
    def exhausted(self) -> bool:
        """There are as many workers as find a core, and they are too few."""
        now = self.settings.num_workers
        return not self.suffices and now is not None and self.most is not None and now >= self.most

    @property
    def keeps_up(self) -> bool:
        """There are workers enough already, by what a batch takes them on average."""
        now = self.settings.num_workers
        return self.multiprocess and self.needed is not None and now is not None and self.needed <= now

    @property
    def left_ns(self) -> float:
        """What remains of the wait when there are as many workers as the cores allow."""
        if self.suffices or self.build_ns is None or self.most is None:
            return 0.0
        return min(self.wait_ns, max(0.0, self.build_ns / self.most - self.rest_ns))

    @property
    def advice(self) -> str:
        facts = self._known() + self._price()
        return f"{facts}: {self._workers()}{self._where_the_time_goes()}"

    @property
    def code(self) -> str | None:
        """The arguments to add or change, but for those that are set already."""
        arguments = []
        if not self.keeps_up and not self.exhausted:
            arguments.append(f"num_workers={'2 * current' if self.wanted is None else self.wanted}")
        if not self.settings.persistent_workers:
            arguments.append("persistent_workers=True")
        if (self.settings.prefetch_factor or 2) < 4:
            arguments.append("prefetch_factor=4")
        if self.gpu and not self.settings.pin_memory:
            arguments.append("pin_memory=True")
        return f"DataLoader({', '.join(['...', *arguments])})" if arguments else None

    def _known(self) -> str:
        """ "num_workers=0, 16 cores, "."""
        workers = 0 if not self.multiprocess else self.settings.num_workers
        known = [] if workers is None else [f"num_workers={workers}"]
        known += [] if self.cores is None else [f"{self.cores} {'core' if self.cores == 1 else 'cores'}"]
        return "".join(f"{one}, " for one in known)

    def _price(self) -> str:
        rest = f"against {ms(self.rest_ns)} for the rest of the step"
        if self.build_ns is None:
            return f"a wait of {ms(self.wait_ns)} a step {rest}"
        batches = "a batch" if self.fetches < 1.5 else f"the {self.fetches:.0f} batches of a step"
        return f"{ms(self.build_ns)} to build {batches} {rest}"

    def _workers(self) -> str:
        if self.needed is None:
            return "raise num_workers, if there are free CPU cores."
        if not self.suffices:
            enough = f"{self.needed} workers would hide it, and only {self.most} find a core beside the training thread"
            then = "They are there:" if self.exhausted else "Use them, and"
            return f"{enough}. {then} {FASTER if self.waits else CHEAPER}."
        if self.keeps_up:
            return (
                f"{self.needed} workers would do on average, and there are {self.settings.num_workers}: some batches "
                "come late, or take long to hand over. Let more wait ready (prefetch_factor), and keep them small."
            )
        given = "" if self.cores is not None else ", given as many free CPU cores"
        return f"{self.needed} workers suffice{given}."

    def _where_the_time_goes(self) -> str:
        build = self.settings.build
        if build is None or build.cpu_ns is None:
            return ""
        parts = [f"{percent(min(1.0, build.cpu_ns / build.batch_ns))} is computing"]
        if build.core_wait_share >= CROWDED_SHARE:
            parts.append(f"{percent(build.core_wait_share)} is waiting for a free core")
        if self.waits:
            parts.append("the rest is waiting for data")
        text = f" Of that time {', '.join(parts)}"
        return text + (f": {FASTER}." if self.waits and self.suffices and not self.keeps_up else ".")


def loader_rows(facts: Facts) -> npt.NDArray[np.int64]:
    """The slices of the training thread inside a loader, the outermost."""
    rows = facts.host.rows_of("data_loading")
    return np.asarray(rows[facts.slices.thread[rows] == facts.steps.thread])


def plan_loader(facts: Facts, wait_ns: float, rest_ns: float) -> LoaderPlan:
    """`wait_ns` is in `__next__`, `rest_ns` without it: both of a step."""
    multiprocess = bool(facts.regions.named(op_names.is_multiprocess_dataloader, ANNOTATION, OP).any())
    settings = facts.captured.training_loader or Loader()
    if settings.num_workers is not None and multiprocess != (settings.num_workers > 0):
        settings = Loader()  # of another loader than the one seen in the trace
    rows = loader_rows(facts)
    calls = facts.steps.per_step(facts.steps.step_of(facts.slices.start[rows]), np.ones(len(rows), np.int64))
    return LoaderPlan(
        multiprocess,
        wait_ns,
        max(1.0, rest_ns),
        max(1.0, median(calls)),
        settings,
        facts.captured.environment.cores,
        facts.has_gpu,
    )
