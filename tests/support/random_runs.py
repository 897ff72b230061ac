"""Runs of random actions of a host and its GPU."""

from __future__ import annotations

from hypothesis import strategies as st

from traceopt.analyzer.facts import Facts
from traceopt.testing import Machine

Action = tuple[str, int, int]
actions = st.lists(
    st.tuples(
        st.sampled_from(["work", "launch", "sync", "sync all", "copy", "other thread"]),
        st.integers(1, 400),
        st.sampled_from([7, 20]),
    ),
    min_size=1,
    max_size=25,
)


def run(program: list[list[Action]]) -> Facts:
    machine = Machine()
    for step in program:
        with machine.step():
            for action, us, stream in step:
                match action:
                    case "work":
                        machine.work(us)
                    case "launch":
                        machine.launch(us, stream)
                    case "other thread":
                        machine.launch(us, stream, tid=2)
                    case "sync":
                        machine.launch(us, stream)
                        machine.synchronize(stream)
                    case "sync all":
                        machine.synchronize()
                    case "copy":
                        machine.copy_to_host(us)
            machine.work(10)
    return machine.facts()
