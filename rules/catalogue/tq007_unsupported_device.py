"""TQ007: the work ran on an accelerator that traceopt does not support."""

from __future__ import annotations

from traceopt.result.words.vendors import CPU
from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule


class UnsupportedDevice(Rule):
    """Looks for accelerators other than NVIDIA and AMD GPUs, and for GPUs that another profiler recorded: by categories
    of events (MTIA, Gaudi, Intel XPU, devices of the private-use backend), by names of processes (Ascend NPU, and the
    TPUs and GPUs of XProf), by operators that only run on Apple's MPS, and by the device of the parameters that
    `traceopt run` recorded.

    Why it matters: on such devices, different events count as work, and waits and peak rates differ. Rules made for
    CUDA and HIP would give plausible but wrong answers, so they stay off. Host-side rules still apply if they need no
    device.

    How to fix: use the vendor's own analyzer, or record the same job on a CUDA or ROCm GPU.

        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])   # ROCm as well

    When it is wrong: if a trace holds events of two kinds of devices, neither is analyzed. MPS is known by the backward
    of linear layers, which nested tensors on a CPU also have.

    Sources: Kineto's list of activity types.
    """

    code = "TQ007"
    name = "unsupported-device"
    title = "Analyze a trace from a CUDA or ROCm device"
    family = TRACE_QUALITY

    def check(self, facts: Facts) -> Findings:
        if (device := facts.device.unsupported) is None:
            return
        yield self.finding(
            why=(
                f"This trace was recorded on {device}. traceopt reads GPU work only from CUDA and ROCm devices, so it "
                "cannot say how busy the device was. Use the vendor's analyzer instead."
            ),
            fix=Fix("Record the job on a CUDA or ROCm GPU, or use the vendor's own analyzer."),
        )

    def passed(self, facts: Facts) -> str:
        if facts.device.vendor is CPU:
            return "The trace shows no accelerator."
        return f"{facts.device.name or 'The device'} is supported."
