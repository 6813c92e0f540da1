"""TxnOffsetCommit: offsets that wait for the end of the transaction, and the codes of each version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.groups import offset_commits
from broker.groups.batches import COMMIT_STEP_SIZE
from broker.handlers import txn_offset_commit
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from storage.producers.producer_state import Producer
from tests.broker.groups.served import codes, versions_of
from tests.broker.groups.support import join_request
from tests.broker.transactions.served import ServedTransactions

VERSIONS = versions_of(TxnOffsetCommitRequest)
OFFSETS = ("__consumer_offsets", 0)
T0 = ("t", 0)
NOSUCH = ("nosuch", 0)


def request(
    producer: Producer, *partitions: tuple[str, int], metadata: str = "m", **values: Any
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=values.pop("name", "id"),
        group_id=values.pop("group_id", "g"),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=5, committed_metadata=metadata
                    )
                ],
            )
            for topic, index in partitions or (T0,)
        ],
        **values,
    )


@pytest.fixture
async def served(tmp_path: Path) -> ServedTransactions:
    return await ServedTransactions(tmp_path).lead_all()


async def with_offsets(served: ServedTransactions) -> Producer:
    producer = await served.new_producer()
    await served.there.add_partitions("id", producer, [OFFSETS])
    return producer


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_committed", [True, False])
async def test_offsets_count_when_the_transaction_commits(
    served: ServedTransactions, version: int, is_committed: bool
) -> None:
    producer = await with_offsets(served)
    response = await served.ask(txn_offset_commit, request(producer, T0, NOSUCH), version)
    assert codes(response.topics) == {T0: ErrorCode.NONE, NOSUCH: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    offsets = served.coordinator.offsets.of("g")
    assert offsets.get(T0) is None
    assert offsets.is_unstable(T0)
    served.coordinator.offsets.end_transaction(0, producer.producer_id, is_committed=is_committed)
    stored = offsets.get(T0)
    assert (None if stored is None else (stored.offset, stored.metadata)) == ((5, "m") if is_committed else None)
    assert not offsets.is_unstable(T0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_transaction_that_does_not_include_the_groups_partition(
    served: ServedTransactions, version: int
) -> None:
    producer = await served.new_producer()
    response = await served.ask(txn_offset_commit, request(producer), version)
    code = ErrorCode.TRANSACTION_ABORTABLE if version == 4 else ErrorCode.INVALID_TXN_STATE
    is_added = version >= 5
    assert codes(response.topics) == {T0: ErrorCode.NONE if is_added else code}
    assert served.coordinator.offsets.of("g").is_unstable(T0) == is_added
    described = served.transactions.inspection.describe("id")
    assert (described.state.title, list(described.partitions)) == (
        ("Ongoing", [OFFSETS]) if is_added else ("Empty", [])
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_producers_that_are_not_the_one(served: ServedTransactions, version: int) -> None:
    producer = await with_offsets(served)
    for asked, code in (
        (request(Producer(producer.producer_id, 9)), ErrorCode.INVALID_PRODUCER_EPOCH),
        (request(Producer(9, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (request(producer, name="nobody"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (request(producer, group_id=""), ErrorCode.INVALID_GROUP_ID),
        (request(producer, NOSUCH), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(producer, metadata="m" * 5000), ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ):
        response = await served.ask(txn_offset_commit, asked, version)
        assert set(codes(response.topics).values()) == {code}


@pytest.mark.parametrize("version", VERSIONS)
async def test_commit_fails_while_the_coordinator_is_loading(served: ServedTransactions, version: int) -> None:
    producer = await with_offsets(served)
    served.there.coordinator.partitions.become_leader(0, 1)
    response = await served.ask(txn_offset_commit, request(producer), version)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(response.topics) == {T0: loading}
    await served.idle()
    assert codes((await served.ask(txn_offset_commit, request(producer), version)).topics) == {T0: ErrorCode.NONE}


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_members_are_checked(served: ServedTransactions, version: int) -> None:
    producer = await with_offsets(served)
    absent = request(producer, generation_id=1, member_id="a-1")
    response = await served.ask(txn_offset_commit, absent, version)
    assert codes(response.topics) == {T0: ErrorCode.ILLEGAL_GENERATION}
    start(served.coordinator.join("g", join_request("a")))
    for generation_id, member_id, code in (
        (1, "a-1", ErrorCode.NONE),
        (7, "a-1", ErrorCode.ILLEGAL_GENERATION),
        (1, "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, "", ErrorCode.NONE),
    ):
        asked = request(producer, generation_id=generation_id, member_id=member_id)
        assert codes((await served.ask(txn_offset_commit, asked, version)).topics) == {T0: code}


async def test_without_a_topic_for_groups(tmp_path: Path) -> None:
    served = await ServedTransactions(tmp_path, has_offsets_topic=False).lead_all()
    producer = await served.new_producer()
    response = await served.ask(txn_offset_commit, request(producer), 4)
    assert codes(response.topics) == {T0: ErrorCode.NOT_COORDINATOR}


MANY = [("many", index) for index in range(2 * COMMIT_STEP_SIZE + 7)]


async def test_a_commit_of_thousands_is_one_batch_and_counts_when_the_transaction_commits(
    served: ServedTransactions,
) -> None:
    served.add_topic("many", len(MANY))
    producer = await with_offsets(served)
    response = await served.ask(txn_offset_commit, request(producer, *MANY, NOSUCH), 3)
    assert codes(response.topics) == {
        **dict.fromkeys(MANY, ErrorCode.NONE),
        NOSUCH: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert served.here.log.batch_sequences() == [0]
    offsets = served.coordinator.offsets.of("g")
    assert offsets.committed == {}
    served.coordinator.offsets.end_transaction(0, producer.producer_id, is_committed=True)
    assert {partition: each.value.offset for partition, each in offsets.committed.items()} == dict.fromkeys(MANY, 5)


async def test_a_commit_of_thousands_is_verified_after_the_turns_of_others(
    served: ServedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.add_topic("many", len(MANY))
    producer = await with_offsets(served)
    build_in_slices = offset_commits.commit_batch_in_slices

    async def build_while_the_transaction_ends(*details: Any) -> bytes:
        batch = await build_in_slices(*details)
        await served.there.end("id", producer, is_committed=False)
        await served.there.idle()
        return batch

    monkeypatch.setattr(offset_commits, "commit_batch_in_slices", build_while_the_transaction_ends)
    response = await served.ask(txn_offset_commit, request(producer, *MANY), 4)
    assert set(codes(response.topics).values()) == {ErrorCode.TRANSACTION_ABORTABLE}
    assert served.coordinator.offsets.of("g").is_empty
    assert served.here.log.records() == []
