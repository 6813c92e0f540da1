"""Replaying `__consumer_offsets`, above all the partitions that Kafka itself wrote."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordination.replay import Damage
from broker.groups.loading import ReplayedPartition
from broker.groups.machine.consumer.records import TargetEpochKey, TargetEpochValue, encode_key, encode_value
from broker.groups.machine.records import (
    GroupMetadataValue,
    OffsetAndMetadata,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from protocol.errors import Malformed
from protocol.records.batch import batches, records
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType, TransactionMarker, build_marker
from tests.broker.golden import GoldenPartition
from tests.broker.groups.golden import PARTITIONS


def replay(*logs: bytes) -> ReplayedPartition:
    replayed = ReplayedPartition()
    replay_into(replayed, *logs)
    return replayed


def replay_into(replayed: ReplayedPartition, *logs: bytes) -> None:
    for log in logs:
        for position, header in batches(log):
            for record in records(log, position, size_max=1 << 24):
                replayed.replay(header, record)


def shown(replayed: ReplayedPartition) -> dict[tuple[str, str, int], tuple[int, str]]:
    return {
        (group_id, *partition): (committed.value.offset, committed.value.metadata)
        for group_id, offsets in replayed.offsets.items()
        for partition, committed in offsets.committed.items()
    }


def told_by_the_dump(partition: GoldenPartition) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The same from the dump tool's text, by the simplest reading of it."""
    groups: dict[str, Any] = {}
    offsets: dict[Any, Any] = {}
    pending: dict[int, dict[Any, Any]] = {}
    for record in partition.records:
        if record["isControl"]:
            ended = pending.pop(record["producerId"], {})
            offsets.update(ended if record["controlType"] == "COMMIT" else {})
            continue
        key, value = record["decodedKey"], record["decodedValue"]
        target = pending.setdefault(record["producerId"], {}) if record["isTransactional"] else offsets
        if key["type"] == "2":
            target, name = groups, key["data"]["group"]
        else:
            name = (key["data"]["group"], key["data"]["topic"], key["data"]["partition"])
        if value == "<DELETE>":
            target.pop(name, None)
        else:
            target[name] = value["data"]
    assert not any(pending.values())
    return groups, offsets


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda partition: str(partition.number))
def test_partitions_written_by_kafka_are_replayed(partition: GoldenPartition) -> None:
    replayed = replay(partition.log)
    groups, offsets = told_by_the_dump(partition)
    assert {name: value.generation_id for name, value in replayed.groups.items()} == {
        name: value["generation"] for name, value in groups.items()
    }
    assert {name: [member.member_id for member in value.members] for name, value in replayed.groups.items()} == {
        name: [member["memberId"] for member in value["members"]] for name, value in groups.items()
    }
    assert shown(replayed) == {name: (value["offset"], value["metadata"]) for name, value in offsets.items()}
    assert set(replayed.group_ids()) == {*groups, *(name for name, _, _ in offsets)}
    assert len(groups) > 3
    assert len(offsets) > 10


def offset(number: int) -> bytes:
    return offset_value(OffsetAndMetadata(offset=number, metadata="", commit_timestamp_ms=0))


def commit(base_offset: int, value: bytes | None, *, producer_id: int = -1, partition: int = 0) -> bytes:
    return build_batch(
        [RecordData(0, offset_key("g", "t", partition), value)],
        base_offset=base_offset,
        producer_id=producer_id,
        is_transactional=producer_id >= 0,
    )


def marker(base_offset: int, control_type: ControlType, producer_id: int) -> bytes:
    batch = bytearray(
        build_marker(TransactionMarker(control_type, 0), producer_id=producer_id, producer_epoch=0, now_ms=0)
    )
    batch[:8] = base_offset.to_bytes(8, "big")
    return bytes(batch)


@pytest.mark.parametrize(
    ("log", "expected", "is_unstable"),
    [
        ([commit(0, offset(1)), commit(1, offset(2))], 2, False),
        ([commit(0, offset(1)), commit(1, None)], None, False),
        ([commit(0, offset(1)), commit(1, None), commit(2, offset(3))], 3, False),
        ([commit(0, offset(1)), commit(1, offset(2), producer_id=7)], 1, True),
        ([commit(0, offset(2), producer_id=7), marker(1, ControlType.COMMIT, 7)], 2, False),
        ([commit(0, offset(2), producer_id=7), marker(1, ControlType.ABORT, 7)], None, False),
        ([commit(0, offset(2), producer_id=7), marker(1, ControlType.COMMIT, 8)], None, True),
        # A plain commit that came after that of the transaction stays, whenever the transaction ends.
        ([commit(0, offset(2), producer_id=7), commit(1, offset(5)), marker(2, ControlType.COMMIT, 7)], 5, False),
        # What was deleted while the transaction was open stays deleted.
        ([commit(0, offset(2), producer_id=7), commit(1, None), marker(2, ControlType.COMMIT, 7)], None, False),
        ([marker(0, ControlType.COMMIT, 7)], None, False),
    ],
)
def test_loaded_offset_is_the_last_committed_one(log: list[bytes], expected: int | None, is_unstable: bool) -> None:
    replayed = replay(*log)
    assert shown(replayed).get(("g", "t", 0), (None, ""))[0] == expected
    if is_unstable:
        assert replayed.offsets["g"].is_unstable(("t", 0))
    assert replayed.group_ids() == (["g"] if expected is not None or is_unstable else [])


def test_records_of_newer_types_are_skipped() -> None:
    newer = build_batch([RecordData(0, b"\0\x09anything", b"else")])
    assert replay(newer, commit(1, offset(4))).group_ids() == ["g"]


@pytest.mark.parametrize(
    "damaged",
    [
        build_batch([RecordData(0, None, b"x")]),
        build_batch([RecordData(0, b"\0\x01", b"x")]),
        build_batch([RecordData(0, group_key("g"), b"\0\x09")]),
        commit(0, offset(1)[:-1]),
    ],
)
def test_a_damaged_record_raises_malformed(damaged: bytes) -> None:
    with pytest.raises(Malformed):
        replay(damaged)


def damage(*keys: bytes | None, is_as_written: bool = False) -> Damage:
    return Damage(5, 6, "a reason", keys, is_as_written=is_as_written)


UNREADABLE = Damage(5, 6, "a reason", None, is_as_written=False)


def test_lost_commit_leaves_the_older_one_and_is_reported() -> None:
    replayed = replay(commit(0, offset(1)))
    replayed.skip(damage(offset_key("g", "t", 0), offset_key("new", "t", 1)))
    assert shown(replayed)["g", "t", 0][0] == 1
    assert replayed.lost() == [
        "the last commit of group g for t-0 is lost, offset 1 of an older commit is served",
        "the last commit of group new for t-1 is lost, no offset is served",
    ]


@pytest.mark.parametrize("later", [commit(1, offset(2)), commit(1, None)], ids=["commit", "tombstone"])
def test_later_record_of_the_same_key_makes_up_for_a_lost_one(later: bytes) -> None:
    replayed = replay(commit(0, offset(1)))
    replayed.skip(damage(offset_key("g", "t", 0)))
    replay_into(replayed, later)
    assert replayed.lost() == []


def test_commit_in_a_transaction_does_not_hide_a_lost_one_while_it_is_open() -> None:
    replayed = replay(commit(0, offset(1)))
    replayed.skip(damage(offset_key("g", "t", 0)))
    replay_into(replayed, commit(1, offset(2), producer_id=7))
    assert len(replayed.lost()) == 1


def test_members_of_an_older_generation_are_not_restored() -> None:
    def generation(number: int) -> bytes:
        value = GroupMetadataValue(
            protocol_type="consumer", generation_id=number, protocol_name=None, leader_id=None, members=[]
        )
        return build_batch([RecordData(0, group_key("g"), group_value(value))])

    replayed = replay(generation(1))
    replayed.skip(damage(group_key("g")))
    assert not replayed.groups
    assert replayed.lost() == ["the members of group g are lost and join again"]
    replay_into(replayed, generation(3))
    assert replayed.groups["g"].generation_id == 3
    assert replayed.lost() == []


def test_a_group_is_of_the_protocol_of_its_latest_records() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer", generation_id=1, protocol_name=None, leader_id=None, members=[]
    )
    classic = build_batch([RecordData(0, group_key("g"), group_value(value))])
    key = encode_key(TargetEpochKey(group_id="g"))
    consumer = build_batch([RecordData(0, key, encode_value(TargetEpochValue(assignment_epoch=1)))])
    became_classic, became_consumer = replay(consumer, classic), replay(classic, consumer)
    assert (list(became_classic.groups), list(became_classic.changes)) == (["g"], [])
    assert (list(became_consumer.groups), list(became_consumer.changes)) == ([], ["g"])


@pytest.mark.parametrize(
    "lost",
    [UNREADABLE, damage(b"\0\x01"), damage(None)],
    ids=["unreadable", "key that cannot be decoded", "no key"],
)
def test_marker_does_not_commit_what_a_lost_marker_may_have_aborted(lost: Damage) -> None:
    replayed = replay(commit(0, offset(1)), commit(1, offset(2), producer_id=7))
    replayed.skip(lost)
    replay_into(replayed, commit(3, offset(9), producer_id=7, partition=1), marker(4, ControlType.COMMIT, 7))
    assert shown(replayed) == {("g", "t", 0): (1, ""), ("g", "t", 1): (9, "")}
    assert replayed.lost() == ["offsets that a transaction committed for group g may be lost, older ones are served"]


def test_other_lost_records_leave_transactions_open() -> None:
    replayed = replay(commit(1, offset(2), producer_id=7))
    replayed.skip(damage(offset_key("other", "t", 0)))
    replayed.skip(damage(None, is_as_written=True))
    replay_into(replayed, marker(4, ControlType.COMMIT, 7))
    assert shown(replayed) == {("g", "t", 0): (2, "")}


def test_record_that_cannot_be_decoded_changes_nothing() -> None:
    replayed = ReplayedPartition()
    with pytest.raises(Malformed):
        replay_into(replayed, commit(0, offset(1)[:-1]))
    assert replayed.offsets == {}
