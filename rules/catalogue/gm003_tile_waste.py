"""GM003: matmuls with the same input run one after the other, each too small to fill the device."""

from __future__ import annotations

from traceopt.rules import Facts, Findings, Fix, Rule, each_step, ms, per_step, priced, threshold, times
from traceopt.rules.savings.work.merged_gemms import MergedGemms, as_one, describe, may_depend, merged, roofline

JOINED = "self.qkv = nn.Linear(hidden, 3 * hidden)"
LOADED = "self.qkv.weight = nn.Parameter(torch.cat([self.q.weight, self.k.weight, self.v.weight]))"


class TileWaste(Rule):
    """Measures matmuls that directly follow each other with the same M and K, such as projections of one input (query,
    key and value; gate and up), if each has fewer thread blocks than the device has multiprocessors.

    Why it costs: a matmul is cut into tiles, one per multiprocessor. If there are only a few tiles, most
    multiprocessors are idle, and the matmul takes as long as one tile. Merged, the tiles share the device, and the
    input is read once.

    How to fix: compute the projections with one weight.

        self.qkv = nn.Linear(hidden, 3 * hidden)
        q, k, v = self.qkv(x).chunk(3, dim=-1)

    A larger batch also fills the device.

    When it is wrong: two consecutive layers with nothing in between look the same if N equals K, so a pair of such
    matmuls is ignored. cuBLAS may choose another tile for the merged size, so the estimate counts part of the gain.

    Sources: NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantization.
    """

    code = "GM003"
    name = "tile-waste"
    title = "Merge projections of the same input"
    family = "matrix shapes"
    confidence = "medium"
    requires = ("gpu", "launches", "shapes")

    min_share: float = threshold(0.02, "smallest gain, as a share of the step, to report")
    low: float = threshold(0.4, "share of the gain, low")
    expected: float = threshold(0.8, "share of the gain, expected")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.gemm_calls) else "No matmul with a recorded shape in this trace."

    def check(self, facts: Facts) -> Findings:
        found = _merges(facts)
        count = facts.steps.count
        gain = sum(gemm.now_ns - gemm.starved_ns - gemm.merged_ns for gemm in found) / count
        if gain < self.min_share * facts.step_ns:
            return
        time = sum(gemm.now_ns - gemm.starved_ns for gemm in found) / count
        most = 1.5 if facts.trains else 1.0
        yield self.finding(
            why=(
                f"Matmuls with the same input, each too small to fill the GPU, run one after the other "
                f"{times(facts, len(found) / count)}. They take {ms(time)} of {each_step(facts)}; merged they "
                f"would take {ms(time - gain)}."
            ),
            saving=priced(
                facts,
                (self.low * gain, self.expected * gain, most * gain),
                as_one(facts, found, self.expected),
                "Assumes merged matmuls run in fewer waves of thread blocks, each as long as the longest now; bounded "
                f"by {roofline(facts, found)}. The backward pass adds at most half as much.",
                low=as_one(facts, found, self.low),
                high=as_one(facts, found, most),
            ),
            evidence=describe(facts, found),
            fix=Fix(
                "Compute the projections with one weight and split the result."
                if facts.trains
                else "Join the weights of the projections once, after loading them, and split the result.",
                f"{JOINED if facts.trains else LOADED}\nq, k, v = self.qkv(x).chunk(3, dim=-1)",
            ),
        )

    def passed(self, facts: Facts) -> str:
        gain = sum(merge.gain_ns for merge in _merges(facts)) / facts.steps.count
        return f"Merging matmuls with the same input would save {ms(gain)} {per_step(facts)}."


def _merges(facts: Facts) -> list[MergedGemms]:
    """Runs of matmuls with the same M and K, each too small for the device; GM004 covers long runs with the same N."""
    gemm_calls, units = facts.gemm_calls, facts.device.multiprocessors or 0
    sizes = gemm_calls.sizes
    alone = (sizes[:, 3] == 1) & (gemm_calls.blocks < units)
    runs = []
    for run in gemm_calls.runs(sizes[:, [0, 2, 3, 4]], 2):
        alike = len(run) >= 8 and (sizes[run, 1] == sizes[run[0], 1]).all()
        if alone[run].all() and not alike and (len(run) >= 3 or not may_depend(sizes[run])):
            runs.append(run)
    return [gemm for gemm in merged(facts, runs) if gemm.now_ns - gemm.starved_ns > gemm.merged_ns]
