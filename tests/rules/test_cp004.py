"""CP004 onednn-off: switch oneDNN on."""

from __future__ import annotations

import pytest
from support.cpu_work import BF16, convolution, facts, finding, matmul, silent


class TestOneDnn:
    """CP004."""

    def test_fires_if_switched_off(self) -> None:
        off = BF16 | {"mkldnn": True, "mkldnn_enabled": False}
        assert finding("CP004", facts(convolution(100, 5_000), cpu=off)).saving is None
        assert silent("CP004", facts(matmul(100, 5_000), cpu=off))

    @pytest.mark.parametrize("state", [{"mkldnn": True, "mkldnn_enabled": True}, {"mkldnn": False}, {}])
    def test_silent_if_switched_on_or_unknown(self, state: dict[str, bool]) -> None:
        assert silent("CP004", facts(convolution(100, 5_000), cpu=BF16 | state))
