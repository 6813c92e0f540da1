"""The shortcut of Produce: one partition, and acks that are due as soon as the append is done.

The request is, in bytes: key and version; correlation id; everything up to the length of the records; that length;
the records; tags. Answers from version 5 on are constant but for the correlation id and three numbers in a row: base
offset, append time, log start offset.

A transactional batch takes it where a look tells that the transaction includes the partition.

Owns which produce requests are alike. Must not know sockets, or the general way's answer beyond its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from broker.handlers.produce import ACKS_ALL
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.request_context import RequestContext
from broker.services import Services
from broker.shortcuts import (
    ANSWER,
    CORRELATION_END,
    CORRELATION_SIZE,
    KIND_SIZE,
    NUMBERS,
    NUMBERS_POSITION,
    REMEMBERED_SIZE_MAX,
    Buffer,
)
from broker.transactions.verification import ATTRIBUTES_POSITION, TransactionVerifier, transactional_header
from config.topic_properties import LONG_MAX
from protocol.api import APIS
from protocol.errors import KafkaError, Malformed
from protocol.frame import LENGTH
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.reader import read_uvarint
from protocol.records.batch import CODEC_MASK, HEADER_SIZE, NO_TIMESTAMP
from protocol.writer import uvarint
from storage.log import AppendOrigin, AppendResult, PreparedAppend
from storage.validation import COSTLY_SIZE

FIRST_VERSION = 5
ACKS_LEADER = 1
PRODUCE = APIS[0]

_LENGTH_SIZE_MAX = 5
_SHORT_LENGTH_SIZE = 2
_NEVER = 1 << 62  # the size of nothing
_FLEXIBLE_TAIL = bytes(3)  # no tags of the partition, the topic and the request


class ProduceShortcut:
    """One producer's way to one partition."""

    __slots__ = (
        "_answer_head",
        "_answer_size",
        "_answer_tail",
        "_config",
        "_is_flexible",
        "_kind",
        "_manager",
        "_needs_isr",
        "_now_ms",
        "_origin",
        "_pack_answer",
        "_partition",
        "_prefix",
        "_prefix_end",
        "_size_around",
        "_size_min",
        "_tail_size",
        "_transactional_id",
        "_unpack_start",
        "_verifier",
    )

    def __init__(
        self,
        manager: ReplicaManager,
        partition: Partition,
        verifier: TransactionVerifier,
        now_ms: Callable[[], int],
        *,
        transactional_id: str | None,
        frame: memoryview,
        prefix_size: int,
        origin: AppendOrigin,
        is_flexible: bool,
        tail_size: int,
        needs_isr: bool,
        answer: bytes,
        numbers_position: int,
    ) -> None:
        """`frame` and `answer` are a request and its answer without errors.

        The length of the records stands at `prefix_size`, as an unsigned varint if the frame `is_flexible`, and behind
        them are no tags but `tail_size` zeros which say so.
        """
        self._manager = manager
        self._partition = partition
        self._config = partition.log.config
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._now_ms = now_ms
        self._needs_isr = needs_isr
        self._origin = origin
        self._is_flexible = is_flexible
        self._tail_size = tail_size
        self._prefix_end = prefix_size
        self._size_around = prefix_size + _SHORT_LENGTH_SIZE + tail_size if is_flexible else _NEVER
        self._size_min = self._prefix_end + _LENGTH_SIZE_MAX + HEADER_SIZE + tail_size
        start = Struct(f"{KIND_SIZE}s{CORRELATION_SIZE}s{self._prefix_end - CORRELATION_END}sBB")
        self._unpack_start = start.unpack_from
        self._kind, _, self._prefix, _, _ = start.unpack_from(frame)
        self._answer_size = answer[:4]
        self._answer_head = answer[8:numbers_position]
        self._answer_tail = answer[numbers_position + NUMBERS.size :]
        self._pack_answer = Struct(f">4s{CORRELATION_SIZE}s{len(self._answer_head)}sqqq{len(self._answer_tail)}s").pack

    def answer(self, frame: memoryview) -> bytes | None:
        size = len(frame)
        if size < self._size_min:
            return None
        kind, correlation_id, prefix, low, high = self._unpack_start(frame)
        if prefix != self._prefix or kind != self._kind:
            return None
        end = size - self._tail_size
        if low >= 0x80 > high and low - 0x80 + (high << 7) - 1 == size - self._size_around:
            # Their length in two bytes, as with most, says what is left of the frame.
            records = frame[self._prefix_end + _SHORT_LENGTH_SIZE : end]
        else:
            position = self._after_length(frame, end)
            if position is None:
                return None
            records = frame[position:end]
        if self._tail_size and frame[end:] != _FLEXIBLE_TAIL:
            return None
        partition = self._partition
        log = partition.log
        if log.config is not self._config:
            return None
        if size >= COSTLY_SIZE and log.is_costly(records, self._origin):
            return None
        try:
            first_offset = (
                None if records[ATTRIBUTES_POSITION] else partition.append_plain(records, self._now_ms(), self._origin)
            )
        except KafkaError:
            return None  # the records are as they were, or the log is offline: the general way finds the same error
        if first_offset is not None:
            log_append_time_ms = NO_TIMESTAMP
            if self._manager.fetch_purgatory.watched:
                self._manager.wake_readers(partition)
        else:
            result = self._append(records)
            if result is None:
                return None
            first_offset, log_append_time_ms = result.first_offset, result.log_append_time_ms
        return self._pack_answer(
            self._answer_size,
            correlation_id,
            self._answer_head,
            first_offset,
            log_append_time_ms,
            log.log_start_offset,
            self._answer_tail,
        )

    def _after_length(self, frame: memoryview, end: int) -> int | None:
        """Where the records begin; None when their length does not say that they go on until `end`."""
        try:
            if self._is_flexible:
                size, position = read_uvarint(frame, self._prefix_end)
                size -= 1
            else:
                (size,) = LENGTH.unpack_from(frame, self._prefix_end)
                position = self._prefix_end + LENGTH.size
        except Malformed:
            return None
        return position if size == end - position else None

    def _append(self, records: memoryview) -> AppendResult | None:
        """Of what is not plain. None where the general way is to answer; nothing has changed then."""
        partition, origin = self._partition, self._origin
        if partition.log.is_slow:
            return None  # the answer has to wait until it is written
        if self._needs_isr and len(partition.leadership.isr) != 1:
            return None
        header = bytes(records[:HEADER_SIZE])
        attributes = header[ATTRIBUTES_POSITION]
        if attributes and not self._is_admitted(header):
            return None
        now_ms = self._now_ms()
        ready: memoryview | PreparedAppend = records
        try:
            if attributes & CODEC_MASK:
                prepared = partition.log.prepare_at_once(records, now_ms=now_ms, origin=origin)
                if not isinstance(prepared, PreparedAppend):
                    return None
                ready = prepared
            return self._manager.append(partition, ready, needs_isr=self._needs_isr, now_ms=now_ms, origin=origin)
        except KafkaError:
            # Nothing was written; the general way is to find the same batch, and with it the same error.
            records[:HEADER_SIZE] = header
            return None

    def _is_admitted(self, records: bytes) -> bool:
        """Whether what begins like this may be written, as far as transactions are concerned."""
        header = transactional_header(records)
        if header is None:
            return True
        partition, transactional_id = self._partition, self._transactional_id
        return transactional_id is not None and self._verifier.admits_now(
            transactional_id, (partition.topic, partition.partition), partition.log.producers(), header
        )


def learn(
    services: Services,
    frame: memoryview,
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    buffers: list[Buffer],
) -> ProduceShortcut | None:
    """What `request`, just answered with `buffers`, has in common with the next one; None when that is too little."""
    if (
        context.api_version < FIRST_VERSION
        or request.acks not in (ACKS_ALL, ACKS_LEADER)
        or len(request.topic_data) != 1
        or len(request.topic_data[0].partition_data) != 1
    ):
        return None
    topic, data = request.topic_data[0].name, request.topic_data[0].partition_data[0]
    partition = services.replica_manager.find(topic, data.index)
    told = response.responses[0].partition_responses[0]
    if partition is None or data.records is None or told.error_code or topic in services.internal_topics:
        return None
    if len(frame) - len(data.records) > REMEMBERED_SIZE_MAX:
        return None
    if partition.log.config.flush_messages != LONG_MAX:
        return None
    is_flexible, records_size = PRODUCE.is_flexible_in(context.api_version), len(data.records)
    length = uvarint(records_size + 1) if is_flexible else LENGTH.pack(records_size)
    tail_size = len(_FLEXIBLE_TAIL) if is_flexible else 0
    end = len(frame) - tail_size
    start = end - records_size
    prefix_size = start - len(length)
    # Bytes after a request are ignored in the general way, and a length may be longer than it has to; not so here.
    if frame[prefix_size:start] != length or frame[start:end] != data.records or any(frame[end:]):
        return None
    answer = b"".join(buffers)
    numbers = ANSWER.pack(told.index, 0, told.base_offset, told.log_append_time_ms, told.log_start_offset)
    if answer.count(numbers) != 1:
        return None
    return ProduceShortcut(
        services.replica_manager,
        partition,
        services.verifier,
        services.clock.now_ms,
        transactional_id=request.transactional_id,
        frame=frame,
        prefix_size=prefix_size,
        origin=AppendOrigin.of_produce_version(context.api_version),
        is_flexible=is_flexible,
        tail_size=tail_size,
        needs_isr=request.acks == ACKS_ALL,
        answer=answer,
        numbers_position=answer.index(numbers) + NUMBERS_POSITION,
    )
