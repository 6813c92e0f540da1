"""Appends markers to the partitions that this broker leads: the receiving side of WriteTxnMarkers.

Owns: the order append, replicate, notify. Must not know: which broker sends markers, or what the listener does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from base.clock import Clock
from base.topic_partition import TopicPartition
from broker.replica.bound_partition import Bound, BoundPartition, bind
from broker.replica.delayed_produce import AwaitedAppend
from broker.replica.manager import ReplicaManager
from broker.replica.own_appends import OwnAppends
from broker.replica.transaction_verification import Guards
from broker.transactions.markers import Codes, Marker, logger
from protocol.errors import ErrorCode, KafkaError
from protocol.records.control import ControlType, TransactionMarker, build_marker
from storage.batches.validation import AppendOrigin

MarkerListener = Callable[[str, int, Marker], None]

STEP_SIZE = 100
"""Partitions to which a marker is appended before other requests get their turn."""


class MarkerWriter:
    """Appends markers. With more than `STEP_SIZE` partitions, callers pause in between."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        own_appends: OwnAppends,
        guards: Guards,
        clock: Clock,
        timeout_ms: int,
        on_replicated: MarkerListener,
    ) -> None:
        """`on_replicated(topic, partition, marker)` is called once all in-sync replicas have a marker.

        `timeout_ms` limits how long a marker may take to be replicated.
        """
        self._replica_manager = replica_manager
        self._own_appends = own_appends
        self._bound: Bound = {}
        self._guards = guards
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_replicated = on_replicated

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Codes | Awaitable[Codes]:
        """See `MarkerChannel.write`. All appends are issued in this step.

        A marker without producer id or epoch is refused with INVALID_REQUEST.
        """
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            logger.error("Marker of producer id %d with epoch %d is not written: expected both from 0 on",
                         marker.producer_id, marker.producer_epoch)  # fmt: skip
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        now_ms = self._clock.now_ms()
        batch = build_marker(
            TransactionMarker(
                ControlType.COMMIT if marker.is_committed else ControlType.ABORT, marker.coordinator_epoch
            ),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            now_ms=now_ms,
        )
        codes: dict[TopicPartition, int] = {}
        awaited: list[tuple[BoundPartition, AwaitedAppend]] = []
        for name in dict.fromkeys(partitions):
            try:
                bound, end_offset = self._append(marker, bytearray(batch), name, now_ms)
            except KafkaError as error:
                codes[name] = error.code
                continue
            if self._own_appends.is_complete(bound, end_offset):
                codes[name] = self._done(marker, name, ErrorCode.NONE)
                continue
            append = AwaitedAppend(bound.partition, bound.partition.leading_since, end_offset)
            if code := append.outcome():
                codes[name] = self._done(marker, name, code)
            else:
                awaited.append((bound, append))
        return self._when_replicated(marker, awaited, codes) if awaited else codes

    def _when_replicated(
        self, marker: Marker, awaited: Sequence[tuple[BoundPartition, AwaitedAppend]], codes: dict[TopicPartition, int]
    ) -> Awaitable[Codes]:
        """Wait for every append; resolves to the codes of all once the last outcome is known."""
        all_done: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        count = len(codes) + len(awaited)
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms

        def decide(partition: TopicPartition, append: AwaitedAppend) -> None:
            assert append.error is not None
            codes[partition] = self._done(marker, partition, append.error)
            if len(codes) == count and not all_done.done():
                all_done.set_result(codes)

        for bound, append in awaited:
            self._own_appends.await_outcome(bound, append, deadline_ms, partial(decide, bound.key, append))
        return all_done

    def _done(self, marker: Marker, name: TopicPartition, error: ErrorCode) -> ErrorCode:
        if not error:
            self._on_replicated(*name, marker)
        return error

    def _append(
        self, marker: Marker, batch: bytearray, name: TopicPartition, now_ms: int
    ) -> tuple[BoundPartition, int]:
        """Append a marker; return the partition and the offset that its high watermark has to reach.

        Raises KafkaError.
        """
        bound = bind(self._bound, self._replica_manager, *name)
        if bound is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        result = bound.append(memoryview(batch), needs_isr=True, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
        self._guards.cancel(name, marker.producer_id)
        return bound, result.last_offset + 1
