"""TQ012 busy-machine: record on an idle machine."""

from __future__ import annotations

import pytest
from support.findings import document_of
from support.recorded_facts import generated


@pytest.mark.parametrize(("threads", "noted"), [(2, True), (20, False)])
def test_fires_on_other_programs_and_is_silent_on_the_job_itself(threads: int, noted: bool) -> None:
    """It makes all numbers less sure."""
    quality = document_of(generated("cpu_contention", threads=threads)).quality
    text = "the main thread was ready but waited for a free one for 30% of the run."
    assert any(note.code == "TQ012" and text in note.text for note in quality.notes) is noted
    assert (quality.verdict == "limited") is noted
