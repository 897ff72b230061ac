"""How many DataLoader workers hide data loading, whether the CPU cores allow that many, and which arguments to set."""

from __future__ import annotations

import math

from msgspec import Struct

from traceopt.analyzer.run_log.loaders import Loader
from traceopt.result.edits import Edit, SetArguments
from traceopt.result.words.message import ms, percent

WAITING_SHARE = 0.5  # of a batch's build time: a worker that computes for less of it mostly waits
LEAST_SHARE = 0.02  # of a core: each worker counts for at least this much, however little it computes
CROWDED_SHARE = 0.1  # of a batch's build time: report a longer wait for a free core
WORTH_SHARE = 0.1  # of the step: a worker that has only part of a core to itself must save that much
# Two threads on one physical core do about 1.3 times the work of one, so each takes 2 / 1.3 times as long. Whether the
# model and a worker share a core is unknown: a core of a virtual machine is often such a thread. On cores of their own
# they still share caches and memory bandwidth. So this is the worst case.
SHARED_CORE = 2 / 1.3
# How much model and workers slow each other down on a CPU. The middle is assumed if the slowdown was not measured.
WORST, EXPECTED, BEST = 1.0, 0.5, 0.0
SAMPLING = "the sampler stays in the main process"
RECEIVING = "receiving a ready batch takes that long"
CHEAPER = "make items cheaper: decode once and cache, use packed formats"
ON_GPU = ", move augmentation to the GPU"
FASTER = "read from faster storage (local NVMe or RAM), use larger packed files, or cache what was read"


class Left(Struct, frozen=True):
    """A part of the wait for data, ns per step, that remains, and why."""

    ns: float
    why: str


class LoaderPlan(Struct, frozen=True):
    """What is known about the training loader. Times are per step.

    `settings` and `cores` are what `traceopt run` recorded; `cores` is None if it did not.
    """

    multiprocess: bool
    wait_ns: float  # in `__next__`
    rest_ns: float  # of the step, without the stall
    fetches: float  # batches that a step reads
    settings: Loader
    cores: int | None  # for this rank
    threads: int  # that an operator of the model uses
    gpu: bool
    slowdown: float | None = None  # of computing while another process computes, as measured; None: not measured
    sampling_ns: float = 0.0  # of the wait: the sampler chooses the next batch, also for workers
    parallel_ns: float | None = None  # of the rest: operators keep all `threads` busy; None: unknown
    fresh: bool = False  # the loop makes a new iterator for each batch, which would start new workers

    @property
    def build_ns(self) -> float | None:
        """Time that one process takes to build the batches of a step."""
        if not self.multiprocess:
            return self.wait_ns - self.sampling_ns
        build = self.settings.build
        if build is not None:
            return build.batch_ns * self.fetches
        # If the queue runs empty, the workers deliver a batch per step: each takes as many steps as there are workers.
        workers = self.settings.num_workers
        return workers * (self.rest_ns + self.wait_ns) if workers else None

    @property
    def inline_ns(self) -> float | None:
        """Time that the training process would take to build what workers build for a step; None if nobody measured it
        in a worker.
        """
        build = self.settings.build if self.multiprocess else None
        return None if build is None else self.fetches * max(0.0, build.batch_ns - (build.core_wait_ns or 0.0))

    def relief_ns(self, contention: float) -> float:
        """How much shorter the rest of a step is without the workers that compute beside a model on the CPU."""
        slower = 0.0 if self.gpu else contention * (SHARED_CORE - 1)
        return slower / (1 + slower) * min(self.rest_ns, self._computing_ns)

    @property
    def needed(self) -> int | None:
        """Workers that deliver in time, plus one for batches that take longer."""
        return None if self.build_ns is None else math.ceil(self._average) + 1

    @property
    def _average(self) -> float:
        """Workers that are busy all the time if batches are to arrive in time."""
        return (self.build_ns or 0.0) / self.rest_ns

    @property
    def waits(self) -> bool:
        """Whether workers mostly wait for storage or the network; then more workers than cores help."""
        return self._computing is not None and self._computing < WAITING_SHARE

    @property
    def _computing(self) -> float | None:
        """CPU time of building a batch, as a share of its duration; None if not recorded."""
        return self.settings.build.computing_share if self.settings.build is not None else None

    @property
    def core_wait_share(self) -> float:
        """Share of a batch's build time in which the process was ready but no core was free; 0 if not recorded."""
        return self.settings.build.core_wait_share if self.settings.build is not None else 0.0

    @property
    def most(self) -> int | None:
        """Workers that the cores can run besides the main thread, which needs little of a core while it waits; None if
        the number of cores is unknown, or how much of a core the existing workers need. The last worker may have only
        a part of a core to itself, if it still saves `WORTH_SHARE` of the step.
        """
        if self.cores is None or (self.multiprocess and self._computing is None):
            return None
        computing = 1.0 if self._computing is None else max(self._computing, LEAST_SHARE)
        free = max(1.0, self.cores - self.rest_ns / (self.rest_ns + self._crowded_ns()))
        workers = free / computing
        whole = math.floor(workers)
        return whole + (1 - whole / workers >= WORTH_SHARE)

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
        """Whether the cores can run no more workers than there are, and these are too few."""
        now = self.settings.num_workers
        return not self.suffices and now is not None and self.most is not None and now >= self.most

    @property
    def keeps_up(self) -> bool:
        """Whether there are enough workers already, judged by the mean time to build a batch."""
        now = self.settings.num_workers
        return self.multiprocess and self.needed is not None and now is not None and self.needed <= now

    def left(self, receive_ns: float, contention: float) -> Left:
        """The part of the wait that remains with the wanted workers.

        `receive_ns`: the wait of a step to receive batches that are ready. `contention`: BEST to WORST, how much model
        and workers slow each other down while they compute side by side on a CPU.
        """
        sampling_ns = receive_ns + self.sampling_ns
        parts = [Left(sampling_ns, SAMPLING if self.sampling_ns > receive_ns else RECEIVING)]
        if self.build_ns is not None and self.wanted is not None:
            slower_ns = self._slower_ns(contention)
            delivery_ns = (self.build_ns + self._send_ns + slower_ns) / max(1, self.wanted) - self.rest_ns
            crowded_ns = self._crowded_ns(1 + contention * (self.threads - 1), receive_ns, self._slowing(contention))
            if contention == EXPECTED and self.parallel_ns is not None and self.threads > 1:
                crowded_ns = self._beyond_free_cores_ns(self._slowing(contention))
            few = f"{self.wanted} {'worker is' if self.wanted == 1 else 'workers are'} too few without cheaper items"
            model = "the main thread" if self.gpu else "the model"
            beside = f"the workers take CPU time, cache and memory bandwidth from {model}"
            parts += [
                Left(receive_ns + slower_ns, beside if slower_ns > receive_ns else RECEIVING),
                Left(crowded_ns, beside),
                Left(delivery_ns, few),
            ]
        longest = max(parts, key=lambda part: part.ns)
        first_ns = self._first_batch_ns(longest.ns)
        why = longest.why if longest.ns > first_ns else "workers begin to build batches when an epoch begins"
        return Left(min(self.wait_ns, max(0.0, longest.ns) + first_ns), why)

    def _first_batch_ns(self, others_ns: float) -> float:
        """How much longer the first batch of each epoch takes than the wait for the others, spread over the steps of an
        epoch. Waits for existing workers include it.
        """
        batches = 1.0 if self.fresh else self.settings.batches_per_epoch
        if self.multiprocess or not batches or self.build_ns is None:
            return 0.0
        return max(0.0, self.build_ns - max(0.0, others_ns)) / batches

    @property
    def _computing_ns(self) -> float:
        """CPU time of the workers in a step."""
        return (self.build_ns or 0.0) * (1.0 if self._computing is None else self._computing)

    @property
    def _send_ns(self) -> float:
        """Time of a worker to send the batches of a step, if it was measured."""
        return self.settings.hand_over.send_ns * self.fetches if self.settings.hand_over is not None else 0.0

    def _slowing(self, contention: float) -> float:
        """How much longer model and workers take while both compute, as a share, because they share the machine. The
        recorded times of existing workers include it.
        """
        if self.gpu or self.multiprocess:
            return 0.0
        if contention == EXPECTED and self.slowdown is not None:
            return min(self.slowdown, SHARED_CORE) - 1
        return contention * (SHARED_CORE - 1)

    def _slower_ns(self, contention: float) -> float:
        """How much longer model and workers take in a step, if each has a core."""
        return self._slowing(contention) * min(self.rest_ns, self._computing_ns)

    def _crowded_ns(self, threads: float = 1, receive_ns: float = 0.0, slowing: float = 0.0) -> float:
        """How much longer than without its stall a step takes if the cores run the workers and a model that keeps this
        many threads busy: with a GPU one, which launches or waits for it. 0 if unknown.
        """
        if self.cores is None or (self.multiprocess and self._computing is None):
            return 0.0
        model_ns = self.rest_ns * (1 if self.gpu else threads) + receive_ns
        work_ns = (model_ns + self._computing_ns + self._send_ns) * (1 + slowing)
        return max(0.0, work_ns / self.cores - self.rest_ns)

    def _beyond_free_cores_ns(self, slowing: float) -> float:
        """The workers' computing that no core is free for beside a model on the CPU. It makes the step longer by as
        much: an operator that divides its work among threads ends with the slowest of them.
        """
        if self.cores is None or self.parallel_ns is None or (self.multiprocess and self._computing is None):
            return 0.0
        threads = min(self.threads, self.cores)
        free_ns = (self.cores - 1) * self.rest_ns - (threads - 1) * min(self.parallel_ns, self.rest_ns)
        return max(0.0, (self._computing_ns + self._send_ns) * (1 + slowing) - free_ns)

    @property
    def advice(self) -> str:
        times = self._setting() + self._times()
        return f"{times[:1].upper()}{times[1:]}. {self._workers()}{self._build_time()}{self._keep()}{self._divide()}"

    def advice_without_workers(self, left: Left) -> str:
        """For a loop that builds its own batches, if workers would not make it faster."""
        times = self._setting() + self._times()
        return (
            f"{times[:1].upper()}{times[1:]}. Workers would not help: {ms(left.ns)} of the wait would remain, because "
            f"{left.why}. Instead, {CHEAPER}{ON_GPU if self.gpu else ''}.{self._keep()}"
        )

    @property
    def starts_often(self) -> bool:
        """Whether workers would be started for each epoch, which takes time that nobody measured."""
        return not self.multiprocess and (self.settings.rebuilt or self.fresh)

    def _keep(self) -> str:
        if self.fresh:
            return " The loop makes a new iterator for each batch: make it once, before the loop."
        if not self.starts_often:
            return ""
        return (
            " The script constructs a new DataLoader for each epoch, and a new one starts new workers: construct it "
            "once, outside the loop over epochs."
        )

    def _divide(self) -> str:
        if self.multiprocess or not self.settings.iterable:
            return ""
        return (
            " Each worker of an IterableDataset reads all of the data: divide it among them in __iter__, by "
            "torch.utils.data.get_worker_info()."
        )

    @property
    def edits(self) -> list[Edit]:
        """The arguments to add or change; empty if all are set already, or no arguments help."""
        if self.exhausted or (self.settings.iterable and not self.multiprocess):
            return []
        arguments = {}
        if not self.keeps_up:
            arguments["num_workers"] = "2 * current" if self.wanted is None else str(self.wanted)
        if not self.settings.persistent_workers:
            arguments["persistent_workers"] = "True"
        if (self.settings.prefetch_factor or 2) < 4:
            arguments["prefetch_factor"] = "4"
        if self.gpu and not self.settings.pin_memory:
            arguments["pin_memory"] = "True"
        return [SetArguments("DataLoader", arguments)] if arguments else []

    def _setting(self) -> str:
        """ "with num_workers=0 and 16 cores, "."""
        workers = 0 if not self.multiprocess else self.settings.num_workers
        known = [] if workers is None else [f"num_workers={workers}"]
        known += [] if self.cores is None else [f"{self.cores} {'core' if self.cores == 1 else 'cores'}"]
        return f"with {' and '.join(known)}, " if known else ""

    def _times(self) -> str:
        rest = f"without the wait the step takes {ms(self.rest_ns)}"
        if self.build_ns is None:
            return f"the loop waits {ms(self.wait_ns)} per step for data, and {rest}"
        batches = "a batch" if self.fetches < 1.5 else f"the {self.fetches:.0f} batches of a step"
        return f"building {batches} takes {ms(self.build_ns)}, and {rest}"

    def _workers(self) -> str:
        if self.needed is None:
            return "Raise num_workers if there are free CPU cores."
        if not self.suffices and not self.exhausted and not self._crowded_ns():
            count = "1 worker is" if self.most == 1 else f"{self.most} workers are"
            return f"{count} enough on average, and the free cores can run no more."
        if not self.suffices:
            enough = f"{self.needed} workers would hide this, but the free cores can run only {self.most}"
            use = "it" if self.most == 1 else "them"
            then = ", which already run. To save more," if self.exhausted else f". Use {use}, and"
            return f"{enough}{then} {FASTER if self.waits else CHEAPER + (ON_GPU if self.gpu else '')}."
        if self.keeps_up:
            return (
                f"{self.needed} workers are enough on average, and there are {self.settings.num_workers}. Some batches "
                "arrive late or take long to receive: prefetch more (prefetch_factor), and keep batches small."
            )
        given = "" if self.most is not None else ", if as many CPU cores are free"
        return f"{self.needed} workers are enough{given}."

    def _build_time(self) -> str:
        """How workers spend the time to build a batch; empty if that was not recorded."""
        build = self.settings.build
        if build is None or build.cpu_ns is None:
            return ""
        parts = [f"{percent(min(1.0, build.cpu_ns / build.batch_ns))} is computing"]
        if build.core_wait_share >= CROWDED_SHARE:
            parts.append(f"{percent(build.core_wait_share)} is waiting for a free core")
        if self.waits:
            parts.append("the rest is waiting for data")
        text = f" Of the build time, {', '.join(parts)}."
        return text + (f" To shorten it, {FASTER}." if self.waits and self.suffices and not self.keeps_up else "")
