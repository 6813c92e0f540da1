"""ConsumerGroupHeartbeat: a member gets its partitions, and Kafka's code and text for what makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.handlers.test_commits_in_a_row import begin_to_coordinate
from tests.support.in_process import InProcessBroker, running_broker

VERSIONS = range(2)
ID = "6sQ5dmfnQCGrfV1bY9J7Aw"


def joining(group: str, **values: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        **{
            "group_id": group,
            "member_id": ID,
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **values,
        }
    )


async def heartbeat(
    broker: InProcessBroker, request: ConsumerGroupHeartbeatRequest, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    response: ConsumerGroupHeartbeatResponse = await broker.ask(request, version)
    return response


@pytest_asyncio.fixture(autouse=True)
async def _coordinating(served: InProcessBroker) -> None:
    await begin_to_coordinate(served)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_joins_stays_and_leaves(served: InProcessBroker, name: str, version: int) -> None:
    joined = await heartbeat(served, joining(name, member_id=ID if version else ""), version)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 5000)
    assert joined.assignment is not None
    ((topic_id, numbers),) = [(each.topic_id, each.partitions) for each in joined.assignment.topic_partitions]
    assert numbers == [0, 1]
    assert joined.member_id == ID or not version
    request = ConsumerGroupHeartbeatRequest(
        group_id=name,
        member_id=joined.member_id or "",
        member_epoch=1,
        topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=[0, 1])],
    )
    stayed = await heartbeat(served, request, version)
    assert (stayed.error_code, stayed.member_epoch, stayed.assignment) == (0, 1, None)
    request.member_epoch = -1
    left = await heartbeat(served, request, version)
    assert (left.error_code, left.member_epoch) == (0, -1)


async def test_a_regular_expression_subscribes_to_all_topics_that_match(served: InProcessBroker, name: str) -> None:
    for topic in ("orders", "orders-2", "bills"):
        await served.create_topic(topic)
    joined = await heartbeat(
        served, joining(name, subscribed_topic_names=None, subscribed_topic_regex="orders(-[0-9])?")
    )
    assert joined.assignment is not None
    assert len(joined.assignment.topic_partitions) == 2


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        (
            {"rebalance_timeout_ms": -1},
            ErrorCode.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"topic_partitions": None},
            ErrorCode.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request.",
        ),
        (
            {"server_assignor": "sticky"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
        (
            {"subscribed_topic_regex": "a(b"},
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "SubscribedTopicRegex `a(b` is not a valid regular expression: missing ): a(b.",
        ),
        ({"member_epoch": 4}, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
async def test_what_makes_no_sense_gets_kafkas_code_and_text(
    served: InProcessBroker, values: dict[str, Any], code: ErrorCode, message: str
) -> None:
    response = await heartbeat(served, joining("g", **values))
    assert (ErrorCode(response.error_code), response.error_message) == (code, message)


async def test_offsets_are_fetched_with_the_epoch_of_a_member_or_without_any(
    served: InProcessBroker, name: str
) -> None:
    await heartbeat(served, joining(name))
    asked = {
        (None, -1): ErrorCode.NONE, (ID, 1): ErrorCode.NONE, (ID, 2): ErrorCode.STALE_MEMBER_EPOCH,
        ("other", 1): ErrorCode.UNKNOWN_MEMBER_ID,
    }  # fmt: skip
    for (member_id, epoch), expected in asked.items():
        group = OffsetFetchRequestGroup(group_id=name, member_id=member_id, member_epoch=epoch, topics=None)
        response = await served.ask(OffsetFetchRequest(groups=[group]), 9)
        assert response.groups[0].error_code == expected


async def test_a_broker_that_offers_the_classic_protocol_alone_refuses_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "classic", {"group.coordinator.rebalance.protocols": "classic"}) as broker:
        response = await heartbeat(broker, joining("g"), 0)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.UNSUPPORTED_VERSION), (9, ErrorCode.NONE)])
async def test_a_member_commits_with_its_epoch_alone(
    served: InProcessBroker, name: str, version: int, code: ErrorCode
) -> None:
    joined = await heartbeat(served, joining(name))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=name,
        member_id=ID,
        generation_id_or_member_epoch=joined.member_epoch,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    response = await served.ask(request, version)
    assert response.topics[0].partitions[0].error_code == code
