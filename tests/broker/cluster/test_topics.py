"""Internal topics that cannot be created: the log says why and what to set, and not once a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cluster.topics import FAILURE_REPORT_INTERVAL_MS
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.manual_clock import ManualClock

UNMET = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "2"}


async def find_coordinator(broker: InProcessBroker, key_type: int = 0) -> ErrorCode:
    response = await broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type))
    return ErrorCode(response.coordinators[0].error_code)


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.message.startswith("internal topic")]


async def test_report_contains_the_cause_and_the_setting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, UNMET) as broker:
        assert await find_coordinator(broker) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await find_coordinator(broker, key_type=1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    of_groups, of_transactions = reports(caplog)
    assert of_groups == (
        "internal topic __consumer_offsets cannot be created: INVALID_REPLICATION_FACTOR: "
        "Replication factor: 3 larger than available brokers: 1; "
        "set offsets.topic.replication.factor=1 (it is 3) or start more brokers"
    )
    assert of_transactions == (
        "internal topic __transaction_state cannot be created: INVALID_REPLICATION_FACTOR: "
        "Replication factor: 2 larger than available brokers: 1; "
        "set transaction.state.log.replication.factor=1 (it is 2) or start more brokers"
    )


async def test_reports_are_a_minute_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, UNMET, clock=clock) as broker:
        for _ in range(5):
            await find_coordinator(broker)
        clock.advance(FAILURE_REPORT_INTERVAL_MS - 1)
        await find_coordinator(broker)
        assert len(reports(caplog)) == 1
        clock.advance(1)
        await find_coordinator(broker)
    assert len(reports(caplog)) == 2
    assert "cannot be created (5 more attempts failed since the last report): " in reports(caplog)[1]


async def test_created_topic_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker:
        assert await find_coordinator(broker) is ErrorCode.NONE
    assert reports(caplog) == []


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_a_creation_that_fails_is_a_result_of_its_topic_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: ErrorCode, code: ErrorCode
) -> None:
    """The controller may have resigned with the creation in its queue."""
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("present")

        async def create_topics(*_arguments: object, **_options: object) -> None:
            raise KafkaError(raised)

        monkeypatch.setattr(broker.services.topics._controller, "create_topics", create_topics)
        names = [MetadataRequestTopic(name=name) for name in ("present", "missing")]
        response = await broker.ask(MetadataRequest(topics=names, allow_auto_topic_creation=True))
        assert [node.node_id for node in response.brokers] == [0]
        assert {topic.name: topic.error_code for topic in response.topics} == {"present": 0, "missing": code}
