"""ConsumerGroupHeartbeat is refused as a Kafka with ZooKeeper refuses it."""

from __future__ import annotations

from broker.handlers import consumer_group_heartbeat
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.groups.served import Served


async def test_heartbeat_gets_unsupported_version() -> None:
    served = await Served.up()
    sent = ConsumerGroupHeartbeatRequest(group_id="g", member_id="", member_epoch=0)
    assert (await served.ask(consumer_group_heartbeat, sent, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
