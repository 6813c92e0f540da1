"""Times of delegation tokens, whose limits may be any number of milliseconds."""

import pytest

from tools.admin.delegation_tokens import _date


@pytest.mark.parametrize("timestamp_ms", [253_402_214_400_001, (1 << 63) - 1])
def test_a_time_beyond_the_dates_is_printed_as_its_number(timestamp_ms: int) -> None:
    assert _date(timestamp_ms) == str(timestamp_ms)
    assert _date(1_795_228_739_867).startswith("2026-11-2")
