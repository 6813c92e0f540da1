"""Sample data sets: complete, the same for one seed, and sent with their times."""

import json

import pytest

from spark_jobs import samples
from tests.spark_jobs.conftest import Topics, records


@pytest.mark.parametrize("name", samples.DATA_SETS)
def test_each_data_set_is_sent_to_a_topic(name: str, topics: Topics) -> None:
    topic = topics.create("samples", 1)
    flags = ["--bootstrap-servers", topics.bootstrap, "--data", name, "--output", topic, "--count", "50"]
    assert samples.main(flags) == 0
    sent = topics.read(topic)
    assert len(sent) >= 50
    times = [json.loads(str(value)).get("time") for _, value in records(sent[:50])] if name != "airports" else [None]
    if times[0] is not None:
        assert [message.timestamp()[1] for message in sent[:50]] == times


def test_the_packages_tables_are_complete() -> None:
    assert len(list(samples.airport_lines())) == 3_376
    assert len(list(samples.stock_prices())) == 560
    assert len(list(samples.weather())) == 1_461


def test_one_seed_gives_one_data_set() -> None:
    assert list(samples.trades(100, 1)) == list(samples.trades(100, 1)) != list(samples.trades(100, 2))
