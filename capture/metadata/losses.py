"""The losses of a run: the numbers that reach backward(), kept on their device and read when the run ends."""

from __future__ import annotations

from typing import Any

MOST = 2000  # backwards


class Losses:
    """Nothing here waits for the device before `document`."""

    def __init__(self) -> None:
        self._values: list[tuple[int, Any]] = []
        self._scale: Any = None
        self._unreadable = False

    def scaled(self, scale: Any) -> None:
        """The next loss was multiplied by this tensor of a GradScaler; None: it was not."""
        self._scale = scale

    def reached_backward(self, tensors: Any, step: int) -> None:
        """Keeps a loss of the given step. Tensors that hold more than one number are not losses."""
        scale, self._scale = self._scale, None
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) == 1 else tensors
        if self._unreadable or len(self._values) >= MOST or isinstance(loss, (list, tuple)):
            return
        try:
            if loss.numel() == 1:
                value = loss.detach().float().clone()
                self._values.append((step, value if scale is None else value / scale.to(value.device)))
        except Exception:  # a tensor subclass with behavior of its own
            self._unreadable = True

    def document(self) -> list[tuple[int, float]] | None:
        """Step and value of each loss; None if there is none or it cannot be read."""
        try:
            return [(step, float(value)) for step, value in self._values] or None
        except Exception:  # the device failed
            return None
