"""The part of the result document about the start-up of the run."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location


class StartUpLineRow(Struct, frozen=True):
    """A line of the user's code in a part of the start-up."""

    location: Annotated[Location, note("line of the user's code")]
    us: Annotated[float, note("time of the part on this line", "us")]
    package: Annotated[str | None, note("package that the line imports; null: it imports none, or it is not known")]


class StartUpPartRow(Struct, frozen=True):
    """A part of the start-up; the parts add up to it."""

    name: Annotated[
        Literal[
            "imports",
            "downloads",
            "data",
            "model",
            "checkpoint",
            "device",
            "process_group",
            "compilation",
            "first_batch",
            "first_step",
            "other",
            "python",
            "unsampled",
        ],
        note(
            '"first_step": forward, backward and optimizer up to the end of step 0; "other": code of the user that '
            'does none of these; "python": before the script; "unsampled": not seen by the sampler'
        ),
    ]
    label: Annotated[str, note("the part in words")]
    us: Annotated[float, note("its time", "us")]
    share: Annotated[float, note("part of the start-up", "share")]
    lines: Annotated[
        list[StartUpLineRow],
        note("lines of the user's code, longest first; at most 5; below 1% of the start-up only the first"),
    ]


class StartUpSection(Struct, frozen=True):
    """From the creation of the process to the end of its first step."""

    us: Annotated[float, note("its time", "us")]
    run_share: Annotated[float | None, note("part of the run; null: the run was stopped early", "share")]
    notable: Annotated[bool, note("whether it takes more than a tenth of the recorded run")]
    rank: Annotated[
        int | None,
        note("rank that takes longest, not counting the process group, where ranks wait for each other; null: no rank"),
    ]
    interval_us: Annotated[float, note("time between two samples; parts are not more exact than this", "us")]
    parts: Annotated[list[StartUpPartRow], note("where the time goes, longest first")]
