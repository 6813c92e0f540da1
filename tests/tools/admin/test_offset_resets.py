"""Times and durations of resets."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tools.admin.group_actions.offset_resets import parse_datetime, parse_duration
from tools.base.command_line import UsageError


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2020-01-01T00:00:00.000", datetime(2020, 1, 1, tzinfo=UTC)),
        ("2020-01-01T12:30:15.250Z", datetime(2020, 1, 1, 12, 30, 15, 250_000, tzinfo=UTC)),
        ("2020-01-01T00:00:00.000+02:00", datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_datetimes_are_parsed(text: str, moment: datetime) -> None:
    assert parse_datetime(text) == moment


@pytest.mark.parametrize("text", ["2020-01-01", "now", "", "2020-13-01T00:00:00"])
def test_invalid_datetime_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="Error parsing timestamp"):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("P1D", timedelta(days=1)),
        ("PT1H30M", timedelta(hours=1, minutes=30)),
        ("P2DT3H4M5.5S", timedelta(days=2, hours=3, minutes=4, seconds=5.5)),
        ("-PT1M", timedelta(minutes=-1)),
        ("pt10s", timedelta(seconds=10)),
    ],
)
def test_durations_are_parsed(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1H", "P1W", "PT1", "P1DT"])
def test_invalid_duration_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="Error parsing duration"):
        parse_duration(text)
