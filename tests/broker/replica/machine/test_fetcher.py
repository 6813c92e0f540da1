"""The requests and decisions of a fetcher: sessions that name what is new, and what each part of a response demands."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from uuid import UUID

import pytest

from broker.replica.machine import fetcher as machine
from broker.replica.machine.fetcher import (
    Append,
    BackOff,
    Compare,
    Effect,
    Fence,
    FetchedPartition,
    Fetcher,
    FetchFailedError,
    FetchTerms,
    FetchVersions,
    FindOffset,
    GrowingBackOff,
    Position,
    Retry,
    StartAt,
    Truncate,
    TruncateTo,
    compared,
    epoch_question,
    fetcher_index,
    found_offset,
    out_of_range,
)
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.list_offsets import ListOffsetsPartitionResponse
from protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEnd
from protocol.schema import ZERO_UUID

ME, EPOCH, SESSION = 2, 55, 700
IDS = {"a": UUID(int=1), "b": UUID(int=2), "again": UUID(int=3)}
START = Position(0, -1, 0)


def fetched(topic: str, index: int, *, offset: int = 0, leader_epoch: int = 4, topic_id: str = "") -> FetchedPartition:
    position = Position(offset, 3 if offset else -1, 0)
    return FetchedPartition((topic, index), IDS[topic_id or topic], leader_epoch, position)


def fetcher_of(*partitions: FetchedPartition) -> Fetcher:
    fetcher = Fetcher(ME, FetchTerms(), FetchVersions())
    for partition in partitions:
        fetcher.add(partition)
    return fetcher


def requested(fetcher: Fetcher, now_ms: int = 0) -> FetchRequest:
    request = fetcher.request(now_ms, EPOCH)
    assert request is not None
    return request


def named(request: FetchRequest) -> list[tuple[UUID, int, int]]:
    return [(topic.topic_id, one.partition, one.fetch_offset) for topic in request.topics for one in topic.partitions]


def forgotten(request: FetchRequest) -> list[tuple[UUID, int]]:
    return [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]


def response(*parts: tuple[str, PartitionData], session_id: int = SESSION, code: int = 0) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=IDS[topic], partitions=[data]) for topic, data in parts]
    return FetchResponse(error_code=code, session_id=session_id, responses=topics)


def opened(*partitions: FetchedPartition) -> Fetcher:
    """A fetcher with an open session."""
    fetcher = fetcher_of(*partitions)
    requested(fetcher)
    fetcher.received(response())
    return fetcher


def effects(fetcher: Fetcher, response: FetchResponse) -> list[Effect | None]:
    return [fetcher.effect_of(partition, data) for partition, data in fetcher.received(response)]


def test_first_request_names_everything_as_kafka_does() -> None:
    request = requested(fetcher_of(fetched("a", 0), fetched("b", 1, offset=7), fetched("a", 2)))
    assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (0, 0, [])
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
    assert (request.isolation_level, request.rack_id, request.replica_id) == (0, "", -1)
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (ME, EPOCH)
    assert named(request) == [(IDS["a"], 0, 0), (IDS["a"], 2, 0), (IDS["b"], 1, 7)]
    one = request.topics[1].partitions[0]
    assert (one.current_leader_epoch, one.last_fetched_epoch, one.log_start_offset) == (4, 3, 0)
    assert (one.partition_max_bytes, one.replica_directory_id) == (1_048_576, ZERO_UUID)


def test_next_requests_name_only_what_has_changed() -> None:
    first, second, third = fetched("a", 0), fetched("a", 1), fetched("b", 0)
    fetcher = opened(first, second, third)
    request = requested(fetcher)
    assert (request.session_id, request.session_epoch, named(request)) == (SESSION, 1, [])
    fetcher.received(response())
    fetcher.resume(second, Position(5, 4, 0))
    fetcher.remove(first.key)
    request = requested(fetcher)
    assert (request.session_epoch, named(request), forgotten(request)) == (2, [(IDS["a"], 1, 5)], [(IDS["a"], 0)])


@pytest.mark.parametrize("changed", ["offset", "log start", "leader epoch", "nothing"])
def test_request_names_partitions_whose_offset_log_start_or_epoch_changed(changed: str) -> None:
    partition = fetched("a", 0, offset=3)
    fetcher = opened(partition)
    position = partition.position
    if changed == "leader epoch":
        fetcher.add(fetched("a", 0, offset=3, leader_epoch=5))
    else:
        moved = {
            "offset": position._replace(fetch_offset=4),
            "log start": position._replace(log_start_offset=1),
            "nothing": position,
        }[changed]
        fetcher.resume(partition, moved)
    assert bool(named(requested(fetcher))) is (changed != "nothing")


def test_topic_that_was_created_again_is_forgotten_under_its_old_id() -> None:
    fetcher = opened(fetched("a", 0))
    fetcher.add(fetched("a", 0, topic_id="again"))
    request = requested(fetcher)
    assert (named(request), forgotten(request)) == ([(IDS["again"], 0, 0)], [(IDS["a"], 0)])


def test_topic_that_gets_an_id_is_not_forgotten_in_a_session_by_name() -> None:
    """The leader forgets after it has added what the same request names."""
    fetcher = Fetcher(ME, FetchTerms(), FetchVersions(fetch=12))
    fetcher.add(FetchedPartition(("a", 0), None, 4, START))
    requested(fetcher)
    fetcher.received(response())
    fetcher.add(fetched("a", 0))
    request = requested(fetcher)
    assert (request.session_epoch, named(request), forgotten(request)) == (1, [(IDS["a"], 0, 0)], [])


def test_partition_that_is_removed_and_added_again_is_not_forgotten() -> None:
    fetcher = opened(fetched("a", 0), fetched("a", 1))
    fetcher.remove(("a", 0))
    fetcher.add(fetched("a", 0, offset=9))
    request = requested(fetcher)
    assert (named(request), forgotten(request)) == ([(IDS["a"], 0, 9)], [])


def test_held_partition_is_left_out_until_it_is_resumed() -> None:
    first, second = fetched("a", 0), fetched("a", 1)
    fetcher = opened(first, second)
    fetcher.hold(first)
    assert forgotten(requested(fetcher)) == [(IDS["a"], 0)]
    fetcher.received(response())
    assert not named(requested(fetcher))
    fetcher.received(response())
    fetcher.resume(first, START)
    assert named(requested(fetcher)) == [(IDS["a"], 0, 0)]


def test_delayed_partition_returns_when_its_time_has_come() -> None:
    first, second = fetched("a", 0), fetched("a", 1)
    fetcher = opened(first, second)
    fetcher.delay(first, 100)
    assert fetcher.next_due_ms == 100
    for now_ms, expected in ((99, []), (100, [(IDS["a"], 0, 0)]), (200, [])):
        assert named(requested(fetcher, now_ms)) == expected
        fetcher.received(response())
    assert fetcher.next_due_ms is None


@pytest.mark.parametrize(("due_ms", "wait_ms"), [(None, 500), (1_000, 500), (500, 500), (120, 120), (1, 1)])
def test_leader_holds_a_request_no_longer_than_until_a_delay_ends(due_ms: int | None, wait_ms: int) -> None:
    fetcher = opened(partition := fetched("a", 0), fetched("a", 1))
    if due_ms is not None:
        fetcher.delay(partition, due_ms)
    assert requested(fetcher).max_wait_ms == wait_ms


@pytest.mark.parametrize(
    ("longest_ms", "waits_ms"),
    [(1_000, [20, 40, 80, 160, 320, 640, 1_000, 1_000]), (50, [20, 40, 50, 50]), (5, [5, 5]), (0, [0, 0])],
)
def test_back_off_grows_until_a_success(longest_ms: int, waits_ms: list[int]) -> None:
    back_off = GrowingBackOff()
    for _ in range(2):
        assert [back_off.after_failure(longest_ms) for _ in waits_ms] == waits_ms
        back_off.after_success()


def test_failed_partition_is_fetched_again_where_its_log_ends_after_growing_pauses() -> None:
    partition = fetched("a", 0)
    fetcher = opened(partition)
    assert fetcher.failed(partition, Position(5, 3, 0), 100, 1_000) == 20
    assert not named(requested(fetcher, 119))
    fetcher.received(response())
    assert named(requested(fetcher, 120)) == [(IDS["a"], 0, 5)]
    assert fetcher.failed(partition, Position(5, 3, 0), 200, 1_000) == 40
    fetcher.appended(partition, Position(6, 3, 0), leader_high_watermark=6)
    assert fetcher.failed(partition, Position(6, 3, 0), 300, 1_000) == 20


def test_appended_partition_is_fetched_where_its_log_ends_unless_it_is_held() -> None:
    partition = fetched("a", 0)
    fetcher = opened(partition)
    fetcher.appended(partition, Position(5, 3, 0), leader_high_watermark=9)
    assert partition.lag == 4
    assert named(requested(fetcher)) == [(IDS["a"], 0, 5)]
    fetcher.received(response())
    fetcher.hold(partition)
    fetcher.appended(partition, Position(7, 3, 0), leader_high_watermark=6)
    assert partition.lag == 0
    assert not partition.is_ready
    assert partition.position.fetch_offset == 5


def test_request_in_flight_does_not_name_what_was_added_or_moved_since() -> None:
    first = fetched("a", 0)
    fetcher = fetcher_of(first)
    assert fetcher.has_unnamed
    requested(fetcher)
    assert not fetcher.has_unnamed
    second = fetched("a", 1)
    fetcher.add(second)
    assert fetcher.has_unnamed
    fetcher.hold(second)
    assert not fetcher.has_unnamed
    fetcher.resume(second, START)
    assert fetcher.has_unnamed
    fetcher.remove(second.key)
    fetcher.resume(first, START)
    assert not fetcher.has_unnamed
    fetcher.add(fetched("a", 0, leader_epoch=5))
    assert fetcher.has_unnamed


def test_delay_of_a_removed_partition_does_not_bring_it_back() -> None:
    partition = fetched("a", 0)
    fetcher = opened(partition, fetched("a", 1))
    fetcher.delay(partition, 100)
    fetcher.remove(partition.key)
    fetcher.add(replacement := fetched("a", 0, offset=4))
    fetcher.hold(replacement)
    assert not named(requested(fetcher, 100))
    assert not replacement.is_ready


def test_nothing_is_requested_without_ready_partitions() -> None:
    assert Fetcher(ME, FetchTerms(), FetchVersions()).request(0, EPOCH) is None
    partition = fetched("a", 0)
    fetcher = fetcher_of(partition)
    fetcher.hold(partition)
    assert fetcher.request(0, EPOCH) is None
    fetcher = opened(partition := fetched("a", 0))
    fetcher.hold(partition)
    assert forgotten(requested(fetcher)) == [(IDS["a"], 0)]
    fetcher.received(response(session_id=0))
    assert fetcher.request(0, EPOCH) is None


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, SESSION),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, SESSION),
    ],
)
def test_refused_session_is_opened_again(code: ErrorCode, session_id: int) -> None:
    fetcher = opened(fetched("a", 0), fetched("b", 0))
    assert fetcher.received(response(code=code)) == []
    request = requested(fetcher)
    assert (request.session_id, request.session_epoch, len(named(request))) == (session_id, 0, 2)


def test_refused_request_is_an_error_and_opens_the_session_again() -> None:
    fetcher = opened(fetched("a", 0))
    with pytest.raises(FetchFailedError, match="CLUSTER_AUTHORIZATION_FAILED"):
        fetcher.received(response(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert requested(fetcher).session_epoch == 0


def test_lost_response_opens_the_session_again_and_closes_the_old_one() -> None:
    fetcher = opened(fetched("a", 0))
    requested(fetcher)
    fetcher.lost()
    request = requested(fetcher)
    assert (request.session_id, request.session_epoch) == (SESSION, 0)


def test_leader_without_a_free_slot_gets_everything_each_time_in_turn() -> None:
    first, second = fetched("a", 0), fetched("b", 0)
    fetcher = fetcher_of(first, second)
    requested(fetcher)
    fetcher.received(response(session_id=0))
    fetcher.resume(first, Position(5, 4, 0))
    request = requested(fetcher)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [(IDS["b"], 0, 0), (IDS["a"], 0, 5)], "the one that had records comes last"


def test_partition_without_a_topic_id_makes_requests_by_name() -> None:
    fetcher = opened(fetched("a", 0))
    fetcher.add(FetchedPartition(("old", 0), None, 1, START))
    request = requested(fetcher)
    assert (fetcher.version, request.session_epoch, request.replica_id, request.replica_state) == (12, 0, ME, None)
    assert [topic.topic for topic in request.topics] == ["a", "old"]
    data = FetchableTopicResponse(topic="old", partitions=[PartitionData(partition_index=0)])
    ((partition, _),) = fetcher.received(FetchResponse(session_id=SESSION, responses=[data]))
    assert partition.key == ("old", 0)
    fetcher.remove(("old", 0))
    assert requested(fetcher).session_epoch == 0
    assert fetcher.version == 17


@pytest.mark.parametrize(
    ("data", "effect"),
    [
        (PartitionData(partition_index=0, records=b"r"), Append),
        (PartitionData(partition_index=0, high_watermark=4), Append),
        (
            PartitionData(partition_index=0, diverging_epoch=EpochEndOffset(epoch=2, end_offset=5)),
            Truncate(2, 5),
        ),
        (PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE), FindOffset()),
        (PartitionData(partition_index=0, error_code=ErrorCode.FENCED_LEADER_EPOCH), Fence()),
        *(
            (PartitionData(partition_index=0, error_code=code), BackOff(code))
            for code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                ErrorCode.UNKNOWN_TOPIC_ID,
                ErrorCode.INCONSISTENT_TOPIC_ID,
                ErrorCode.KAFKA_STORAGE_ERROR,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        ),
    ],
)
def test_each_part_of_a_response_has_its_effect(data: PartitionData, effect: object) -> None:
    (found,) = effects(opened(fetched("a", 0)), response(("a", data)))
    assert isinstance(found, effect) if isinstance(effect, type) else found == effect


@pytest.mark.parametrize(
    "change", ["removed", "replaced", "moved", "new epoch", "held", "delayed", "removed and added again elsewhere"]
)
def test_part_that_nobody_waits_for_any_more_has_no_effect(change: str) -> None:
    partition = fetched("a", 0, offset=3)
    fetcher = opened(partition)
    ((responded, data),) = fetcher.received(response(("a", PartitionData(partition_index=0, records=b"r"))))
    assert responded is partition
    match change:
        case "removed":
            fetcher.remove(partition.key)
        case "replaced" | "removed and added again elsewhere":
            fetcher.add(fetched("a", 0, offset=3 if change == "replaced" else 2))
        case "moved":
            fetcher.resume(partition, Position(4, 4, 0))
        case "new epoch":
            fetcher.add(fetched("a", 0, offset=3, leader_epoch=5))
        case "held":
            fetcher.hold(partition)
        case "delayed":
            fetcher.delay(partition, 10)
    assert fetcher.effect_of(partition, data) is None


def test_parts_of_unknown_partitions_are_ignored() -> None:
    fetcher = opened(fetched("a", 0))
    unknown = response(("b", PartitionData(partition_index=0)), ("a", PartitionData(partition_index=9)))
    assert fetcher.received(unknown) == []


@pytest.mark.parametrize(
    ("own_end", "leader_end", "leader_start", "expected"),
    [
        (10, 8, 0, TruncateTo(8)),
        (10, 8, 9, TruncateTo(8)),
        (10, 20, 12, StartAt(12)),
        (10, 20, 10, Retry()),
        (10, 10, 0, Retry()),
    ],
)
def test_fetch_offset_out_of_range_is_placed_within_the_leaders_log(
    own_end: int, leader_end: int, leader_start: int, expected: object
) -> None:
    assert out_of_range(own_end, leader_end, leader_start) == expected


@pytest.mark.parametrize(
    ("topic", "partition", "count", "expected"),
    [("t", 0, 1, 0), ("t", 0, 7, 5), ("t", 1, 7, 6), ("__consumer_offsets", 0, 4, 3), ("orders", 3, 5, 1)],
)
def test_partition_belongs_to_the_fetcher_that_kafka_chooses(
    topic: str, partition: int, count: int, expected: int
) -> None:
    value = 0
    for letter in topic:  # the plain definition of Java's hash
        value = 31 * value + ord(letter)
    value = (31 * value + partition + 2**31) % 2**32 - 2**31
    assert fetcher_index(topic, partition, count) == abs(value) % count == expected


class Leader:
    """The leader's side of a session, by its definition: what a follower has named and not forgotten."""

    def __init__(self, random: Random) -> None:
        self.known: dict[tuple[UUID, int], tuple[int, int]] = {}
        self._random = random
        self._epoch = 0

    def respond(self, request: FetchRequest) -> FetchResponse | None:
        """Return a response; None if it is lost on the way."""
        if request.session_epoch == 0:
            self.known, self._epoch = {}, 0
        elif request.session_epoch != self._epoch:
            return response(code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._epoch += 1
        for topic in request.topics:
            for one in topic.partitions:
                self.known[topic.topic_id, one.partition] = one.fetch_offset, one.current_leader_epoch
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                del self.known[gone.topic_id, index]
        return None if self._random.random() < 0.1 else response()


def wanted(partitions: Iterable[FetchedPartition]) -> dict[tuple[UUID, int], tuple[int, int]]:
    return {
        (one.topic_id, one.key[1]): (one.position.fetch_offset, one.leader_epoch) for one in partitions if one.is_ready
    }


@pytest.mark.parametrize("seed", range(20))
def test_leader_always_knows_what_is_fetched(seed: int) -> None:
    random = Random(seed)
    fetcher, leader = Fetcher(ME, FetchTerms(), FetchVersions()), Leader(random)
    now_ms = 0
    for _ in range(300):
        for _ in range(random.randrange(3)):
            key = random.choice(["a", "b"]), random.randrange(4)
            partition = fetcher.get(key)
            change = random.randrange(6)
            if partition is None or change == 0:
                topic_id = random.choice(["", "again"]) if key[0] == "a" else ""
                fetcher.add(fetched(*key, offset=random.randrange(5), topic_id=topic_id))
            elif change == 1:
                fetcher.remove(key)
            elif change == 2:
                fetcher.hold(partition)
            elif change == 3 and partition.is_ready:
                fetcher.delay(partition, now_ms + random.randrange(5))
            elif change > 3:
                fetcher.resume(partition, Position(random.randrange(9), 1, 0))
        now_ms += 1
        request = fetcher.request(now_ms, EPOCH)
        if request is None:
            assert not wanted(fetcher)
            continue
        response = leader.respond(request)
        if response is None:
            fetcher.lost()
            continue
        if not response.error_code:
            assert leader.known == wanted(fetcher)
        fetcher.received(response)


# The comparison with a new leader by older protocols

BY_QUESTION = FetchVersions(fetch=11, list_offsets=5, offset_for_leader_epoch=3, compares_by_fetch=False)


def test_partition_is_compared_before_it_is_fetched() -> None:
    fetcher = Fetcher(ME, FetchTerms(), BY_QUESTION)
    partition = fetched("a", 0, offset=9)
    fetcher.add(partition)
    assert fetcher.request(0, EPOCH) is None
    assert fetcher.take_uncompared(0) == [partition]
    assert fetcher.take_uncompared(0) == []
    fetcher.resume(partition, Position(7, 2, 0))
    assert fetcher.take_uncompared(0) == [partition], "until the leader's response has settled it"
    fetcher.settle(partition)
    fetcher.resume(partition, Position(5, 1, 0))
    request = requested(fetcher)
    assert [(topic.topic, topic.partitions[0].fetch_offset) for topic in request.topics] == [("a", 5)]
    assert (fetcher.version, request.replica_id, request.replica_state) == (11, ME, None)
    assert request.topics[0].partitions[0].last_fetched_epoch == -1, "version 11 has no room for it"


def test_failed_comparison_is_repeated_after_a_pause() -> None:
    fetcher = Fetcher(ME, FetchTerms(), BY_QUESTION)
    partition = fetched("a", 0, offset=9)
    fetcher.add(partition)
    fetcher.take_uncompared(0)
    wait_ms = fetcher.failed(partition, partition.position, 0, 1_000)
    assert fetcher.take_uncompared(wait_ms - 1) == []
    assert fetcher.request(wait_ms - 1, EPOCH) is None
    assert fetcher.take_uncompared(wait_ms) == [partition]


def test_few_partitions_are_compared_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "COMPARED_MAX", 2)
    fetcher = Fetcher(ME, FetchTerms(), BY_QUESTION)
    added = [fetched("a", index, offset=9) for index in range(3)]
    for partition in added:
        fetcher.add(partition)
    assert fetcher.take_uncompared(0) == added[:2]
    assert fetcher.has_unnamed
    assert fetcher.take_uncompared(0) == added[2:]


def test_partition_that_is_removed_is_not_compared() -> None:
    fetcher = Fetcher(ME, FetchTerms(), BY_QUESTION)
    fetcher.add(fetched("a", 0, offset=9))
    fetcher.remove(("a", 0))
    assert fetcher.take_uncompared(0) == []


def test_log_with_records_and_without_epochs_is_compared_in_every_protocol() -> None:
    fetcher = Fetcher(ME, FetchTerms(), FetchVersions())
    old, empty = (
        FetchedPartition(("a", 0), IDS["a"], 4, Position(9, -1, 0)),
        FetchedPartition(("b", 0), IDS["b"], 4, Position(9, -1, 9)),
    )
    fetcher.add(old)
    fetcher.add(empty)
    assert fetcher.take_uncompared(0) == [old]


def test_question_names_the_latest_epoch_of_each_log() -> None:
    question = epoch_question(ME, [fetched("a", 0, offset=9), fetched("a", 1, offset=5), fetched("b", 0, offset=1)])
    assert question.replica_id == ME
    assert [
        (topic.topic, one.partition, one.current_leader_epoch, one.leader_epoch)
        for topic in question.topics
        for one in topic.partitions
    ] == [("a", 0, 4, 3), ("a", 1, 4, 3), ("b", 0, 4, 3)]


@pytest.mark.parametrize(
    ("code", "effect"),
    [
        (ErrorCode.NONE, Compare(2, 7)),
        (ErrorCode.FENCED_LEADER_EPOCH, Fence()),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, BackOff(ErrorCode.UNKNOWN_LEADER_EPOCH)),
    ],
)
def test_response_to_the_question_is_truncation_or_pause(code: ErrorCode, effect: object) -> None:
    assert compared(EpochEnd(partition=0, error_code=code, leader_epoch=2, end_offset=7)) == effect


def test_offset_of_version_0_is_the_first_of_its_list() -> None:
    assert found_offset(ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=[8])) == 8
    assert found_offset(ListOffsetsPartitionResponse(partition_index=0, offset=9)) == 9
