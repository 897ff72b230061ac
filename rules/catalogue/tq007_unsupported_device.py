"""TQ007: the work ran on an accelerator that traceopt does not understand."""

from __future__ import annotations

from typing import ClassVar

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Fix
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Findings, Rule


class UnsupportedDevice(Rule):
    """Looks for event categories of accelerators other than NVIDIA's and AMD's GPUs: MTIA, Gaudi, Intel XPU and devices
    of the private-use backend.

    Why it matters: what counts as work, what waits for what, and what the device could do are different there. Rules
    made for CUDA and HIP would give answers that look right and are not, so they stay off. Rules about the host's side
    still apply where they need no device.

    How to fix: use the vendor's own analyzer, or record the same job on a CUDA or ROCm GPU.

        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])   # ROCm as well

    When it is wrong: a trace that holds events of two kinds of devices is judged by neither.

    Sources: Kineto's list of activity types.
    """

    code: ClassVar[str] = "TQ007"
    name: ClassVar[str] = "unsupported-device"
    title: ClassVar[str] = "Analyze a trace of a CUDA or ROCm device"
    family: ClassVar[str] = TRACE_QUALITY

    def check(self, facts: Facts) -> Findings:
        if (device := facts.device.unsupported) is None:
            return
        yield self.finding(
            why=(
                f"This trace was recorded on {device}: traceopt reads GPU work of CUDA and ROCm devices alone, so it "
                "cannot say how busy the device was. Use the vendor's analyzer for it."
            ),
            fix=Fix("Record the job on a CUDA or ROCm GPU, or use the vendor's own analyzer."),
            saving=None,
            evidence=[],
        )

    def passed(self, facts: Facts) -> str:
        if facts.device.vendor == "cpu":
            return "No accelerator is in the trace."
        return f"{facts.device.name or 'The device'} is a supported device."
