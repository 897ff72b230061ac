"""RH001: something lowers the clocks of the GPU while it works."""

from __future__ import annotations

from traceopt.analyzer.companions.gpu_samples.samples import (
    DRIVER_THERMAL,
    HARDWARE_THERMAL,
    POWER_LIMIT,
    REASONS,
    USER_CLOCKS,
    Gpu,
)
from traceopt.result.words.vendors import Vendor
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    counted,
    median,
    percent,
    required,
    threshold,
)


class CappedClocks(Rule):
    """Measures the clock of the GPU, and the reason why it is not higher. `traceopt run` samples both with NVML or AMD
    SMI once a second. Only samples in which the GPU is busy count. Counters in a trace of PyTorch 2.15
    (`CuspyConfig(enable_environment_counters=True)`) have the clock without a reason. There, the highest clock of the
    recording is what the others are compared with.

    Why it costs: kernels that compute take longer in proportion to the clock. In a job with several GPUs, the slowest
    one sets the pace.

    How to fix: look at the reason. Temperature: check the cooling. Power limit or power brake: check the limit and the
    supply of the server. Clocks set by the user: reset them.

        nvidia-smi -q -d CLOCK,POWER,PERFORMANCE
        nvidia-smi --reset-gpu-clocks

    When it is wrong: a large GPU in full use reaches its power limit by design, so this limit counts only if the clock
    is far below its maximum. Clocks are locked on purpose in benchmarks and by profilers of hardware counters. This
    rule is built from the documentation of NVML and AMD SMI. AMD GPUs before MI300 report no reasons.

    Sources: NVIDIA, NVML API reference, "NvmlClocksEventReasons"; AMD SMI documentation, "GPU violations".
    """

    code = "RH001"
    name = "capped-clocks"
    title = "Find out what lowers the clocks of the GPU"
    family = "run health"
    effort = Effort.DEPENDS
    risk = Risk.OTHER
    risk_note = "More heat and power"
    confidence = "medium"
    requires = ("gpu_clocks",)
    needs_trace = False

    min_share: float = threshold(0.3, "smallest share of the busy samples with a lowered clock")
    max_clock: float = threshold(0.85, "highest median clock to report, as a share of the GPU's maximum")
    min_samples: int = threshold(10, "fewest samples of a busy GPU")

    def check(self, facts: Facts) -> Findings:
        for gpu in required(facts.gpu_samples).of_run:
            bits = [bit for bit in REASONS if gpu.share_limited(bit) >= self.min_share]
            clock = gpu.clock_share(sum(bits))
            if len(gpu.busy) < self.min_samples or clock is None or clock > self.max_clock:
                continue
            main = max(bits, key=gpu.share_limited, default=None)
            yield self.finding(
                why=f"GPU {gpu.index} ({gpu.name}) runs at {percent(clock)} of its highest clock. {_reason(gpu, main)}",
                fix=Fix(_fix(main, gpu.vendor)),
                evidence=[
                    Evidence(REASONS[bit], detail=f"{percent(gpu.share_limited(bit))} of the busy samples")
                    for bit in bits
                ]
                + _hottest(gpu)
                + _power(gpu),
            )

    def passed(self, facts: Facts) -> str:
        count = len(required(facts.gpu_samples).of_run)
        return f"No lowered clocks in the samples of {counted(count, 'GPU')}."


def _reason(gpu: Gpu, main: int | None) -> str:
    if main is None:
        return "The counters in the trace do not say why."
    return f"Reason in {percent(gpu.share_limited(main))} of the busy samples: {REASONS[main]}."


def _hottest(gpu: Gpu) -> list[Evidence]:
    known = [sample.celsius for sample in gpu.busy if sample.celsius is not None]
    return [Evidence("Highest temperature", detail=f"{max(known)} °C")] if known else []


def _power(gpu: Gpu) -> list[Evidence]:
    watts = [sample.power_w for sample in gpu.busy if sample.power_w is not None]
    if not watts:
        return []
    limit = f", limit {gpu.power_limit_w:,.0f} W" if gpu.power_limit_w is not None else ""
    return [Evidence("Power while busy", detail=f"{median(watts):,.0f} W{limit}")]


def _fix(reason: int | None, vendor: Vendor) -> str:
    if reason is None:
        return "Find the reason while the job runs: nvidia-smi -q -d CLOCK,POWER,PERFORMANCE."
    if reason in (DRIVER_THERMAL, HARDWARE_THERMAL):
        return "Check the cooling of this GPU: fans, air flow, neighbors."
    if reason == USER_CLOCKS:
        return "Reset the clocks with nvidia-smi --reset-gpu-clocks and --reset-applications-clocks."
    if reason == POWER_LIMIT:
        command = "" if vendor.power_command is None else f" ({vendor.power_command})"
        return f"Compare the power limits of the GPUs{command}."
    return "Check the power supply and the cooling of the server (nvidia-smi -q -d PERFORMANCE)."
