"""Cases of the consumer protocol (KIP-848), and of commits by its members."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from protocol.ids import id_text
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.sync_group import SyncGroupRequest
from tests.replay.newer.conversation import Case, Talk

REBALANCE_MS: Final = 60_000
LONG: Final = "x" * 300
HUGE: Final = "y" * 30_000


def beat(group: str, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat; a join has what a join must have."""
    joins = {"rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": []} if epoch == 0 else {}
    return ConsumerGroupHeartbeatRequest(
        **{"group_id": group, "member_id": member, "member_epoch": epoch, **joins, **fields}
    )


def has(topic_id: UUID, *partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=list(partitions))]


def describe(*groups: str) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False)


def members_share_the_partitions(talk: Talk) -> None:
    topic = talk.topic("cg-shared", 4)
    group = "cg-shared"
    talk.ask("first joins", beat(group, "a", 0, subscribed_topic_names=["cg-shared"]))
    talk.ask("first reports", beat(group, "a", 1, topic_partitions=has(topic, 0, 1, 2, 3)))
    talk.ask("described alone", describe(group))
    talk.ask("second joins", beat(group, "b", 0, subscribed_topic_names=["cg-shared"]))
    talk.ask("described in between", describe(group))
    talk.ask("first has to give up", beat(group, "a", 1))
    talk.ask("first is told again", beat(group, "a", 1, topic_partitions=has(topic, 0, 1, 2, 3)))
    talk.ask("second waits", beat(group, "b", 2, topic_partitions=[]))
    talk.ask("first gives up", beat(group, "a", 1, topic_partitions=has(topic, 0, 1)))
    talk.ask("second gets", beat(group, "b", 2, topic_partitions=[]))
    talk.ask("described shared", describe(group))
    talk.ask("second leaves", beat(group, "b", -1))
    talk.ask("second is unknown", beat(group, "b", 2))
    talk.ask("first gets all", beat(group, "a", 2, topic_partitions=has(topic, 0, 1)))
    talk.ask("first leaves", beat(group, "a", -1))
    talk.ask("described empty", describe(group))


def wrong_epochs(talk: Talk) -> None:
    topic = talk.topic("cg-epochs", 2)
    group = "cg-epochs"
    talk.ask("joins", beat(group, "a", 0, subscribed_topic_names=["cg-epochs"]))
    talk.ask("a later epoch", beat(group, "a", 7))
    talk.ask("the epoch before, with nothing", beat(group, "a", 0, subscribed_topic_names=["cg-epochs"]))
    talk.ask("another joins", beat(group, "b", 0, subscribed_topic_names=["cg-epochs"]))
    talk.ask("moves", beat(group, "a", 1, topic_partitions=has(topic, 0)))
    talk.ask("the epoch before, with its own", beat(group, "a", 1, topic_partitions=has(topic, 0)))
    talk.ask("the epoch before, with more", beat(group, "a", 1, topic_partitions=has(topic, 0, 1)))
    talk.ask("the epoch before, without", beat(group, "a", 1))
    talk.ask("a lower one than -2", beat(group, "a", -3))
    talk.ask("a static leave of a dynamic member", beat(group, "a", -2))
    talk.ask("an unknown one beats", beat(group, "c", 3))
    talk.ask("an unknown one leaves", beat(group, "c", -1))
    talk.ask("in an unknown group", beat("cg-epochs-unknown", "a", 3))
    talk.ask("leaves an unknown group", beat("cg-epochs-unknown", "a", -1))
    talk.ask("described", describe(group, "cg-epochs-unknown"))
    talk.ask("joins again", beat(group, "a", 0, subscribed_topic_names=["cg-epochs"]))


def heartbeats_that_are_refused(talk: Talk) -> None:
    talk.topic("cg-refused", 2)
    names = ["cg-refused"]
    group = "cg-refused"
    for label, request in {
        "empty group": beat("", "a", 0, subscribed_topic_names=names),
        "blank group": beat("  ", "a", 0, subscribed_topic_names=names),
        "empty member": beat(group, "", 0, subscribed_topic_names=names),
        "empty member beats": beat(group, "", 1),
        "empty member leaves": beat(group, "", -1),
        "empty instance": beat(group, "a", 0, subscribed_topic_names=names, instance_id=""),
        "empty rack": beat(group, "a", 0, subscribed_topic_names=names, rack_id=""),
        "without timeout": beat(group, "a", 0, subscribed_topic_names=names, rebalance_timeout_ms=-1),
        "timeout of zero": beat(group, "t0", 0, subscribed_topic_names=names, rebalance_timeout_ms=0),
        "negative timeout": beat(group, "a", 0, subscribed_topic_names=names, rebalance_timeout_ms=-5),
        "without partitions": beat(group, "a", 0, subscribed_topic_names=names, topic_partitions=None),
        "with partitions": beat(group, "p", 0, subscribed_topic_names=names, topic_partitions=has(UUID(int=5), 0)),
        "without subscription": beat(group, "a", 0),
        "unknown assignor": beat(group, "a", 0, subscribed_topic_names=names, server_assignor="nobody"),
        "empty assignor": beat(group, "a", 0, subscribed_topic_names=names, server_assignor=""),
        "range": beat(group, "r", 0, subscribed_topic_names=names, server_assignor="range"),
        "no topics": beat("cg-no-topics", "a", 0, subscribed_topic_names=[]),
        "unknown topic": beat("cg-unknown-topic", "a", 0, subscribed_topic_names=["cg-nowhere"]),
        "an invalid topic name": beat("cg-invalid-topic", "a", 0, subscribed_topic_names=["a/b", ""]),
        "a topic twice": beat("cg-twice", "a", 0, subscribed_topic_names=names * 2),
        "static leave without instance": beat(group, "a", -2),
        "static leave": beat(group, "a", -2, instance_id="i"),
        "long ids": beat(f"cg-{LONG}", LONG, 0, subscribed_topic_names=names, instance_id=LONG, rack_id=LONG),
        "huge group id": beat(f"cg-{HUGE}", "a", 0, subscribed_topic_names=names),
        "huge member id": beat("cg-huge", HUGE, 0, subscribed_topic_names=names),
        "a member id with blanks": beat("cg-blanks", " a ", 0, subscribed_topic_names=names),
    }.items():
        talk.ask(label, request)
    made_up = talk.set_up(beat("cg-version-0", "", 0, subscribed_topic_names=names), 0)
    assert len(made_up.member_id) == len(id_text(UUID(int=0)))
    made_up.member_id = "made up"
    talk.keep("version 0 makes an id", made_up)
    talk.ask("a group with too many", beat(group, "m3", 0, subscribed_topic_names=names))
    talk.ask("one more", beat(group, "m4", 0, subscribed_topic_names=names))


def regular_expressions(talk: Talk) -> None:
    talk.topic("cg-regex-one", 1)
    talk.topic("cg-regex-two", 1)
    group = "cg-regex"
    for label, pattern in {
        "unclosed": "cg-(",
        "a look ahead": "cg(?=x)",
        "a back reference": "(a)\\1",
        "a thousand repetitions": "a{1001}",
        "repetitions of repetitions": "((a{100}){100}){100}",
        "a bad escape": "\\8",
    }.items():
        talk.ask(label, beat("cg-bad", "bad", 0, subscribed_topic_regex=pattern))
    talk.ask("empty", beat("cg-empty", "a", 0, subscribed_topic_regex=""))
    explodes = "(c|cg)*(g|cg)*-regex-(one|on|o)*e"
    talk.set_up(beat("cg-explodes", "a", 0, subscribed_topic_regex=explodes), until=_has_topics(1))
    joined = talk.set_up(beat(group, "a", 0, subscribed_topic_regex="cg-regex-(one|two)"), until=_has_topics(2))
    talk.keep("described", _without_epochs(talk.set_up(describe(group))))
    talk.ask("part of a name", beat("cg-part", "a", 0, subscribed_topic_regex="cg-regex-on"))
    talk.ask("both", beat("cg-both", "a", 0, subscribed_topic_names=["cg-regex-one"], subscribed_topic_regex="x.*"))
    names = ["cg-regex-one"]
    talk.set_up(beat(group, "a", joined.member_epoch, subscribed_topic_names=names, subscribed_topic_regex=""))
    talk.keep("a name instead", _without_epochs(talk.set_up(describe(group))))


def _without_epochs(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
    """Remove the epochs, which depend on whether an expression is looked up before or after a join."""
    for group in response.groups:
        group.group_epoch = group.assignment_epoch = 0
        for member in group.members:
            member.member_epoch = 0
    return response


def _has_topics(count: int) -> Any:
    return lambda response: response.assignment and len(response.assignment.topic_partitions) == count


def static_members(talk: Talk) -> None:
    topic = talk.topic("cg-static", 2)
    group, names = "cg-static", ["cg-static"]
    talk.ask("joins", beat(group, "a", 0, subscribed_topic_names=names, instance_id="i"))
    talk.ask("the instance again", beat(group, "b", 0, subscribed_topic_names=names, instance_id="i"))
    talk.ask("a dynamic one with its id", beat(group, "a", 1, topic_partitions=has(topic, 0, 1)))
    talk.ask("beats", beat(group, "a", 1, instance_id="i", topic_partitions=has(topic, 0, 1)))
    talk.ask("another id beats", beat(group, "b", 1, instance_id="i"))
    talk.ask("an unknown instance beats", beat(group, "a", 1, instance_id="j"))
    talk.ask("an unknown instance leaves", beat(group, "a", -2, instance_id="j"))
    talk.ask("another id leaves for a while", beat(group, "b", -2, instance_id="i"))
    talk.ask("leaves for a while", beat(group, "a", -2, instance_id="i"))
    talk.ask("described without", describe(group))
    talk.ask("beats after that", beat(group, "a", 1, instance_id="i"))
    talk.ask("comes back", beat(group, "b", 0, subscribed_topic_names=names, instance_id="i"))
    talk.ask("described with", describe(group))
    talk.ask("the old id", beat(group, "a", 1, instance_id="i"))
    talk.ask("the old id leaves", beat(group, "a", -1, instance_id="i"))
    talk.ask("leaves", beat(group, "b", -1, instance_id="i"))
    talk.ask("described at the end", describe(group))


def reports_that_make_no_sense(talk: Talk) -> None:
    topic = talk.topic("cg-reports", 2)
    group, names = "cg-reports", ["cg-reports"]
    talk.ask("joins", beat(group, "a", 0, subscribed_topic_names=names))
    talk.ask("an unknown topic id", beat(group, "a", 1, topic_partitions=has(UUID(int=7), 0)))
    talk.ask("unknown partitions", beat(group, "a", 1, topic_partitions=has(topic, 0, 1, 5)))
    talk.ask("negative partitions", beat(group, "a", 1, topic_partitions=has(topic, -1)))
    talk.ask("a partition twice", beat(group, "a", 1, topic_partitions=has(topic, 0, 0)))
    talk.ask("a topic twice", beat(group, "a", 1, topic_partitions=has(topic, 0) + has(topic, 1)))
    talk.ask("another timeout", beat(group, "a", 1, rebalance_timeout_ms=REBALANCE_MS * 2))
    talk.ask("another rack", beat(group, "a", 1, rack_id="r"))
    talk.ask("another assignor", beat(group, "a", 1, server_assignor="range"))
    talk.ask("an unknown assignor", beat(group, "a", 1, server_assignor="nobody"))
    talk.ask("the same subscription", beat(group, "a", 1, subscribed_topic_names=names))
    talk.ask("described", describe(group))
    talk.ask("no subscription", beat(group, "a", 1, subscribed_topic_names=[]))
    talk.ask("described without", describe(group))


def thousands_of_partitions(talk: Talk) -> None:
    topic = talk.topic("cg-many", 2)
    group = "cg-many"
    talk.ask("joins", beat(group, "a", 0, subscribed_topic_names=["cg-many"]))
    talk.ask("reports 10,000 partitions", beat(group, "a", 1, topic_partitions=has(topic, *range(10_000))))
    topics = [TopicPartitions(topic_id=UUID(int=number), partitions=[0]) for number in range(1, 10_000)]
    talk.ask("reports 10,000 topics", beat(group, "a", 1, topic_partitions=topics))
    names = [f"cg-many-{number}" for number in range(10_000)]
    talk.ask("subscribes to 10,000 topics", beat(group, "a", 1, subscribed_topic_names=names))


def commit(group: str, member: str, epoch: int, *topics: str, **fields: Any) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        **{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m", **fields}
                    )
                ],
            )
            for topic in topics
        ],
    )


def fetch(group: str, member: str | None = None, epoch: int = -1, **fields: Any) -> OffsetFetchRequest:
    topics = fields.pop("topics", None)
    asked = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=each, partition_indexes=[0, 1, 9]) for each in topics],
    )
    return OffsetFetchRequest(groups=[asked], **fields)


def _older_fetch(group: str, topic: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])


def commits_of_members(talk: Talk) -> None:
    talk.topic("cg-commits", 2)
    group, names = "cg-commits", ["cg-commits"]
    talk.ask("without the group", commit(group, "", -1, "cg-commits"))
    talk.ask("a member without the group", commit("cg-commits-unknown", "a", 1, "cg-commits"))
    talk.ask("an older member without the group", commit("cg-commits-unknown", "a", 1, "cg-commits"), 8)
    talk.ask("joins", beat(group, "a", 0, subscribed_topic_names=names))
    talk.ask("commits", commit(group, "a", 1, "cg-commits"))
    talk.ask("a later epoch", commit(group, "a", 2, "cg-commits"))
    talk.ask("an earlier epoch", commit(group, "a", 0, "cg-commits"))
    talk.ask("without an epoch", commit(group, "a", -1, "cg-commits"))
    talk.ask("an unknown member", commit(group, "z", 1, "cg-commits"))
    talk.ask("without a member", commit(group, "", -1, "cg-commits"))
    talk.ask("of an older client", commit(group, "a", 1, "cg-commits"), 8)
    talk.ask("a later epoch of an older client", commit(group, "a", 2, "cg-commits"), 8)
    talk.ask("an unknown member of an older client", commit(group, "z", 1, "cg-commits"), 8)
    talk.ask("an older client fetches", _older_fetch(group, "cg-commits"), 7)
    talk.ask("an unknown topic", commit(group, "a", 1, "cg-commits-nowhere"))
    talk.ask("an empty topic", commit(group, "a", 1, ""))
    talk.ask("an unknown partition", commit(group, "a", 1, "cg-commits", partition_index=7))
    talk.ask("a negative partition", commit(group, "a", 1, "cg-commits", partition_index=-1))
    talk.ask("a negative offset", commit(group, "a", 1, "cg-commits", committed_offset=-1))
    talk.ask("long metadata", commit(group, "a", 1, "cg-commits", committed_metadata="x" * 5000))
    talk.ask("no metadata", commit(group, "a", 1, "cg-commits", committed_metadata=None))
    talk.ask("no topics", commit(group, "a", 1))
    talk.ask("an empty group", commit("", "a", 1, "cg-commits"))
    talk.ask("an empty group of an older client", commit("", "a", 1, "cg-commits"), 8)
    talk.ask("an empty group without a member", commit("", "", -1, "cg-commits"))
    talk.ask("fetched", fetch(group, "a", 1, topics=names))
    talk.ask("fetched all", fetch(group, "a", 1))
    talk.ask("fetched with a later epoch", fetch(group, "a", 2, topics=names))
    talk.ask("fetched with an earlier epoch", fetch(group, "a", 0, topics=names))
    talk.ask("fetched by an unknown member", fetch(group, "z", 1, topics=names))
    talk.ask("fetched all by an unknown member", fetch(group, "z", 1))
    talk.ask("fetched without an epoch", fetch(group, "a", -1, topics=names))
    talk.ask("fetched without a member", fetch(group, topics=names))
    talk.ask("fetched with an epoch alone", fetch(group, None, 1, topics=names))
    talk.ask("fetched with an empty member", fetch(group, "", 1, topics=names))
    talk.ask("fetched of an unknown group", fetch("cg-commits-unknown", topics=names))
    talk.ask("fetched of an unknown group by a member", fetch("cg-commits-unknown", "a", 1, topics=names))
    talk.ask("fetched all of an unknown group by a member", fetch("cg-commits-unknown", "a", 1))
    talk.ask("fetched of an unknown topic", fetch(group, "a", 1, topics=["cg-commits-nowhere"]))
    talk.ask("fetched of an empty group id", fetch("", topics=names))
    talk.ask("fetched of no groups", OffsetFetchRequest(groups=[]))
    talk.ask("deleted of a subscribed topic", _forget(group, "cg-commits"))
    talk.ask("deleted of another topic", _forget(group, "cg-commits-nowhere"))
    talk.ask("the group cannot be deleted", DeleteGroupsRequest(groups_names=[group]))
    talk.ask("leaves", beat(group, "a", -1))
    talk.ask("commits after that", commit(group, "a", 1, "cg-commits"))
    talk.ask("a commit without a member", commit(group, "", -1, "cg-commits"))
    talk.ask("deleted", DeleteGroupsRequest(groups_names=[group, "cg-commits-unknown", ""]))
    talk.ask("described after that", describe(group))


def _forget(group: str, topic: str) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)])


def requests_of_the_classic_protocol(talk: Talk) -> None:
    talk.topic("cg-mixed", 2)
    group = "cg-mixed"
    talk.ask("joins", beat(group, "a", 0, subscribed_topic_names=["cg-mixed"]))
    talk.ask("a classic heartbeat of the member", HeartbeatRequest(group_id=group, generation_id=1, member_id="a"))
    talk.ask("a classic heartbeat of another", HeartbeatRequest(group_id=group, generation_id=1, member_id="z"))
    sync = {"group_id": group, "generation_id": 1, "assignments": [], "protocol_type": "consumer"}
    talk.ask("a classic sync of the member", SyncGroupRequest(member_id="a", protocol_name="range", **sync))
    talk.ask("a classic sync of another", SyncGroupRequest(member_id="z", protocol_name="range", **sync))
    talk.ask("a classic leave", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="z")]))
    talk.ask("described as classic", DescribeGroupsRequest(groups=[group], include_authorized_operations=False))
    for label, kind, metadata in (
        ("joins as a worker", "connect", b""),
        ("joins without a type", "", b""),
        ("joins with metadata that is none", "consumer", b"\x00"),
    ):
        talk.ask(label, _join(group, kind, metadata))
    talk.ask("joins with another name", _join(group, "consumer", b"", protocols=()))
    talk.ask("classic groups of this name", describe("cg-nothing"))


def _join(group: str, kind: str, metadata: bytes, protocols: tuple[str, ...] = ("range",)) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id="",
        group_instance_id="instance",
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name=each, metadata=metadata) for each in protocols],
    )


def descriptions_and_lists(talk: Talk) -> None:
    talk.topic("cg-listed", 1)
    talk.set_up(beat("cg-listed", "a", 0, subscribed_topic_names=["cg-listed"]))
    talk.set_up(commit("cg-listed-simple", "", -1, "cg-listed"))
    for label, groups in {
        "an empty id": [""],
        "none": [],
        "twice": ["cg-listed", "cg-listed"],
        "a simple group": ["cg-listed-simple"],
        "unknown": ["cg-listed-nothing"],
    }.items():
        talk.ask(f"described {label}", describe(*groups))
    for label, states, types in (
        ("stable consumer groups", ["Stable"], ["consumer"]),
        ("in lower case", ["stable"], ["CONSUMER"]),
        ("of an unknown state", ["Odd"], []),
        ("of an unknown type", [], ["odd"]),
        ("empty classic groups", ["Empty"], ["classic"]),
        ("assigning", ["Assigning", "Reconciling"], []),
        ("of share groups", [], ["share"]),
    ):
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        listed = talk.set_up(request)
        listed.groups = [each for each in listed.groups if each.group_id.startswith("cg-listed")]
        talk.keep(f"listed {label}", listed)


CASES: Final[tuple[Case, ...]] = (
    members_share_the_partitions,
    wrong_epochs,
    heartbeats_that_are_refused,
    regular_expressions,
    static_members,
    reports_that_make_no_sense,
    thousands_of_partitions,
    commits_of_members,
    requests_of_the_classic_protocol,
    descriptions_and_lists,
)
