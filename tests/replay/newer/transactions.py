"""Cases of transactions of version 2 (KIP-890), and of requests to administer a broker."""

from __future__ import annotations

from typing import Any, Final

from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.builder import RecordData, build_batch
from tests.replay.newer.consumer_groups import beat, fetch
from tests.replay.newer.conversation import GROUP_RESOURCE, Case, Talk

UNKNOWN_PRODUCER: Final = 987_654


def begin(transactional_id: str | None, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> Any:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def produce(
    topic: str,
    transactional_id: str | None,
    producer_id: int,
    epoch: int,
    sequence: int = 0,
    *,
    is_transactional: bool = True,
    partition: int = 0,
) -> ProduceRequest:
    batch = build_batch(
        [RecordData(timestamp=1, key=None, value=b"v")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])


def end(transactional_id: str, producer_id: int, epoch: int, *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=committed
    )


def commit(transactional_id: str, group: str, producer_id: int, epoch: int, topic: str, **fields: Any) -> Any:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        **fields,
    )


def ends(talk: Talk, label: str, request: EndTxnRequest) -> Any:
    """End a transaction, again while the one before is being completed."""
    return talk.ask(label, request, until=lambda response: response.error_code != CONCURRENT_TRANSACTIONS)


CONCURRENT_TRANSACTIONS: Final = 51


def transactions_of_version_2(talk: Talk) -> None:
    topic = "tx-topic"
    talk.topic(topic, 2)
    begun = talk.ask("begins", begin("tx-one"))
    producer, epoch = begun.producer_id, begun.producer_epoch
    talk.ask("ends what has not begun", end("tx-one", producer, epoch))
    talk.ask("aborts what has not begun", end("tx-one", producer, epoch + 1, committed=False))
    state = talk.set_up(begin("tx-one"))
    producer, epoch = state.producer_id, state.producer_epoch
    _produce(talk, "produces", produce(topic, "tx-one", producer, epoch))
    _produce(talk, "to another partition", produce(topic, "tx-one", producer, epoch, partition=1))
    _produce(talk, "the same again", produce(topic, "tx-one", producer, epoch))
    _produce(talk, "a gap", produce(topic, "tx-one", producer, epoch, 7))
    _produce(talk, "a later epoch", produce(topic, "tx-one", producer, epoch + 5, partition=1))
    _produce(talk, "an earlier epoch", produce(topic, "tx-one", producer, epoch - 1, partition=1))
    _produce(talk, "without an id", produce(topic, None, producer, epoch, 1))
    _produce(talk, "with another id", produce(topic, "tx-other", producer, epoch, 1))
    _produce(talk, "an unknown producer", produce(topic, "tx-one", UNKNOWN_PRODUCER, 0))
    _produce(talk, "not transactional", produce(topic, "tx-one", producer, epoch, 1, is_transactional=False))
    _produce(talk, "to an unknown partition", produce(topic, "tx-one", producer, epoch, partition=9))
    _produce(talk, "to an unknown topic", produce("tx-nowhere", "tx-one", producer, epoch))
    described = talk.set_up(DescribeTransactionsRequest(transactional_ids=["tx-one"]))
    described.transaction_states[0].transaction_start_time_ms = -1
    talk.keep("described", described)
    talk.ask("described unknown", DescribeTransactionsRequest(transactional_ids=["tx-unknown", ""]))
    for label, request in {
        "ends with a later epoch": end("tx-one", producer, epoch + 3),
        "ends with an earlier epoch": end("tx-one", producer, epoch - 1),
        "ends of another producer": end("tx-one", UNKNOWN_PRODUCER, epoch),
        "ends an unknown id": end("tx-unknown", producer, epoch),
        "ends an empty id": end("", producer, epoch),
    }.items():
        talk.ask(label, request)
    done = ends(talk, "commits", end("tx-one", producer, epoch))
    assert done.producer_epoch == epoch + 1, done
    ends(talk, "commits once more", end("tx-one", producer, epoch))
    ends(talk, "aborts what is committed", end("tx-one", producer, epoch, committed=False))
    ends(talk, "of the next epoch, without records", end("tx-one", producer, epoch + 1))
    talk.ask("of an older client", end("tx-one", producer, epoch + 1), 4)


def _produce(talk: Talk, label: str, request: ProduceRequest) -> None:
    def is_ready(response: Any) -> bool:
        return response.responses[0].partition_responses[0].error_code != CONCURRENT_TRANSACTIONS

    response = talk.set_up(request, until=is_ready)
    for each in response.responses[0].partition_responses:
        each.base_offset = -1
    talk.keep(label, response)


def offsets_in_transactions(talk: Talk) -> None:
    topic = "tx-offsets"
    talk.topic(topic, 1)
    talk.set_up(beat("tx-group", "a", 0, subscribed_topic_names=[topic]))
    begun = talk.set_up(begin("tx-offsets"))
    producer, epoch = begun.producer_id, begun.producer_epoch

    def commits(label: str, request: Any, version: int | None = None) -> None:
        def is_ready(response: Any) -> bool:
            return response.topics[0].partitions[0].error_code != CONCURRENT_TRANSACTIONS

        talk.ask(label, request, version, until=is_ready)

    member = {"generation_id": 1, "member_id": "a"}
    commits("commits", commit("tx-offsets", "tx-group", producer, epoch, topic, **member))
    talk.ask("fetched as stable", fetch("tx-group", "a", 1, topics=[topic], require_stable=True))
    talk.ask("fetched", fetch("tx-group", "a", 1, topics=[topic]))
    for label, request in {
        "a later epoch of the member": commit(
            "tx-offsets", "tx-group", producer, epoch, topic, generation_id=9, member_id="a"
        ),
        "an unknown member": commit("tx-offsets", "tx-group", producer, epoch, topic, generation_id=1, member_id="z"),
        "without a member": commit("tx-offsets", "tx-group", producer, epoch, topic),
        "without a group": commit("tx-offsets", "tx-nobody", producer, epoch, topic),
        "a member without a group": commit("tx-offsets", "tx-nobody-2", producer, epoch, topic, **member),
        "an empty group": commit("tx-offsets", "", producer, epoch, topic),
        "an unknown producer": commit("tx-offsets", "tx-group", UNKNOWN_PRODUCER, 0, topic, **member),
        "a later epoch": commit("tx-offsets", "tx-group", producer, epoch + 4, topic, **member),
        "an earlier epoch": commit("tx-offsets", "tx-group", producer, epoch - 1, topic, **member),
        "an unknown id": commit("tx-unknown", "tx-group", producer, epoch, topic, **member),
        "an empty id": commit("", "tx-group", producer, epoch, topic, **member),
        "an unknown topic": commit("tx-offsets", "tx-group", producer, epoch, "tx-offsets-nowhere", **member),
    }.items():
        commits(label, request)
    commits("of an older client", commit("tx-offsets", "tx-group", producer, epoch, topic, **member), 4)
    talk.ask(
        "adds a group",
        AddOffsetsToTxnRequest(
            transactional_id="tx-offsets", producer_id=producer, producer_epoch=epoch, group_id="tx-group"
        ),
    )
    ends(talk, "commits all", end("tx-offsets", producer, epoch))
    talk.ask(
        "fetched at the end",
        fetch("tx-group", "a", 1, topics=[topic], require_stable=True),
        until=lambda response: response.groups[0].topics[0].partitions[0].error_code == 0,
    )


def producer_ids(talk: Talk) -> None:
    for label, request in {
        "idempotent": begin(None),
        "an empty id": begin(""),
        "no time": begin("tx-time", timeout_ms=0),
        "a negative time": begin("tx-time", timeout_ms=-1),
        "too much time": begin("tx-time", timeout_ms=100_000_000),
        "an epoch without id": begin("tx-ids", epoch=3),
        "an id without epoch": begin("tx-ids", 5),
        "an unknown producer": begin("tx-ids", UNKNOWN_PRODUCER, 0),
        "a long id": begin("x" * 5000),
    }.items():
        talk.ask(label, request)
    begun = talk.set_up(begin("tx-ids-known"))
    talk.ask("its own", begin("tx-ids-known", begun.producer_id, begun.producer_epoch))
    talk.ask("the one before", begin("tx-ids-known", begun.producer_id, begun.producer_epoch))
    talk.ask("a later one", begin("tx-ids-known", begun.producer_id, begun.producer_epoch + 9))
    talk.ask("another producer", begin("tx-ids-known", UNKNOWN_PRODUCER, 1))


def topics_in_pages(talk: Talk) -> None:
    talk.topic("dt-a", 3)
    talk.topic("dt-b", 4)

    def ask(label: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        place = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=place
        )
        talk.ask(label, request)

    ask("two", "dt-b", "dt-a")
    ask("a topic twice", "dt-a", "dt-a")
    ask("an unknown one", "dt-nowhere")
    ask("invalid names", "", "a/b")
    ask("one page", "dt-a", "dt-b", limit=5)
    ask("the next page", "dt-a", "dt-b", limit=5, cursor=("dt-b", 2))
    ask("a full page", "dt-a", "dt-b", limit=3)
    ask("a page of one", "dt-a", "dt-b", limit=1, cursor=("dt-a", 2))
    ask("no partitions", "dt-a", limit=0)
    ask("fewer than none", "dt-a", limit=-1)
    ask("begins within", "dt-a", "dt-b", cursor=("dt-a", 1))
    ask("begins after the last", "dt-a", "dt-b", cursor=("dt-a", 3))
    ask("begins before the first", "dt-a", cursor=("dt-a", -1))
    ask("begins at a topic that is not asked for", "dt-a", cursor=("dt-b", 1))
    ask("begins at an unknown topic", "dt-a", "dt-b", cursor=("dt-aa", 0))
    ask("begins at an unknown topic that is asked for", "dt-a", "dt-nowhere", cursor=("dt-nowhere", 0))


def resources_with_settings(talk: Talk) -> None:
    talk.configure(GROUP_RESOURCE, "lr-group", consumer_heartbeat_interval_ms="6000")
    for label, types in {"groups": [32], "an unknown type": [7], "of users": [1], "both": [32, 99]}.items():
        response = talk.set_up(ListConfigResourcesRequest(resource_types=types))
        response.config_resources = [each for each in response.config_resources if each.resource_name.startswith("lr-")]
        talk.keep(label, response)
    talk.ask("subscriptions", ListConfigResourcesRequest(), 0)
    talk.ask("brokers and loggers", ListConfigResourcesRequest(resource_types=[4, 8]))


CASES: Final[tuple[Case, ...]] = (
    transactions_of_version_2,
    offsets_in_transactions,
    producer_ids,
    topics_in_pages,
    resources_with_settings,
)
