"""The facts of a trace: a file for each subject, with what it needs of the rooms that measure. A fact asks by name for
others of its own subject and of those below: recording, timeline, attribution, replay, work, autograd, communication,
memory.
"""

from traceopt.analyzer.facts.facts import Facts

__all__ = ["Facts"]
