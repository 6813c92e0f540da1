"""The shortcuts of AddPartitionsToTxn and EndTxn: a producer that goes from one transaction to the next.

It sends the same bytes each time, but for the correlation id, and its answer varies in that and in an error code, the
same for every partition. That code may be any: who is told to come again (CONCURRENT_TRANSACTIONS) repeats itself too.

Owns which of these requests are alike. Must not know sockets, or the general way's answer beyond its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from struct import Struct

from broker.handlers import add_partitions_to_txn, end_txn
from broker.request_context import RequestContext
from broker.services import Services
from broker.shortcuts import CORRELATION_END, KIND_SIZE, REMEMBERED_SIZE_MAX, Answer, Buffer
from broker.transactions.transaction import Producer
from protocol.codec import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

# Before these versions a fenced producer is told another code than the coordinator's.
FIRST_ADD_VERSION = add_partitions_to_txn.FIRST_VERSION_WITH_PRODUCER_FENCED
FIRST_END_VERSION = end_txn.FIRST_VERSION_WITH_PRODUCER_FENCED

_ERROR = Struct(">h")

Step = Callable[[], Awaitable[None] | None]
"""Has the coordinator take the step: None when that is done, otherwise to be awaited. Raises KafkaError, either way."""


class TransactionShortcut:
    """One step of one producer's transactions."""

    __slots__ = ("_answer_pieces", "_answer_size", "_is_alike", "_kind", "_rest", "_step")

    def __init__(
        self, frame: memoryview, answer: bytes, codes_at: list[int], step: Step, is_alike: Callable[[], bool]
    ) -> None:
        """`frame` and `answer` are a request and its answer, which has an error code at each of `codes_at`.

        `is_alike()` says whether the coordinator would be asked for the step in the general way too.
        """
        self._kind = bytes(frame[:KIND_SIZE])
        self._rest = bytes(frame[CORRELATION_END:])
        starts = [CORRELATION_END, *(at + _ERROR.size for at in codes_at)]
        self._answer_size = answer[:KIND_SIZE]
        self._answer_pieces = [answer[start:end] for start, end in zip(starts, [*codes_at, len(answer)], strict=True)]
        self._step = step
        self._is_alike = is_alike

    def answer(self, frame: memoryview) -> Answer | None:
        if frame[CORRELATION_END:] != self._rest or frame[:KIND_SIZE] != self._kind or not self._is_alike():
            return None
        correlation_id = bytes(frame[KIND_SIZE:CORRELATION_END])
        try:
            awaited = self._step()
        except KafkaError as error:
            return self._framed(correlation_id, error.code)
        if awaited is None:
            return self._framed(correlation_id, ErrorCode.NONE)
        return asyncio.ensure_future(self._later(correlation_id, awaited))

    async def _later(self, correlation_id: bytes, awaited: Awaitable[None]) -> list[Buffer] | None:
        try:
            await awaited
        except KafkaError as error:
            return [self._framed(correlation_id, error.code)]
        return [self._framed(correlation_id, ErrorCode.NONE)]

    def _framed(self, correlation_id: bytes, code: ErrorCode) -> bytes:
        return self._answer_size + correlation_id + _ERROR.pack(code).join(self._answer_pieces)


def learn_add_partitions(
    services: Services,
    frame: memoryview,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
    response: AddPartitionsToTxnResponse,
    buffers: list[Buffer],
) -> TransactionShortcut | None:
    """What `request`, just answered with `buffers`, has in common with the next one; None when that is too little."""
    version = context.api_version
    results = [each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition]
    if (
        not FIRST_ADD_VERSION <= version < add_partitions_to_txn.FIRST_VERSION_OF_BROKERS
        or len(frame) > REMEMBERED_SIZE_MAX
        or not results
        or any(each.partition_error_code for each in results)
    ):
        return None
    answer = b"".join(buffers)
    failure = add_partitions_to_txn.failed(request, context, ErrorCode.UNKNOWN_SERVER_ERROR)
    exists = services.metadata_cache.contains
    partitions = [(topic.name, partition) for topic in request.v3_and_below_topics for partition in topic.partitions]
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    return TransactionShortcut(
        frame,
        answer,
        _codes_in(answer, response, failure, version),
        partial(services.transactions.add_partitions, request.v3_and_below_transactional_id, producer, partitions),
        lambda: all(exists(topic, partition) for topic, partition in partitions),
    )


def learn_end(
    services: Services,
    frame: memoryview,
    request: EndTxnRequest,
    context: RequestContext,
    response: EndTxnResponse,
    buffers: list[Buffer],
) -> TransactionShortcut | None:
    """As `learn_add_partitions`."""
    version = context.api_version
    if version < FIRST_END_VERSION or len(frame) > REMEMBERED_SIZE_MAX or response.error_code:
        return None
    answer = b"".join(buffers)
    failure = end_txn.failed(request, context, ErrorCode.UNKNOWN_SERVER_ERROR)
    producer = Producer(request.producer_id, request.producer_epoch)
    end = partial(services.transactions.end, request.transactional_id, producer, is_committed=request.committed)
    return TransactionShortcut(frame, answer, _codes_in(answer, response, failure, version), end, lambda: True)


def _codes_in(answer: bytes, success: object, failure: object, version: int) -> list[int]:
    """Where the error codes stand in `answer`: where a success and a failure of the same request are encoded otherwise.

    Both bytes of each are, because the code of `failure` is -1.
    """
    body, other = b"".join(encode(success, version)), b"".join(encode(failure, version))
    start = len(answer) - len(body)
    return [start + at for at, (one, two) in enumerate(zip(body, other, strict=True)) if one != two][:: _ERROR.size]
