"""ConsumerGroupDescribe is refused for each group as a Kafka with ZooKeeper refuses it."""

from __future__ import annotations

from broker.handlers import consumer_group_describe
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.broker.groups.served import Served


async def test_each_group_gets_unsupported_version() -> None:
    served = await Served.up()
    sent = ConsumerGroupDescribeRequest(group_ids=["g", "h"], include_authorized_operations=False)
    response = await served.ask(consumer_group_describe, sent, 0)
    assert [
        (each.error_code, each.error_message, each.group_id, each.group_state, each.members, each.authorized_operations)
        for each in response.groups
    ] == [(ErrorCode.UNSUPPORTED_VERSION, None, name, "", [], -(2**31)) for name in "gh"]
