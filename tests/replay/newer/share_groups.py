"""Cases of share groups (KIP-932): members, sessions, acknowledgements, start offsets and stored states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, uuid5

from protocol.ids import id_text
from protocol.messages.alter_share_group_offsets import AlteredPartition, AlteredTopic, AlterShareGroupOffsetsRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_share_group_offsets import DeletedTopic, DeleteShareGroupOffsetsRequest
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestedGroup,
    RequestedTopic,
)
from protocol.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from protocol.messages.share_group_describe import ShareGroupDescribeRequest
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.replay.newer.conversation import GROUP_RESOURCE, Case, Talk

GAP, ACCEPT, RELEASE, REJECT = range(4)
UNKNOWN: Final = UUID(int=7)
LONG: Final = "x" * 300
FETCHES_MAX: Final = 20
"""How often a member fetches: Kafka may respond with nothing while a partition is loaded, or its state is stored."""

Said = tuple[int, int, Sequence[int]]
"""An acknowledgement: first offset, last offset, types."""


def member_id(name: str) -> str:
    """Return the id of a member: Kafka's leaders of partitions serve none that is not a UUID."""
    return id_text(uuid5(NAMESPACE_OID, name)) if name else ""


def beat(group: str, member: str, epoch: int, **fields: Any) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        **{"group_id": group, "member_id": member_id(member), "member_epoch": epoch, **fields}
    )


def describe(*groups: str) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False)


def fetch(
    group: str, member: str, epoch: int, topic: UUID | None = None, *said: Said, **fields: Any
) -> ShareFetchRequest:
    partition = FetchPartition(partition_index=fields.pop("partition", 0), acknowledgement_batches=_batches(said))
    return ShareFetchRequest(
        **{
            "group_id": group,
            "member_id": member_id(member),
            "share_session_epoch": epoch,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_records": 500,
            "batch_size": 500,
            "topics": [] if topic is None else [FetchTopic(topic_id=topic, partitions=[partition])],
            "forgotten_topics_data": [],
            **fields,
        }
    )


def acknowledge(
    group: str, member: str, epoch: int, topic: UUID | None = None, *said: Said, partition: int = 0
) -> ShareAcknowledgeRequest:
    told = AcknowledgePartition(partition_index=partition, acknowledgement_batches=_batches(said))
    topics = [] if topic is None else [AcknowledgeTopic(topic_id=topic, partitions=[told])]
    return ShareAcknowledgeRequest(
        group_id=group, member_id=member_id(member), share_session_epoch=epoch, topics=topics
    )


def _batches(said: Sequence[Said]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in said
    ]


def begin(talk: Talk, name: str, records: int = 0, partitions: int = 1, **settings: str) -> UUID:
    """Create a topic with records, and a group of its name whose member `first` reads it from the start."""
    topic = talk.topic(name, partitions)
    talk.fill(name, records)
    talk.configure(GROUP_RESOURCE, name, share_auto_offset_reset="earliest", **settings)
    talk.set_up(
        beat(name, "first", 0, subscribed_topic_names=[name]),
        until=lambda response: (
            response.assignment
            and [len(each.partitions) for each in response.assignment.topic_partitions] == [partitions]
        ),
    )
    return topic


def acquires(count: int) -> Any:
    """Return a condition: a member has got so many records."""
    return lambda response: _acquired(response) == count


def _acquired(response: Any) -> int:
    return sum(
        each.last_offset - each.first_offset + 1
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    )


def _until_acquired(talk: Talk, group: str, member: str, epochs: Iterator[int], **fields: Any) -> Any:
    """Fetch until there is something; return the response."""
    for epoch in islice(epochs, FETCHES_MAX):
        request = fetch(group, member, epoch, **{"min_bytes": 1, "max_wait_ms": 5000, **fields})
        response = talk.set_up(request, connection=member)
        assert response.error_code == 0, response
        if _acquired(response):
            return response
    raise AssertionError(f"{member} acquires records of {group}")


def open_session(talk: Talk, group: str, member: str, topic: UUID, count: int, **fields: Any) -> None:
    """Open a session; on return, the member has acquired records, and its next epoch is 2."""
    talk.set_up(fetch(group, member, 0, topic, max_records=fields.get("max_records", 500), max_bytes=0))
    talk.set_up(fetch(group, member, 1, **{"min_bytes": 1, "max_wait_ms": 10_000, **fields}), until=acquires(count))


def members(talk: Talk) -> None:
    talk.topic("sg-members", 2)
    group, names = "sg-members", ["sg-members"]
    joined = talk.set_up(
        beat(group, "a", 0, subscribed_topic_names=names),
        until=lambda response: response.assignment and response.assignment.topic_partitions,
    )
    epoch, joined.member_epoch = joined.member_epoch, 0
    talk.keep("joins", joined)
    beaten = talk.set_up(beat(group, "a", epoch))
    beaten.member_epoch = 0
    talk.keep("beats", beaten)
    for label, request in {
        "a later epoch": beat(group, "a", 100),
        "a lower one than -1": beat(group, "a", -2),
        "much lower": beat(group, "a", -3),
        "an unknown one beats": beat(group, "z", 1),
        "an unknown one leaves": beat(group, "z", -1),
        "in an unknown group": beat("sg-members-unknown", "a", 1),
        "leaves an unknown group": beat("sg-members-unknown", "a", -1),
        "empty group": beat("", "a", 0, subscribed_topic_names=names),
        "blank group": beat("  ", "a", 0, subscribed_topic_names=names),
        "empty member": beat(group, "", 0, subscribed_topic_names=names),
        "blank member": beat(group, "", 0, member_id=" ", subscribed_topic_names=names),
        "empty member beats": beat(group, "", 1),
        "empty rack": beat(group, "b", 0, subscribed_topic_names=names, rack_id=""),
        "without subscription": beat(group, "b", 0),
        "with an empty subscription": beat("sg-members-none", "b", 0, subscribed_topic_names=[]),
        "an unknown topic": beat("sg-members-nowhere", "b", 0, subscribed_topic_names=["sg-nowhere"]),
        "an invalid topic": beat("sg-members-invalid", "b", 0, subscribed_topic_names=["a/b", ""]),
        "long ids": beat(f"sg-{LONG}", "", 0, member_id=LONG, subscribed_topic_names=["sg-nowhere"], rack_id=LONG),
        "a consumer in the group": ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names,
            topic_partitions=[],
        ),
    }.items():
        talk.ask(label, request)
    talk.set_up(
        ConsumerGroupHeartbeatRequest(
            group_id="sg-members-consumers",
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names,
            topic_partitions=[],
        )
    )
    talk.ask("joins a group of consumers", beat("sg-members-consumers", "a", 0, subscribed_topic_names=names))
    talk.ask("beats in a group of consumers", beat("sg-members-consumers", "c", 1))
    talk.ask("leaves a group of consumers", beat("sg-members-consumers", "c", -1))
    talk.ask("described badly", describe("", "sg-members-unknown", "sg-members-consumers"))
    described = talk.set_up(describe(group))
    for each in described.groups:
        each.group_epoch = each.assignment_epoch = 0
        for member in each.members:
            member.member_epoch = 0
    talk.keep("described", described)
    for number in range(10):
        talk.set_up(beat("sg-full", f"m{number}", 0, subscribed_topic_names=names))
    talk.ask("one too many", beat("sg-full", "m10", 0, subscribed_topic_names=names))
    talk.ask("leaves", beat(group, "a", -1))
    talk.ask("leaves again", beat(group, "a", -1))


def sessions(talk: Talk) -> None:
    group = "sg-sessions"
    topic = begin(talk, group, 3)
    talk.ask("a later epoch without session", fetch(group, "a", 5, topic))
    talk.ask("acknowledges without session", acknowledge(group, "a", 1, topic, (0, 0, [ACCEPT])))
    talk.ask("acknowledges to open", acknowledge(group, "a", 0, topic, (0, 0, [ACCEPT])))
    talk.ask("closes what is not open", fetch(group, "a", -1))
    talk.ask("acknowledges to close what is not open", acknowledge(group, "a", -1))
    talk.ask("opens with acknowledgements", fetch(group, "a", 0, topic, (0, 0, [ACCEPT])))
    talk.ask("opens without topics", fetch(group, "n", 0))
    talk.ask("continues without topics", fetch(group, "n", 1))
    open_session(talk, group, "a", topic, 3)
    talk.ask("the same epoch again", fetch(group, "a", 1))
    talk.ask("an epoch too far", fetch(group, "a", 3))
    talk.ask("acknowledges with another epoch", acknowledge(group, "a", 9, topic, (0, 0, [ACCEPT])))
    talk.ask("a lower one than -1", fetch(group, "a", -2))
    talk.ask("nothing new", fetch(group, "a", 2))
    talk.ask("acknowledges nothing", acknowledge(group, "a", 3))
    talk.ask("acknowledges one", acknowledge(group, "a", 4, topic, (0, 0, [ACCEPT])))
    talk.ask("forgets", fetch(group, "a", 5, forgotten_topics_data=[_forgotten(topic, 0)]))
    talk.ask("forgets what it has not", fetch(group, "a", 6, forgotten_topics_data=[_forgotten(topic, 0, 4)]))
    talk.ask("acknowledges what it has forgotten", acknowledge(group, "a", 7, topic, (1, 1, [ACCEPT])))
    talk.ask("closes with an acknowledgement", fetch(group, "a", -1, topic, (2, 2, [REJECT])))
    talk.ask("is closed", fetch(group, "a", 8))
    talk.ask("opens again", fetch(group, "a", 0, topic))
    talk.ask("opens once more", fetch(group, "a", 0, topic))
    talk.ask("closes by acknowledging", acknowledge(group, "a", -1))
    talk.ask("is closed again", acknowledge(group, "a", 1))


def _forgotten(topic: UUID, *partitions: int) -> ForgottenTopic:
    return ForgottenTopic(topic_id=topic, partitions=list(partitions))


def fetches_that_are_refused(talk: Talk) -> None:
    group = "sg-refused"
    topic = begin(talk, group, 2)
    open_session(talk, group, "z", topic, 2)  # Kafka has loaded the partition then
    for label, request in {
        "empty group": fetch("", "a", 0, topic),
        "no group": fetch(group, "a", 0, topic, group_id=None),
        "empty member": fetch(group, "", 0, topic),
        "no member": fetch(group, "a", 0, topic, member_id=None),
        "a member id that is none": fetch("sg-refused-id", "", 0, topic, member_id=LONG, max_bytes=0),
        "a member that has not joined": fetch(group, "stranger", 0, topic, max_bytes=0),
        "unknown topic": fetch(group, "t", 0, UNKNOWN),
        "unknown topic with an acknowledgement": fetch(group, "t", 1, UNKNOWN, (0, 0, [ACCEPT])),
        "unknown partition": fetch(group, "p", 0, topic, partition=9),
        "negative partition": fetch(group, "np", 0, topic, partition=-1),
        "acknowledges in an empty group": acknowledge("", "a", 1, topic, (0, 0, [ACCEPT])),
        "acknowledges as an empty member": acknowledge(group, "", 1, topic, (0, 0, [ACCEPT])),
    }.items():
        talk.ask(label, request, connection=label)


def a_group_that_nobody_joined(talk: Talk) -> None:
    topic = talk.topic("sg-nobody")
    request = fetch("sg-nobody", "a", 0, topic)
    talk.ask("fetches", request, until=lambda response: response.responses)  # Kafka loads the partition first


def one_session_of_a_connection(talk: Talk) -> None:
    group = "sg-connection"
    topic = begin(talk, group, 1)
    open_session(talk, group, "z", topic, 1)  # Kafka has loaded the partition then
    talk.set_up(fetch(group, "a", 0, topic), connection="one")
    talk.ask("another member on the connection", fetch(group, "b", 0, topic), connection="one")
    talk.ask("the first goes on", fetch(group, "a", 1), connection="one")
    talk.ask("the first on another connection", fetch(group, "a", 1), connection="two")
    talk.ask("and opens anew there", fetch(group, "a", 0, topic), connection="two")


def acknowledgements(talk: Talk) -> None:
    group = "sg-acks"
    topic = begin(talk, group, 20)
    open_session(talk, group, "a", topic, 20)
    epochs = iter(range(2, 100))
    for label, said in {
        "no types": [(0, 0, [])],
        "too few types": [(0, 2, [ACCEPT, ACCEPT])],
        "too many types": [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
        "an unknown type": [(0, 0, [7])],
        "a negative type": [(0, 0, [-1])],
        "a later first offset": [(2, 1, [ACCEPT])],
        "a negative offset": [(-1, 0, [ACCEPT])],
        "overlapping batches": [(0, 3, [ACCEPT]), (2, 5, [ACCEPT])],
        "unordered batches": [(4, 5, [ACCEPT]), (0, 1, [ACCEPT])],
        "the same batch twice": [(0, 1, [ACCEPT]), (0, 1, [ACCEPT])],
        "beyond what was acquired": [(18, 25, [ACCEPT])],
        "far beyond": [(100, 101, [ACCEPT])],
        "the whole range of numbers": [(0, 2**63 - 1, [ACCEPT])],
        "renewal, of later versions": [(0, 0, [4])],
        "an unknown type among others": [(0, 2, [ACCEPT, 9, ACCEPT])],
        "two, of which one is invalid": [(0, 0, [ACCEPT]), (50, 50, [ACCEPT])],
    }.items():
        talk.ask(label, acknowledge(group, "a", next(epochs), topic, *said))
    talk.ask("all is still acquired", acknowledge(group, "a", next(epochs), topic, (0, 0, [ACCEPT])))
    talk.ask("the same once more", acknowledge(group, "a", next(epochs), topic, (0, 0, [ACCEPT])))
    talk.ask("released", acknowledge(group, "a", next(epochs), topic, (1, 4, [RELEASE, REJECT, GAP, ACCEPT])))
    talk.ask("what is not acquired", acknowledge(group, "a", next(epochs), topic, (1, 1, [ACCEPT])))
    talk.ask("rejected", acknowledge(group, "a", next(epochs), topic, (5, 9, [REJECT])))
    talk.ask("another partition", acknowledge(group, "a", next(epochs), topic, (0, 0, [ACCEPT]), partition=4))
    talk.ask("another topic", acknowledge(group, "a", next(epochs), UNKNOWN, (0, 0, [ACCEPT])))
    talk.set_up(fetch(group, "b", 0, topic, max_bytes=0), connection="b")
    talk.ask("of another member", acknowledge(group, "b", 1, topic, (10, 11, [ACCEPT])), connection="b")
    talk.ask("another member gets what is free", fetch(group, "b", 2), connection="b")
    talk.ask(
        "overlapping when fetching", fetch(group, "a", next(epochs), topic, (10, 12, [ACCEPT]), (11, 13, [ACCEPT]))
    )
    talk.ask("without types when fetching", fetch(group, "a", next(epochs), topic, (10, 12, [])))
    talk.ask("unknown type when fetching", fetch(group, "a", next(epochs), topic, (10, 10, [9])))
    talk.ask("accepted when fetching", fetch(group, "a", next(epochs), topic, (10, 12, [ACCEPT])))
    talk.ask("closes with the rest", acknowledge(group, "a", -1, topic, (13, 14, [ACCEPT])))
    talk.ask("accepts the first", acknowledge(group, "b", 3, topic, (1, 1, [ACCEPT])), connection="b")


def deliveries(talk: Talk) -> None:
    group = "sg-deliveries"
    topic = begin(talk, group, 4)
    epochs = iter(range(1, 1000))

    def get(label: str, **fields: Any) -> None:
        talk.keep(label, _until_acquired(talk, group, "a", epochs, **fields))

    talk.set_up(fetch(group, "a", 0, topic, max_bytes=0), connection="a")
    for number in (1, 2, 3):
        get(f"delivery {number}")
        released = acknowledge(group, "a", next(epochs), topic, (0, 3, [RELEASE]))
        talk.ask(f"released {number}", released, connection="a")
    talk.ask("delivered often enough", fetch(group, "a", next(epochs)), connection="a")
    talk.fill(group, 12)
    get("some", max_records=3, batch_size=3)
    get("a batch size", max_records=4, batch_size=2)
    get("all", batch_size=3)
    talk.ask("accepted in parts", acknowledge(group, "a", next(epochs), topic, (4, 6, [ACCEPT]), (7, 12, [ACCEPT])))
    talk.ask("the rest", acknowledge(group, "a", next(epochs), topic, (13, 15, [ACCEPT])))
    talk.ask("few bytes", fetch(group, "a", next(epochs), max_bytes=1), connection="a")


def limits(talk: Talk) -> None:
    group = "sg-limits"
    topic = begin(talk, group, 130)
    talk.set_up(fetch(group, "a", 0, topic, max_bytes=0))
    talk.ask("all that may be locked", fetch(group, "a", 1, min_bytes=1, max_wait_ms=5000))
    talk.ask("no more", fetch(group, "a", 2))
    talk.set_up(acknowledge(group, "a", 3, topic, (0, 9, [ACCEPT])))
    talk.ask("after some", fetch(group, "a", 4, min_bytes=1, max_wait_ms=5000))
    for number in range(12):
        talk.set_up(fetch("sg-limits-sessions", f"m{number}", 0), connection=f"c{number}")
    talk.ask("one session too many", fetch("sg-limits-sessions", "m12", 0, topic), connection="c12")


def _offsets(group: str, *topics: str, partitions: Sequence[int] = (0,)) -> DescribeShareGroupOffsetsRequest:
    asked = [RequestedTopic(topic_name=topic, partitions=list(partitions)) for topic in topics]
    return DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id=group, topics=asked)])


def _alter(group: str, topic: str, *offsets: tuple[int, int]) -> AlterShareGroupOffsetsRequest:
    partitions = [AlteredPartition(partition_index=number, start_offset=offset) for number, offset in offsets]
    return AlterShareGroupOffsetsRequest(group_id=group, topics=[AlteredTopic(topic_name=topic, partitions=partitions)])


def _delete(group: str, *topics: str) -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=[DeletedTopic(topic_name=topic) for topic in topics])


def start_offsets(talk: Talk) -> None:
    group = "sg-offsets"
    topic = begin(talk, group, 10, 2)
    open_session(talk, group, "a", topic, 10)
    talk.set_up(acknowledge(group, "a", 2, topic, (0, 5, [ACCEPT])))
    talk.set_up(acknowledge(group, "a", 3, topic, (9, 9, [ACCEPT])))  # Kafka stores the start of the last one with it
    every = DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id=group, topics=None)])
    talk.ask("described", _offsets(group, group, partitions=(0, 1)))
    talk.ask("described all", every)
    talk.ask("of an unknown partition", _offsets(group, group, partitions=(5, -1)))
    talk.ask("of an unknown topic", _offsets(group, "sg-offsets-nowhere"))
    talk.ask("of an empty topic", _offsets(group, ""))
    talk.ask("of no topics", _offsets(group))
    talk.ask("of an unknown group", _offsets("sg-offsets-unknown", group))
    unknown = [RequestedGroup(group_id="sg-offsets-unknown", topics=None)]
    talk.ask("all of an unknown group", DescribeShareGroupOffsetsRequest(groups=unknown))
    talk.ask("of an empty group", _offsets("", group))
    talk.ask("of no groups", DescribeShareGroupOffsetsRequest(groups=[]))
    talk.ask("moved with members", _alter(group, group, (0, 2)))
    talk.ask("deleted with members", _delete(group, group))
    talk.ask("the group deleted with members", DeleteGroupsRequest(groups_names=[group]))
    talk.set_up(acknowledge(group, "a", -1))
    talk.set_up(beat(group, "first", -1))
    talk.ask("moved", _alter(group, group, (0, 2), (1, 0)))
    talk.ask("described moved", _offsets(group, group, partitions=(0, 1)))
    talk.ask("moved to a negative one", _alter(group, group, (0, -1)))
    talk.ask("moved beyond the end", _alter(group, group, (0, 1000)))
    talk.ask("described beyond the end", _offsets(group, group))
    talk.ask("moved in an unknown partition", _alter(group, group, (7, 1)))
    talk.ask("moved in a negative partition", _alter(group, group, (-1, 1)))
    talk.ask("moved twice", _alter(group, group, (0, 1), (0, 3)))
    talk.ask("described moved twice", _offsets(group, group))
    talk.ask("moved in an unknown topic", _alter(group, "sg-offsets-nowhere", (0, 1)))
    talk.ask("moved in an empty topic", _alter(group, "", (0, 1)))
    talk.ask("moved in an unknown group", _alter("sg-offsets-made", group, (0, 1)))
    talk.ask("moved in an empty group", _alter("", group, (0, 1)))
    talk.ask("moved nothing", AlterShareGroupOffsetsRequest(group_id=group, topics=[]))
    talk.ask("moved no partitions", _alter(group, group))
    talk.ask("deleted of an unknown topic", _delete(group, "sg-offsets-nowhere"))
    talk.ask("deleted in an unknown group", _delete("sg-offsets-unknown", group))
    talk.ask("deleted in an empty group", _delete("", group))
    talk.ask("deleted of no topics", _delete(group))
    talk.ask("deleted of a topic twice", _delete(group, group, group))
    talk.ask("deleted", _delete(group, group))
    talk.ask("described after that", _offsets(group, group))
    talk.ask("described all after that", every)
    talk.ask("the group deleted", DeleteGroupsRequest(groups_names=[group, "sg-offsets-unknown"]))
    talk.ask("its description", describe(group))


CASES: Final[tuple[Case, ...]] = (
    members,
    sessions,
    fetches_that_are_refused,
    a_group_that_nobody_joined,
    one_session_of_a_connection,
    acknowledgements,
    deliveries,
    limits,
    start_offsets,
)
