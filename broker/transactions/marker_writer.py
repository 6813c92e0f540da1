"""Appending markers to the partitions that this broker leads: the receiving side of WriteTxnMarkers.

Owns: the order append, replicate, tell. Must not know: who sends markers, and what the listener does with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from broker.clock import Clock
from broker.replica.delayed_produce import AwaitedAppend
from broker.replica.manager import ReplicaManager
from broker.transactions.markers import Codes, Marker
from broker.transactions.transaction import TopicPartition
from broker.transactions.verification import Guards
from protocol.errors import ErrorCode, KafkaError
from protocol.records.control import ControlType, TransactionMarker, build_marker
from storage.log import AppendOrigin

MarkerListener = Callable[[str, int, Marker], None]


class MarkerWriter:
    """A `MarkerChannel` to this broker itself."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        guards: Guards,
        clock: Clock,
        timeout_ms: int,
        on_replicated: MarkerListener,
    ) -> None:
        """`on_replicated(topic, partition, marker)` is called once a marker cannot be lost any more."""
        self._replica_manager = replica_manager
        self._guards = guards
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_replicated = on_replicated

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Codes | Awaitable[Codes]:
        """See `MarkerChannel`. All appends are issued in this step."""
        wanted = dict.fromkeys(partitions)
        codes: dict[TopicPartition, int] = {}
        awaited: list[tuple[TopicPartition, AwaitedAppend]] = []
        for partition in wanted:
            try:
                append = self._append(marker, partition)
            except KafkaError as error:
                codes[partition] = error.code
                continue
            append.error = append.outcome()
            if append.error is None:
                awaited.append((partition, append))
            else:
                codes[partition] = self._decided(marker, partition, append)
        return self._when_replicated(marker, awaited, codes) if awaited else codes

    def _when_replicated(
        self, marker: Marker, awaited: Sequence[tuple[TopicPartition, AwaitedAppend]], codes: dict[TopicPartition, int]
    ) -> Awaitable[Codes]:
        """Watch every append; the codes of all once the last is decided."""
        all_decided: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        count = len(codes) + len(awaited)
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms

        def decide(partition: TopicPartition, append: AwaitedAppend) -> None:
            codes[partition] = self._decided(marker, partition, append)
            if len(codes) == count and not all_decided.done():
                all_decided.set_result(codes)

        for partition, append in awaited:
            self._replica_manager.await_commit([append], deadline_ms, partial(decide, partition, append))
        return all_decided

    def _decided(self, marker: Marker, partition: TopicPartition, append: AwaitedAppend) -> ErrorCode:
        assert append.error is not None
        if not append.error:
            self._on_replicated(*partition, marker)
        return append.error

    def _append(self, marker: Marker, name: TopicPartition) -> AwaitedAppend:
        partition = self._replica_manager.find(*name)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now_ms = self._clock.now_ms()
        control_type = ControlType.COMMIT if marker.is_committed else ControlType.ABORT
        batch = build_marker(
            TransactionMarker(control_type, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            now_ms=now_ms,
        )
        result = self._replica_manager.append(
            partition, memoryview(bytearray(batch)), needs_isr=True, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
        )
        self._guards.cancel(name, marker.producer_id)
        return AwaitedAppend(partition, partition.leader_epoch, result.last_offset + 1)
