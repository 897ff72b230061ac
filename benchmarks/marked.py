"""A part of a page that a benchmark writes, between `<!-- written by benchmarks/SCRIPT -->` and the end mark."""

from __future__ import annotations

END = "<!-- end -->\n"


def with_part(page: str, script: str, part: str) -> str:
    """The page with a new part of this script. Raises ValueError if the page has no place for it."""
    before, mark, rest = page.partition(f"<!-- written by benchmarks/{script} -->\n")
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no marks of benchmarks/{script}")
    return f"{before}{mark}{part.rstrip()}\n{end}{after}"
