"""The conversion of a group: what is checked before members of the consumer protocol may join."""

from __future__ import annotations

import pytest

from broker.groups.machine.consumer.conversion import upgraded
from broker.groups.machine.events import JoinResult, MemberProtocol
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.machine.consumer.cluster import Client, Cluster, Ticket
from tests.broker.groups.support import Harness, join_request, protocols

OFFERS = (MemberProtocol("no subscription", b"\xff\xff"), *protocols("range"))


def test_a_group_with_malformed_metadata_under_a_protocol_it_has_not_chosen_is_not_upgraded() -> None:
    cluster, classic = Cluster(t=4), Harness()
    classic.join("a")
    classic.join("b", offers=OFFERS)
    classic.join("a", member_id="a-1")
    assert classic.group.protocol_name == "range"
    with pytest.raises(KafkaError) as caught:
        upgraded(classic.group, cluster.topics, cluster.settings)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_with_malformed_metadata_under_any_protocol_does_not_join() -> None:
    cluster, joining = Cluster(t=4), Ticket()
    Client(cluster, "a", "t").heartbeat()
    cluster.group.join(join_request("b", offers=OFFERS[::-1]), joining, cluster.moment)
    cluster.settle()
    assert joining.result == JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
