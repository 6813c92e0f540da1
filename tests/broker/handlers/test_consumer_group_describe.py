"""ConsumerGroupDescribe: groups of the consumer protocol with their members."""

from __future__ import annotations

from pathlib import Path

from broker.security.acls import Acl, Operation, Pattern, Permission, ResourceType
from config.broker_properties import AUTHORIZERS
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from tests.broker.handlers.test_commits_in_a_row import begin_to_coordinate
from tests.broker.handlers.test_consumer_group_heartbeat import ID, heartbeat, joining
from tests.support.in_process import InProcessBroker, running_broker


async def test_a_group_is_described_with_what_its_members_have(served: InProcessBroker, name: str) -> None:
    await begin_to_coordinate(served)
    await heartbeat(served, joining(name, instance_id="i", rack_id="r"))
    sent = ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=True)
    (group,) = (await served.ask(sent, 1)).groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        0, "Stable", 1, 1, "uniform",
    )  # fmt: skip
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch, member.member_type) == (
        ID, "i", "r", 1, 1,
    )  # fmt: skip
    assert (member.client_id, member.subscribed_topic_names) == (member.client_id, ["t"])
    for assignment in (member.assignment, member.target_assignment):
        assert [(each.topic_name, each.partitions) for each in assignment.topic_partitions] == [("t", [0, 1])]
    described = await served.ask(DescribeGroupsRequest(groups=[name]), 5)
    assert described.groups[0].group_state == "Dead"
    for types, expected in ((["consumer"], [name]), (["classic"], [])):
        listed = await served.ask(ListGroupsRequest(states_filter=["stable"], types_filter=types), 5)
        assert [each.group_id for each in listed.groups] == expected


async def test_groups_that_are_not_of_the_protocol_are_not_found(served: InProcessBroker) -> None:
    await begin_to_coordinate(served)
    sent = ConsumerGroupDescribeRequest(group_ids=["nobody"], include_authorized_operations=False)
    (group,) = (await served.ask(sent, 0)).groups
    assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody not found.")


async def test_a_broker_that_offers_the_classic_protocol_alone_refuses_each_group(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"group.coordinator.rebalance.protocols": "classic"}) as broker:
        sent = ConsumerGroupDescribeRequest(group_ids=["g", "h"], include_authorized_operations=False)
        response = await broker.ask(sent, 0)
        assert [(each.error_code, each.error_message, each.group_id, each.members) for each in response.groups] == [
            (ErrorCode.UNSUPPORTED_VERSION, None, name, []) for name in "gh"
        ]


async def test_a_group_is_hidden_from_clients_that_may_not_describe_its_topics(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:admin"}
    async with running_broker(tmp_path, settings) as broker:
        stranger, broker.channel.principal = broker.channel.principal, "User:admin"
        await begin_to_coordinate(broker)
        await heartbeat(broker, joining("g"))
        describe = Acl(stranger, "*", Operation.DESCRIBE, Permission.ALLOW)
        sent = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        for pattern, code, member_count in (
            (Pattern(ResourceType.GROUP, "g"), ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0),
            (Pattern(ResourceType.TOPIC, "t"), ErrorCode.NONE, 1),
        ):
            await broker.services.acls.create([(pattern, describe)])
            broker.channel.principal = stranger
            (group,) = (await broker.ask(sent, 1)).groups
            assert (group.error_code, len(group.members)) == (code, member_count)
            assert "t" not in (group.error_message or "").split()
