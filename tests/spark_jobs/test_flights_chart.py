"""The chart is drawn from any table: a year, one day, days without departures."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from spark_jobs import flights_chart
from spark_jobs.flights_chart import DailyDelay

FIRST = date(2013, 1, 1)
TABLES = {
    "one day": [DailyDelay("UA", FIRST, 10, 1, 5.0, 60.0)],
    "nothing cancelled": [DailyDelay("UA", FIRST, 10, 0, 5.0, 60.0), DailyDelay("AA", FIRST, 9, 0, -2.0, 1.5)],
    "all cancelled": [DailyDelay("UA", FIRST, 3, 3, None, None)],
    "a day without flights": [DailyDelay("UA", FIRST + timedelta(days=n), 9, n, 1.0, 9.0) for n in (0, 1, 3)],
    "an unknown carrier": [DailyDelay("??", FIRST, 1, 0, 0.0, 0.0)],
    "a year": [DailyDelay("UA", FIRST + timedelta(days=n), 100, n % 50, 1.0, float(n)) for n in range(365)],
}


@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES)
def test_a_table_is_drawn_as_a_picture(rows: list[DailyDelay], tmp_path: Path) -> None:
    image = tmp_path / "folder" / "chart.png"
    flights_chart.render(rows, image)
    content = image.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert int.from_bytes(content[16:20], "big") == 1800


def test_a_folder_without_a_table_is_rejected_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        flights_chart.main(["--parquet", str(tmp_path), "--image", str(tmp_path / "chart.png")])
    assert exit_.value.code == 2
    assert f"{tmp_path} has no batch" in capsys.readouterr().err
