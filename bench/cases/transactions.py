"""Cases about transactions: producers that write transactions of one batch, one after the other.

Owns: the requests of a transaction, in the order in which clients send them, each after the response to the one before,
and the table `CASES`. Must not know which server responds.

A transaction has three requests: AddPartitionsToTxn, Produce with acks=all, EndTxn. While the end of the previous one
is being written, AddPartitionsToTxn fails with CONCURRENT_TRANSACTIONS and is retried immediately. Clients would wait
for 20 ms, and the benchmark would measure that wait.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from bench.admin import ask
from bench.case import HIGHER, LOWER, Case
from bench.client import SMALL_BUFFER, connect, receive_frame
from bench.frames import REQUEST_TIMEOUT_MS, produce_response_layout, request_frame
from bench.measures import Measure, Values, times
from bench.scale import Scale
from bench.subject import Subject, closing_all
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch

PRODUCE_VERSION = 9
ADD_PARTITIONS_VERSION = 3
END_TXN_VERSION = 3
TRANSACTION_TIMEOUT_MS = 60_000
TRANSACTION_COORDINATOR = 1
SET_UP_DEADLINE_S = 30.0
ASK_AGAIN_AFTER_S = 0.05

CRC_POSITION, ATTRIBUTES_POSITION, SEQUENCE_POSITION = 17, 21, 53
"""Position in a record batch: the CRC covers everything from the attributes on."""
SEQUENCE_MAX = 2**31

NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


RECORDS = 100
VALUE_SIZE = 100
RATE = Measure("rate", "transactions/s", HIGHER, times(1.0))


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that InitProducerId returned for a transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int


def new_producer(port: int, transactional_id: str) -> ProducerIdentity:
    """Initialise a producer for the transactional id; retries until its coordinator is available."""
    find = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION_COORDINATOR)
    _until_served(lambda: ask(port, find, 2, FindCoordinatorResponse).error_code, "FindCoordinator")
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    responses: list[InitProducerIdResponse] = []

    def initialize() -> int:
        responses.append(ask(port, init, 2, InitProducerIdResponse))
        return responses[-1].error_code

    _until_served(initialize, "InitProducerId")
    return ProducerIdentity(transactional_id, responses[-1].producer_id, responses[-1].producer_epoch)


class TransactionStream:
    """One producer on one connection. Each counted response is an ended transaction."""

    def __init__(
        self, port: int, producer: ProducerIdentity, topic: str, partition: int, record_count: int, value_size: int
    ) -> None:
        self.connection = connect(port)
        self.latencies_ns = array("q")
        self._buffer = memoryview(bytearray(SMALL_BUFFER))
        self._record_count = record_count
        self._sequence = 0
        self._add_frame = bytes(_add_partitions_frame(producer, topic, partition))
        self._end_frame = bytes(_end_frame(producer))
        batch = _batch(producer, record_count, value_size)
        self._produce_frame = _produce_frame(producer, topic, partition, batch)
        self._batch = memoryview(self._produce_frame)[self._produce_frame.index(batch) :][: len(batch)]
        self._produce_layout = produce_response_layout(topic)
        self._step: Callable[[], int] = self._added
        self._begun_at = 0
        self._is_draining = False

    def start(self) -> None:
        del self.latencies_ns[:]
        self._is_draining = False
        self._begin()

    def advance(self) -> int:
        return self._step()

    def drain(self) -> int:
        self._is_draining = True
        count = 0
        while not count:
            count = self._step()
        return count

    def _begin(self) -> None:
        self._begun_at = time.perf_counter_ns()
        self._step = self._added
        self.connection.sendall(self._add_frame)

    def _added(self) -> int:
        size = receive_frame(self.connection, self._buffer)
        # The error code of the one partition, then the empty tags of partition, topic and response.
        (error,) = struct.unpack_from(">h", self._buffer, size - 5)
        if error == ErrorCode.CONCURRENT_TRANSACTIONS:
            self.connection.sendall(self._add_frame)
            return 0
        _expect_success(error, "AddPartitionsToTxn")
        struct.pack_into(">i", self._batch, SEQUENCE_POSITION, self._sequence)
        struct.pack_into(">I", self._batch, CRC_POSITION, crc32c(self._batch[ATTRIBUTES_POSITION:]))
        self._sequence = (self._sequence + self._record_count) % SEQUENCE_MAX
        self._step = self._produced
        self.connection.sendall(self._produce_frame)
        return 0

    def _produced(self) -> int:
        receive_frame(self.connection, self._buffer)
        _, _, error = self._produce_layout.unpack_from(self._buffer)
        _expect_success(error, "Produce")
        self._step = self._ended
        self.connection.sendall(self._end_frame)
        return 0

    def _ended(self) -> int:
        size = receive_frame(self.connection, self._buffer)
        (error,) = struct.unpack_from(">h", self._buffer, size - 3)
        _expect_success(error, "EndTxn")
        self.latencies_ns.append(time.perf_counter_ns() - self._begun_at)
        if not self._is_draining:
            self._begin()
        return 1


def _add_partitions_frame(producer: ProducerIdentity, topic: str, partition: int) -> bytearray:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
    )
    return request_frame(request, ADD_PARTITIONS_VERSION)


def _end_frame(producer: ProducerIdentity) -> bytearray:
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    return request_frame(request, END_TXN_VERSION)


def _batch(producer: ProducerIdentity, record_count: int, value_size: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return build_batch(
        [RecordData(now_ms, None, bytes(value_size))] * record_count,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        is_transactional=True,
    )


def _produce_frame(producer: ProducerIdentity, topic: str, partition: int, batch: bytes) -> bytearray:
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=REQUEST_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return request_frame(request, PRODUCE_VERSION)


def _until_served(request: Callable[[], int], what: str) -> None:
    deadline = time.monotonic() + SET_UP_DEADLINE_S
    while (error := request()) in NOT_YET and time.monotonic() < deadline:
        time.sleep(ASK_AGAIN_AFTER_S)
    _expect_success(error, what)


def _expect_success(error: int, what: str) -> None:
    if error:
        raise RuntimeError(f"{what}: {ErrorCode(error).name}")


def transactions(subject: Subject, scale: Scale, *, producers: int) -> Values:
    """Measure transactions; every producer has its own connection, transactional id and partition."""
    with subject.topic(producers) as topic:
        identities = [new_producer(subject.port, f"{topic}-{number}") for number in range(producers)]
        streams = [
            TransactionStream(subject.port, identity, topic, partition, RECORDS, VALUE_SIZE)
            for partition, identity in enumerate(identities)
        ]
        with closing_all(streams):
            return subject.measured_for_a_time(streams, scale).small_requests()


CASES = (
    Case(
        "transactions",
        f"transactions of {RECORDS} records",
        (RATE, Measure("p50", "µs", LOWER), Measure("p99", "µs", LOWER), Measure("CPU", "µs/transaction", LOWER)),
        on_running=partial(transactions, producers=1),
    ),
    Case(
        "transactions-4-producers",
        f"transactions of {RECORDS} records, 4 producers",
        (RATE, Measure("p99", "µs", LOWER), Measure("CPU", "µs/transaction", LOWER)),
        on_running=partial(transactions, producers=4),
    ),
    Case(
        "transactions-16-producers",
        f"transactions of {RECORDS} records, 16 producers",
        (Measure("rate", "transactions/s", HIGHER), Measure("p99", "µs", LOWER)),
        on_running=partial(transactions, producers=16),
    ),
)
