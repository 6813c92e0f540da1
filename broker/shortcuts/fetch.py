"""The shortcut of Fetch: one partition, read up to the high watermark, without a session.

The request varies in its correlation id and the fetch offset; the answer in high watermark, last stable offset and
log start offset, which are three numbers in a row, and in the records with their length. One that finds too little
parks like any other, and is answered within the append that it waits for. For a consumer that goes on where it stopped
the log reads into the buffer of the answer.

Owns which fetches are alike. Must not know sockets, or the general way's answer beyond its bytes.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import cast

from broker.handlers.fetch import replica_id_of
from broker.replica.delayed_fetch import AwaitedPartition, end_of_wait_ms
from broker.replica.old_readers import FIRST_VERSION_WITH_ZSTD
from broker.replica.partition import NO_EPOCH, FetchIsolation, Partition
from broker.replica.reader import CONSUMER
from broker.request_context import RequestContext
from broker.services import Services
from broker.shortcuts import (
    ANSWER,
    CORRELATION_END,
    CORRELATION_SIZE,
    NUMBERS,
    NUMBERS_POSITION,
    REMEMBERED_SIZE_MAX,
    Answer,
    Buffer,
    Parked,
    parts_around_offset,
)
from config import broker_properties as properties
from protocol.api import APIS
from protocol.codec import encode
from protocol.errors import KafkaError
from protocol.frame import LENGTH
from protocol.headers import response_header
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.writer import BY_REFERENCE_SIZE_MIN, uvarint

FIRST_VERSION = FIRST_VERSION_WITH_ZSTD  # before it a topic whose compression is zstd is refused
NO_SESSION = -1
READ_UNCOMMITTED = 0
FETCH = APIS[1]

_PLACEHOLDER = bytes(BY_REFERENCE_SIZE_MIN)  # records of a size at which they stand apart


class FetchShortcut:
    """One consumer's way to one partition."""

    __slots__ = (
        "_answer_head",
        "_answer_middle",
        "_answer_tail",
        "_awaited",
        "_bytes_max",
        "_bytes_min",
        "_head_size",
        "_heads",
        "_is_flexible",
        "_kind",
        "_leader_epoch",
        "_length_of_most",
        "_no_length",
        "_partition",
        "_prefix",
        "_services",
        "_size",
        "_size_around",
        "_suffix",
        "_tail_size",
        "_unpack",
        "_unsent_answers",
        "_wait_ms_max",
    )

    def __init__(
        self,
        services: Services,
        partition: Partition,
        *,
        frame: memoryview,
        offset_position: int,
        version: int,
        bytes_min: int,
        bytes_max: int,
        wait_ms_max: int,
        answer_head: bytes,
        answer_middle: bytes,
        answer_tail: bytes,
    ) -> None:
        """The answer is `answer_head`, three numbers, `answer_middle`, length, records, zeros as `answer_tail`."""
        self._services = services
        self._unsent_answers = services.unsent_answers
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._bytes_min = bytes_min if wait_ms_max > 0 else 0
        self._bytes_max = bytes_max
        self._wait_ms_max = wait_ms_max
        self._is_flexible = FETCH.is_flexible_in(version)
        self._size = len(frame)
        parts = parts_around_offset(frame, offset_position)
        self._unpack = parts.unpack_from
        self._kind, _, self._prefix, _, self._suffix = parts.unpack(frame)
        self._answer_head = answer_head
        self._answer_middle = answer_middle
        self._answer_tail = answer_tail
        # For each size in which the length of records may be told that are small enough to stand in one buffer with it.
        heads = {
            size: Struct(f">i{CORRELATION_SIZE}s{len(answer_head)}sqqq{len(answer_middle)}s{size}s")
            for size in ((1, 2, 3) if self._is_flexible else (LENGTH.size,))
        }
        self._head_size = max(head.size for head in heads.values())
        self._heads = {size: (self._head_size - head.size, head.pack_into) for size, head in heads.items()}
        self._tail_size = len(answer_tail)
        self._size_around = self._head_size + self._tail_size
        self._length_of_most = self._records_length(max(bytes_max, 0))
        self._awaited: AwaitedPartition | None = None  # last, and mostly next
        self._no_length = self._records_length(0)

    def answer(self, frame: memoryview) -> Answer | None:
        if len(frame) != self._size:
            return None
        kind, correlation_id, prefix, offset, suffix = self._unpack(frame)
        if prefix != self._prefix or suffix != self._suffix or kind != self._kind:
            return None
        answer = self._going_on(correlation_id, offset, self._bytes_min)
        if answer is not None:
            return answer
        if self._bytes_min and self._is_at_end(offset):
            return self._parked(correlation_id, offset)
        records = self._read(offset)
        if records is None:
            return None
        if len(records) < self._bytes_min:
            return self._parked(correlation_id, offset)
        return self._framed(correlation_id, records)

    def _is_at_end(self, offset: int) -> bool:
        """Whether `_read` would find that there is nothing yet, as it mostly does."""
        partition = self._partition
        log = partition.log
        return (
            offset == log.log_end_offset
            and log.high_watermark >= offset
            and partition.is_leader
            and partition.leader_epoch == self._leader_epoch
            and not log.is_offline
            and self._unsent_answers.allowance > 0
        )

    def _going_on(self, correlation_id: bytes, offset: int, bytes_min: int) -> Buffer | None:
        """What `_read` and `_framed` make of it, in one buffer, for a consumer that goes on where it stopped.

        None when this cannot be told so quickly, or there are fewer than `bytes_min` bytes to send.
        """
        partition = self._partition
        log = partition.log
        high_watermark = log.high_watermark
        bytes_max = self._bytes_max
        if (
            offset >= high_watermark
            or not partition.is_leader
            or partition.leader_epoch != self._leader_epoch
            or self._unsent_answers.allowance < bytes_max
        ):
            return None
        answer = log.read_on(offset, bytes_min, bytes_max, high_watermark, self._head_size, self._tail_size)
        if answer is None:
            return None
        size = len(answer) - self._size_around
        length = self._length_of_most if size == bytes_max else self._records_length(size)
        return self._with_head(answer, correlation_id, length)

    def _with_head(self, answer: bytearray, correlation_id: bytes, length: bytes) -> Buffer:
        """`answer`, which has its records in the place for them, with what stands before."""
        log = self._partition.log
        start, pack_head = self._heads[len(length)]
        pack_head(
            answer,
            start,
            len(answer) - start - LENGTH.size,
            correlation_id,
            self._answer_head,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            self._answer_middle,
            length,
        )
        return memoryview(answer)[start:] if start else answer

    def _read(self, offset: int) -> Buffer | None:
        """The records from `offset` on that are in memory, perhaps none; None when this is not for a shortcut."""
        partition = self._partition
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            return None
        allowance = self._unsent_answers.allowance
        if not allowance:
            return None
        log = partition.log
        try:
            fetched = log.read(
                offset,
                min(self._bytes_max, allowance),
                upper_bound_offset=log.high_watermark,
                min_one_batch=True,
                nowait=True,
                may_slice=True,
            )
        except KafkaError:
            return None
        return None if fetched is None else cast(Buffer, fetched.records)  # or a slice, for the connection to send

    def _framed(self, correlation_id: bytes, records: Buffer) -> list[Buffer]:
        log = self._partition.log
        size = len(records)
        head = b"".join(
            (
                correlation_id,
                self._answer_head,
                NUMBERS.pack(log.high_watermark, log.last_stable_offset, log.log_start_offset),
                self._answer_middle,
                self._records_length(size),
            )
        )
        tail = self._answer_tail
        answer: list[Buffer] = [LENGTH.pack(len(head) + size + len(tail)) + head, records]
        if tail:
            answer.append(tail)
        return answer

    def _records_length(self, size: int) -> bytes:
        return uvarint(size + 1) if self._is_flexible else LENGTH.pack(size)

    def what_there_is(self, correlation_id: bytes, offset: int) -> list[Buffer] | None:
        """The answer to a request that waits no longer; None when this is not for a shortcut."""
        if self._is_at_end(offset):
            return [self._with_head(bytearray(self._size_around), correlation_id, self._no_length)]
        answer = self._going_on(correlation_id, offset, 0)
        if answer is not None:
            return [answer]
        records = self._read(offset)
        return None if records is None else self._framed(correlation_id, records)

    def _parked(self, correlation_id: bytes, offset: int) -> Parked | None:
        """The answer once there is enough, something changed or the time is over."""
        parked = _ParkedFetch(self, correlation_id, offset)
        manager = self._services.replica_manager
        awaited = self._awaited
        if awaited is None or awaited.fetch_offset != offset:
            awaited = self._awaited = AwaitedPartition(
                self._partition, self._leader_epoch, offset, self._bytes_max, FetchIsolation.HIGH_WATERMARK
            )
        operation = manager.await_bytes(
            (awaited,),
            self._bytes_min,
            end_of_wait_ms(self._services.clock.monotonic_ms(), self._wait_ms_max),
            parked.end_wait,
        )
        if parked.is_for_others:
            return None
        parked.on_cancel(partial(manager.fetch_purgatory.abandon, operation))
        return parked


class _ParkedFetch(Parked):
    """A consumer that waits. Thousands may, so that it is one object and not a closure with its cells."""

    __slots__ = ("_correlation_id", "_offset", "_shortcut")

    def __init__(self, shortcut: FetchShortcut, correlation_id: bytes, offset: int) -> None:
        super().__init__()
        self._shortcut = shortcut
        self._correlation_id = correlation_id
        self._offset = offset

    def end_wait(self) -> None:
        """Answer with what there is."""
        try:
            answer = self._shortcut.what_there_is(self._correlation_id, self._offset)
        except Exception as error:
            self.set_exception(error)
            return
        if answer is None:
            self.ask_in_full()
        else:
            self.set_result(answer)


def learn(
    services: Services,
    frame: memoryview,
    request: FetchRequest,
    context: RequestContext,
    response: FetchResponse,
    buffers: list[Buffer],
) -> FetchShortcut | None:
    """What `request`, just answered with `buffers`, has in common with the next one; None when that is too little."""
    version = context.api_version
    if (
        version < FIRST_VERSION
        or len(frame) > REMEMBERED_SIZE_MAX
        or request.session_epoch != NO_SESSION
        or request.isolation_level != READ_UNCOMMITTED
        or replica_id_of(request) != CONSUMER
        or len(request.topics) != 1
        or len(request.topics[0].partitions) != 1
        or request.topics[0].partitions[0].last_fetched_epoch != NO_EPOCH
    ):
        return None
    wanted, told = request.topics[0].partitions[0], response.responses[0].partitions[0]
    topic = request.topics[0].topic or services.metadata_cache.name_of(request.topics[0].topic_id)
    partition = None if topic is None else services.replica_manager.find(topic, wanted.partition)
    position = _offset_position(request, version, frame)
    if partition is None or told.error_code or position is None:
        return None
    if request.rack_id and len(partition.leadership.replicas) > 1:
        return None  # another replica may be nearer
    head, tail = _around_records(response, version)
    numbers = ANSWER.pack(wanted.partition, 0, told.high_watermark, told.last_stable_offset, told.log_start_offset)
    if head.count(numbers) != 1 or any(tail):
        return None  # in the tail are tags, if anything
    numbers_position = head.index(numbers) + NUMBERS_POSITION
    bytes_max = min(services.config[properties.FETCH_MAX_BYTES], request.max_bytes)
    return FetchShortcut(
        services,
        partition,
        frame=frame,
        offset_position=position,
        version=version,
        bytes_min=min(request.min_bytes, bytes_max),
        bytes_max=min(bytes_max, wanted.partition_max_bytes),
        wait_ms_max=request.max_wait_ms,
        answer_head=response_header(FETCH.key, version, 0)[LENGTH.size :] + head[:numbers_position],
        answer_middle=head[numbers_position + NUMBERS.size :],
        answer_tail=tail,
    )


def _around_records(response: FetchResponse, version: int) -> tuple[bytes, bytes]:
    """The body of `response` before the length of its records and after them."""
    told = response.responses[0].partitions[0]
    records, told.records = told.records, _PLACEHOLDER
    head, _, *tail = encode(response, version)
    told.records = records
    length = uvarint(len(_PLACEHOLDER) + 1) if FETCH.is_flexible_in(version) else LENGTH.pack(len(_PLACEHOLDER))
    return bytes(head[: len(head) - len(length)]), b"".join(tail)


def _offset_position(request: FetchRequest, version: int, frame: memoryview) -> int | None:
    """Where the fetch offset stands in the frame: where two encodings that differ in nothing else differ."""
    wanted = request.topics[0].partitions[0]
    offset = wanted.fetch_offset
    body = b"".join(encode(request, version))
    start = len(frame) - len(body)
    if start < CORRELATION_END or frame[start:] != body:
        return None  # tags or trailing bytes that are not known here
    wanted.fetch_offset = ~offset
    other = b"".join(encode(request, version))
    wanted.fetch_offset = offset
    differing = next(position for position, (one, two) in enumerate(zip(body, other, strict=True)) if one != two)
    return start + differing
