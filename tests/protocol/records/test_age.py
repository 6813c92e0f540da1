"""The age of a record, and timestamps without one."""

import pytest

from protocol.records.age import AHEAD_MAX_MS, EARLIEST_MS, age_ms

NOW_MS = 1_795_228_739_867


@pytest.mark.parametrize(
    ("timestamp_ms", "age"),
    [
        (NOW_MS - 5, 5),
        (NOW_MS, 0),
        (NOW_MS + AHEAD_MAX_MS, 0),
        (EARLIEST_MS, NOW_MS - EARLIEST_MS),
        (NOW_MS + AHEAD_MAX_MS + 1, None),
        (EARLIEST_MS - 1, None),
        (-1, None),
        (NOW_MS // 1000, None),
        (NOW_MS * 1000, None),
    ],
)
def test_a_timestamp_has_an_age_if_it_is_plausible(timestamp_ms: int, age: int | None) -> None:
    assert age_ms(timestamp_ms, NOW_MS) == age
