"""Lists of ranks as text: "rank 3", "ranks 0-2 and 7"."""

from __future__ import annotations

from collections.abc import Sequence, Sized

MAX_RUNS = 6  # more runs of ranks than this are cut


def ranks_text(ranks: Sequence[int]) -> str:
    """ "rank 3"; "ranks 0-2 and 7". Of very many it names the first."""
    if len(ranks) == 1:
        return f"rank {ranks[0]:,}"
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    if len(texts) > MAX_RUNS:
        shown = sum(len(run) for run in runs[:MAX_RUNS])
        texts = [*texts[:MAX_RUNS], f"{len(ranks) - shown:,} more"]
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else f"ranks {texts[0]}"


def are(ranks: Sized) -> str:
    """The verb after a number of ranks."""
    return "is" if len(ranks) == 1 else "are"
