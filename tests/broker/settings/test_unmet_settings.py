"""What a broker without others cannot meet is said with its consequence and what to set."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.settings.unmet_settings import NAMED_TOPICS_MAX, unmet_by_one_broker
from config.broker import BrokerConfig
from tests.support.in_process import running_broker

RIGHT = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def lines(settings: dict[str, str], **topics: dict[str, str]) -> list[str]:
    return list(unmet_by_one_broker(BrokerConfig.from_properties({**RIGHT, **settings}), topics))


def test_setting_that_one_broker_satisfies_is_not_reported() -> None:
    assert lines({}, t={"min.insync.replicas": "1"}) == []


@pytest.mark.parametrize(
    ("key", "consequence"),
    [
        ("offsets.topic.replication.factor", "consumer groups fail with COORDINATOR_NOT_AVAILABLE"),
        ("transaction.state.log.replication.factor", "transactions fail with COORDINATOR_NOT_AVAILABLE"),
        ("transaction.state.log.min.isr", "transactions fail with COORDINATOR_NOT_AVAILABLE"),
        ("default.replication.factor", "topics without a replication factor of their own cannot be created"),
        ("min.insync.replicas", "writes with acks=all fail with NOT_ENOUGH_REPLICAS"),
    ],
)
def test_each_setting_is_named_with_what_to_set(key: str, consequence: str) -> None:
    (line,) = lines({key: "2"})
    assert line.startswith(f"{key}=2 cannot be met by one broker: ")
    assert consequence in line
    assert line.endswith(f"; set {key}=1")


def test_defaults_count_as_well() -> None:
    named = [line.partition("=")[0] for line in unmet_by_one_broker(BrokerConfig.from_properties({}), {})]
    assert named == [
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    ]


def test_settings_of_internal_topics_that_exist_matter_no_more() -> None:
    config = BrokerConfig.from_properties({})
    assert list(unmet_by_one_broker(config, {"__consumer_offsets": {}, "__transaction_state": {}})) == []


def test_topics_that_cannot_be_written_to_are_named_in_one_line() -> None:
    (line,) = lines({}, __transaction_state={"min.insync.replicas": " 2"})
    assert "writes with acks=all to __transaction_state fail with NOT_ENOUGH_REPLICAS" in line
    assert "min.insync.replicas=1" in line
    many = {f"t{number:02}": {"min.insync.replicas": "3"} for number in range(NAMED_TOPICS_MAX + 2)}
    (line,) = lines({}, **many)
    assert "t09 and 2 more fail" in line


async def test_the_start_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}):
        pass
    warned = [record.message for record in caplog.records if "cannot be met by one broker" in record.message]
    assert [line.partition(" ")[0] for line in warned] == [
        "offsets.topic.replication.factor=3",
        "min.insync.replicas=2",
    ]
    assert {record.levelno for record in caplog.records if record.message in warned} == {logging.WARNING}
