"""What to do if a DataLoader's thread copies batches to pinned memory too slowly."""

from __future__ import annotations

from msgspec import Struct

from traceopt.analyzer.arrays.intervals import intersect
from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Fix
from traceopt.result.words.message import percent
from traceopt.rules.fixes.advice.loading.loader_plans import loader_rows
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import area_of, priced_host

MANY_TENSORS = 100  # per step: pinning them takes time for each call, more than for their bytes
PIN_LESS = Fix(
    "More workers do not help. Pin only what goes to the GPU, make batches smaller in bytes (16-bit or uint8 inputs), "
    "or compare with pin_memory=False.",
)
PACK = Fix(
    "More workers do not help: each tensor takes a call and an allocation of pinned memory. Pack the small tensors of "
    "a batch into few in collate_fn, and split them on the GPU. Pin only what goes to the GPU: keep the rest as NumPy "
    "arrays or lists of numbers. Or compare with pin_memory=False.",
    "def collate(items):\n"
    "    images, boxes = zip(*items)\n"
    "    return torch.stack(images), torch.cat(boxes), [len(one) for one in boxes]  # boxes.split(lengths) on the GPU",
)


class Pinning(Struct, frozen=True):
    """What a thread that pins batches does while the main thread waits for them."""

    wait_share: float  # of the main thread's time in the loader: it pins
    tensors: float  # that it pins per step

    @property
    def cause(self) -> str:
        count = f": {self.tensors:,.0f} tensors per step" if self.tensors else ""
        return f"In {percent(self.wait_share)} of that time, a thread copies batches to pinned memory{count}"

    @property
    def title(self) -> str:
        return "Pin fewer, larger tensors" if self.tensors >= MANY_TENSORS else "Pin less data per batch"

    @property
    def fix(self) -> Fix:
        return PACK if self.tensors >= MANY_TENSORS else PIN_LESS

    def saving(self, facts: Facts, wait_ns: float) -> Price:
        return priced_host(
            facts,
            area_of(facts, loader_rows(facts)),
            wait_ns,
            (0.0, 0.5 * self.wait_share, self.wait_share),
            "Assumes half of the wait in which the thread pins goes away. If workers are the next limit, nothing does; "
            "at most, all of it does.",
        )


def pinning_in_waits(facts: Facts) -> Pinning:
    regions, slices = facts.regions, facts.slices
    waits = area_of(facts, loader_rows(facts))
    pins = regions.area(regions.pinning & (slices.thread != facts.steps.thread))
    waits_ns, pinning_ns = (facts.steps.host_mean_ns(area) for area in (waits, intersect(waits, pins)))
    tensors = facts.steps.host_window.contains(slices.start[regions.pinned_tensors]).sum()
    return Pinning(pinning_ns / waits_ns if waits_ns else 0.0, float(tensors) / facts.steps.count)
