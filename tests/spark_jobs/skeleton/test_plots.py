"""Results are drawn from the last values of the output topic."""

import json
from pathlib import Path

import pytest

from spark_jobs import audit, country_count, inventory, late_events, minmax, stock_stats, top10, wordcount
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.pictures import Picture
from spark_jobs.skeleton.plots import last_values, plot, save
from tests.spark_jobs.conftest import Sent, Topics

WINDOW = "2013-01-01T00:00:00.000Z"
RESULTS = {
    "wordcount": (wordcount.JOB, {f"w{number}": str(number) for number in range(40)}),
    "country_count": (country_count.JOB, {"DE": {"country": "DE", "customers": 2}}),
    "inventory": (inventory.JOB, {"item|a": {"stock": 3}, "bank": {"balance": -4.5, "transactions": 1}}),
    "stock_stats": (stock_stats.JOB, {"I|0": {"ticker": "I", "window": WINDOW, "average_price": 1.5}}),
    "minmax": (minmax.JOB, {f"I|{y}": {"symbol": "I", "period": y, "min": 1, "max": 2} for y in ("2000", "2001-02")}),
    "top10": (top10.JOB, {"2013-01-01": [{"rank": 1, "symbol": "I", "gain": 0.25}]}),
    "late_events": (late_events.JOB, {"k|0": {"key": "k", "window": WINDOW, "events": 2}}),
    "audit": (audit.JOB, {"t|0": {"topic": "t", "bucket": "2013-01-01T00:00:00Z", "missing": 1}}),
}


@pytest.mark.parametrize(("job", "values"), RESULTS.values(), ids=RESULTS)
def test_each_result_becomes_a_picture(job: Job[object], values: dict[str, object], tmp_path: Path) -> None:
    assert job.draw is not None
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    save(job.draw(texts), tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_the_last_value_of_each_key_is_drawn(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("values", 2)
    topics.send(
        topic, [Sent(b"1", b"a"), Sent(b"2", b"a"), Sent(b"3", b"b", 1), Sent(b"4"), Sent(b"5", b"c"), Sent(None, b"c")]
    )
    assert last_values(topics.client, topic) == {"a": "2", "b": "3"}
    drawn = []

    def draw(values: object) -> Picture:
        drawn.append(values)
        return Picture("t", "u", bars={"a": 1.0})

    plot(topics.client, topic, draw, tmp_path / "picture.png")
    assert drawn == [{"a": "2", "b": "3"}]
    with pytest.raises(JobError, match="has no records with a key"):
        plot(topics.client, topics.create("empty"), draw, tmp_path / "picture.png")
