"""The function that Python calls at each call and return of a thread: `sys.setprofile`, or cProfile before Python 3.12.

To record Python frames, torch replaces it, and removes it at the end whoever has set it. A function of the script that
torch has replaced or removed is given back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def script_has_one() -> bool:
    """Whether the script profiles this thread. Call it while torch does not record frames."""
    return sys.getprofile() is not None


class ProfileFunction:
    """The profile function of the thread of a profiler session."""

    def __init__(self) -> None:
        self._of_torch: Any = None
        self._of_script: Any = None  # as long as torch's has its place

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Torch may set or remove a profile function in the block."""
        before: Any = sys.getprofile()
        if before is not self._of_torch:
            self._of_script = before
        try:
            yield
        finally:
            after: Any = sys.getprofile()
            self._of_torch = after if after is not self._of_script else None

    def give_back(self) -> None:
        """To call when torch records no longer."""
        function, self._of_script = self._of_script, None
        if function is None or sys.getprofile() is function:
            return
        if hasattr(function, "enable"):  # cProfile: its open calls have ended unseen
            function.disable()
            function.enable()
        elif callable(function):  # a profiler written in C cannot be set again
            sys.setprofile(function)

    def remove(self) -> None:
        """Removes torch's, in a forked child."""
        if self._of_torch is not None and sys.getprofile() is self._of_torch:
            sys.setprofile(None)
