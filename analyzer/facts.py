"""Everything measured in one trace, each fact computed on first use from the tables. Rules read facts, never events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from traceopt.analyzer.call_sites import CallSites
from traceopt.analyzer.gpu import GpuWork
from traceopt.analyzer.host import Host
from traceopt.analyzer.idle import Gaps, Idle, attribute, find_gaps, slow_first_calls
from traceopt.analyzer.links import Links, link
from traceopt.analyzer.nesting import Slices, build_slices
from traceopt.analyzer.steps import Steps, find_steps
from traceopt.analyzer.syncs import Syncs, blocking_copies, find_syncs
from traceopt.analyzer.trace import Trace


@dataclass(frozen=True)
class Facts:
    """The facts of one trace."""

    trace: Trace

    @cached_property
    def steps(self) -> Steps:
        return find_steps(self.trace)

    @cached_property
    def slices(self) -> Slices:
        return build_slices(self.trace)

    @cached_property
    def links(self) -> Links:
        return link(self.trace, self.slices)

    @cached_property
    def call_sites(self) -> CallSites:
        return CallSites(self.trace, self.slices)

    @cached_property
    def gpu(self) -> GpuWork:
        return GpuWork(self.trace, self.steps.window)

    @cached_property
    def host(self) -> Host:
        return Host(
            self.trace,
            self.slices,
            {
                "host_sync": blocking_copies(self.trace, self.links),
                "module_load": slow_first_calls(self.gpu, self.gaps),
            },
        )

    @cached_property
    def gaps(self) -> Gaps:
        return find_gaps(self.gpu, self.links, self.steps)

    @cached_property
    def syncs(self) -> Syncs:
        return find_syncs(
            self.trace, self.slices, self.links, self.steps, self.gpu, self.gaps, self.host.rows_of("host_sync")
        )

    @cached_property
    def idle(self) -> Idle:
        return attribute(self.gaps, self.host, self.steps, self.syncs.refill_area)
