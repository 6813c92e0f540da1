"""Transactions as clients see them: atomic, with one producer per id, also after crashes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from broker.transactions.machine.records import read_value, write_value
from broker.transactions.machine.states import TransactionState
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records.batch import batches, records
from protocol.records.builder import RecordData, build_batch
from tests.support.at_once import Outcomes, at_once
from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until
from tests.support.wire_client import WireClient

DEADLINE_S = 30
QUIET_S = 0.3

until = partial(wait_until, timeout_s=DEADLINE_S)


def transactional(broker: BrokerProcess, name: str, **settings: object) -> Producer:
    """Return a producer that is ready for its first transaction."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            **settings,
        }
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def write(producer: Producer, topic: str, *values: str) -> None:
    """Produce values to partitions 0 and 1 alternately, and wait for the acknowledgements."""
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0


def read_all(broker: BrokerProcess, topic: str) -> list[str]:
    """Return the committed values of partitions 0 and 1, up to their current ends."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
         "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    values: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(ended) < 2:
        assert time.monotonic() < deadline, "both partitions end"
        for message in consumer.consume(100, QUIET_S):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended.add(message.partition())
    consumer.close()
    return values


def read(broker: BrokerProcess, topic: str, count: int, *, isolation: str = "read_committed") -> list[str]:
    """Return the values of partitions 0 and 1; fails unless there are exactly `count`."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": isolation,
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    values: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < count and time.monotonic() < deadline:
        values += [message.value().decode() for message in consumer.consume(count - len(values), 0.2)]
    extra = [message.value().decode() for message in consumer.consume(1, QUIET_S)]
    consumer.close()
    assert len(values) == count
    assert extra == []
    return sorted(values)


def committed(broker: BrokerProcess, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], DEADLINE_S)
    consumer.close()
    return int(found.offset)


@pytest.fixture
def transactional_id(topic: str) -> str:
    """A new transactional id."""
    return f"of-{topic}"


def test_committed_records_are_seen_and_aborted_ones_are_not(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    producer = transactional(broker, transactional_id)
    for number in range(6):
        producer.begin_transaction()
        write(producer, topic, f"a{number}", f"b{number}")
        if number % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    assert read(broker, topic, 6) == ["a0", "a2", "a4", "b0", "b2", "b4"]
    assert len(read(broker, topic, 12, isolation="read_uncommitted")) == 12


def test_open_transactions_block_read_committed_consumers(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    first, second = transactional(broker, transactional_id), transactional(broker, f"{transactional_id}-2")
    for producer, value in ((first, "first"), (second, "second")):
        producer.begin_transaction()
        write(producer, topic, value)
    second.commit_transaction(DEADLINE_S)
    read(broker, topic, 0)
    first.commit_transaction(DEADLINE_S)
    assert read(broker, topic, 2) == ["first", "second"]


def test_offsets_are_committed_with_the_records_or_not_at_all(
    broker: BrokerProcess, topic: str, group: str, transactional_id: str
) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        plain.produce(source, b"%d" % number, partition=0)
    assert plain.flush(DEADLINE_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "isolation.level": "read_committed", "session.timeout.ms": 6000}
    )  # fmt: skip
    consumer.subscribe([source])
    producer = transactional(broker, transactional_id)
    for attempt, ends_well in enumerate((True, False, True)):
        messages: list[Message] = []
        while not messages:
            messages = consumer.consume(5, DEADLINE_S)
        before = committed(broker, group, source)
        producer.begin_transaction()
        write(producer, target, *(f"{attempt}:{message.value().decode()}" for message in messages))
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
        if ends_well:
            producer.commit_transaction(DEADLINE_S)
            continue
        producer.abort_transaction(DEADLINE_S)
        assert committed(broker, group, source) == before
        consumer.seek(TopicPartition(source, 0, before))
    done = committed(broker, group, source)
    values = read(broker, target, done)
    assert [value.partition(":")[2] for value in sorted(values, key=lambda value: int(value[2:]))] == [
        str(number) for number in range(done)
    ]
    assert not any(value.startswith("1:") for value in values)
    consumer.close()


def test_a_newer_instance_fences_the_older_one_and_aborts_its_transaction(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    zombie = transactional(broker, transactional_id)
    zombie.begin_transaction()
    write(zombie, topic, "zombie")
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    write(producer, topic, "alive")
    producer.commit_transaction(DEADLINE_S)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(DEADLINE_S)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert read(broker, topic, 1) == ["alive"]


def test_aiokafka_commits_and_aborts_transactions(
    broker: BrokerProcess, topic: str, group: str, transactional_id: str
) -> None:
    """The oldest versions of the transactional APIs."""

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"kept", partition=0)
                await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): 3}, group)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"dropped", partition=1)
            await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())
    assert read(broker, topic, 1) == ["kept"]
    assert committed(broker, group, topic) == 3


def test_an_aborted_producers_late_batch_is_rejected(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """The purpose of verification: such a batch would open a hanging transaction."""
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    write(producer, topic, "aborted", "aborted")
    producer.abort_transaction(DEADLINE_S)
    with WireClient(broker.port) as client:
        (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
        batch = build_batch(
            [RecordData(0, None, b"late")],
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            base_sequence=1,
            is_transactional=True,
        )

        def code_of(name: str | None, version: int) -> int:
            data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topic_data=[data])
            return int(client.ask(request, version).responses[0].partition_responses[0].error_code)

        until(lambda: code_of(transactional_id, 11) == ErrorCode.TRANSACTION_ABORTABLE, "the markers are written")
        assert code_of(transactional_id, 10) == ErrorCode.INVALID_TXN_STATE
        assert code_of("nobody", 11) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert code_of(None, 11) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        (described,) = client.ask(_producers_of(topic), 0).topics[0].partitions
        assert [each.current_txn_start_offset for each in described.active_producers] == [-1]
    assert len(read(broker, topic, 2, isolation="read_uncommitted")) == 2


def test_transactions_are_listed_described_and_ended_by_hand(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    write(producer, topic, "hangs")
    with WireClient(broker.port) as client:
        (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
        assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", 60_000)
        assert [(each.topic, each.partitions) for each in state.topics] == [(topic, [0])]
        listed = client.ask(
            ListTransactionsRequest(state_filters=["Ongoing", "NoSuch"], producer_id_filters=[state.producer_id]), 1
        )
        assert listed.unknown_state_filters == ["NoSuch"]
        assert [each.transactional_id for each in listed.transaction_states] == [transactional_id]
        (described,) = client.ask(_producers_of(topic), 0).topics[0].partitions
        (open_producer,) = described.active_producers
        assert (open_producer.producer_id, open_producer.current_txn_start_offset) == (state.producer_id, 0)
        marker = WritableTxnMarker(
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 99])],
            coordinator_epoch=open_producer.coordinator_epoch,
        )
        (written,) = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
        assert [each.error_code for each in written.topics[0].partitions] == [
            ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]  # fmt: skip
        (described,) = client.ask(_producers_of(topic), 0).topics[0].partitions
        assert [each.current_txn_start_offset for each in described.active_producers] == [-1]
    read(broker, topic, 0)


def test_fenced_producers_get_the_code_of_their_version(broker: BrokerProcess, transactional_id: str) -> None:
    producer = transactional(broker, transactional_id)
    with WireClient(broker.port) as client:
        (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
        for version in range(5):
            request = EndTxnRequest(
                transactional_id=transactional_id, producer_id=state.producer_id,
                producer_epoch=state.producer_epoch + 1, committed=True,
            )  # fmt: skip
            fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
            assert client.ask(request, version).error_code == fenced
        for timeout_ms, code in ((0, 50), (900_001, 50), (900_000, 0)):
            init = InitProducerIdRequest(transactional_id=f"{transactional_id}-new", transaction_timeout_ms=timeout_ms)
            assert client.ask(init, 5).error_code == code
    del producer


def _producers_of(topic: str) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])


# Crashes and timeouts, each with a separate broker


def own_broker(folder: Path, state_partitions: int = 3) -> BrokerProcess:
    return BrokerProcess(
        folder / "broker",
        {
            "num.partitions": "2",
            "transaction.state.log.num.partitions": str(state_partitions),
            "offsets.topic.num.partitions": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        },
    )


def test_a_transaction_is_aborted_after_its_timeout(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        producer = transactional(broker, "slow", **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
        producer.begin_transaction()
        write(producer, "t", "late")
        with WireClient(broker.port) as client:

            def state() -> str:
                request = DescribeTransactionsRequest(transactional_ids=["slow"])
                return str(client.ask(request, 0).transaction_states[0].transaction_state)

            assert state() == "Ongoing"
            until(lambda: state() == "CompleteAbort", "the transaction is aborted")
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(DEADLINE_S)
        assert caught.value.args[0].fatal()
        read(broker, "t", 0)


def survive(folder: Path) -> None:
    with own_broker(folder) as broker:
        producer = transactional(broker, "patient")
        producer.begin_transaction()
        write(producer, "t", "before")
        broker.kill()
        broker.start()
        write(producer, "t", "after")
        producer.commit_transaction(DEADLINE_S)
        assert read(broker, "t", 2) == ["after", "before"]


def abort_with_the_next_instance(folder: Path) -> None:
    with own_broker(folder) as broker:
        dead = transactional(broker, "id")
        dead.begin_transaction()
        write(dead, "t", "left")
        broker.kill()
        broker.start()
        producer = transactional(broker, "id")
        producer.begin_transaction()
        write(producer, "t", "new")
        producer.commit_transaction(DEADLINE_S)
        assert read(broker, "t", 1) == ["new"]


def crash_during_the_end(folder: Path, delay_s: float) -> None:
    """The broker crashes at the end of a transaction, which is stored completely or not at all; earlier ones exist."""
    with own_broker(folder) as broker:
        acknowledged: list[str] = []
        for kill in range(2):
            producer = transactional(broker, "id")
            for number in range(3):
                producer.begin_transaction()
                write(producer, "t", f"{kill}.{number}/0", f"{kill}.{number}/1")
                producer.commit_transaction(DEADLINE_S)
                acknowledged += [f"{kill}.{number}/0", f"{kill}.{number}/1"]
            producer.begin_transaction()
            write(producer, "t", f"{kill}.3/0", f"{kill}.3/1")
            with WireClient(broker.port) as client:
                request = DescribeTransactionsRequest(transactional_ids=["id"])
                (state,) = client.ask(request, 0).transaction_states
                end = EndTxnRequest(
                    transactional_id="id", producer_id=state.producer_id, producer_epoch=state.producer_epoch,
                    committed=True,
                )  # fmt: skip
                client.send(end, 4)
                time.sleep(delay_s)
                broker.kill()
            broker.start()
        transactional(broker, "id")
        seen = read_all(broker, "t")
        assert set(acknowledged) <= set(seen)
        assert len(set(seen)) == len(seen)
        assert {value[:-1] + "0" for value in seen} == {value for value in seen if value.endswith("0")}
        assert {value[:-1] + "1" for value in seen} == {value for value in seen if value.endswith("1")}


def complete_after_the_crash(folder: Path, is_committed: bool) -> None:
    """The log ends with the decision, as after a crash right after storing it; no partition has a marker."""
    with own_broker(folder, state_partitions=1) as broker:
        producer = transactional(broker, "id")
        producer.begin_transaction()
        write(producer, "t", "decided", "decided")
        broker.kill()
        decide(broker.log_dir / "__transaction_state-0", is_committed=is_committed)
        broker.start()
        assert read(broker, "t", 2 if is_committed else 0) == ["decided"] * (2 if is_committed else 0)
        with WireClient(broker.port) as client:
            (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=["id"]), 0).transaction_states
            assert state.transaction_state == ("CompleteCommit" if is_committed else "CompleteAbort")


DELAYS_S = (0, 0.0005, 0.002)
STORIES: Mapping[str, tuple[Callable[..., None], *tuple[Any, ...]]] = {
    "survives": (survive,),
    "next instance": (abort_with_the_next_instance,),
    **{f"crash after {delay_s}": (crash_during_the_end, delay_s) for delay_s in DELAYS_S},
    **{f"committed {is_committed}": (complete_after_the_crash, is_committed) for is_committed in (True, False)},
}


def live(folder: Path, story: Callable[..., None], *told: Any) -> None:
    story(folder, *told)


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """Stories with a crash: all wait for starts of their brokers and for retries of their producers."""
    with at_once(live, {name: (tmp_path_factory.mktemp("crash"), *story) for name, story in STORIES.items()}) as ends:
        yield ends


def test_a_transaction_survives_a_crash_and_ends_with_its_producers_outcome(crashes: Outcomes) -> None:
    crashes["survives"].result()


def test_the_next_instance_aborts_an_open_transaction_after_a_crash(crashes: Outcomes) -> None:
    crashes["next instance"].result()


@pytest.mark.parametrize("delay_s", DELAYS_S)
def test_a_crash_during_the_end_leaves_every_transaction_complete(crashes: Outcomes, delay_s: float) -> None:
    crashes[f"crash after {delay_s}"].result()


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_that_was_decided_before_the_crash_is_completed_after_it(
    crashes: Outcomes, is_committed: bool
) -> None:
    crashes[f"committed {is_committed}"].result()


def decide(directory: Path, *, is_committed: bool) -> None:
    """Append the decision about the last transaction to a log of `__transaction_state`."""
    path = directory / f"{0:020}.log"
    log = path.read_bytes()
    *_, (position, header) = batches(log)
    (last,) = records(log, position, size_max=1 << 16)
    assert last.value is not None
    state = TransactionState.PREPARE_COMMIT if is_committed else TransactionState.PREPARE_ABORT
    value = write_value(read_value(last.value)._replace(state=state))
    batch = build_batch(
        [RecordData(last.timestamp, last.key, value)],
        base_offset=header.next_offset,
        leader_epoch=header.partition_leader_epoch,
    )
    path.write_bytes(log[: position + header.size] + batch)
