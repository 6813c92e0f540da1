"""The coordinators' port to the partitions of their internal topic, over the replica manager.

Owns: committed appends to a partition, and reads of its batches, by partition number. Must not know: what records mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from base.clock import Clock
from base.pause import InThread
from broker.cluster.metadata_cache import MetadataCache
from broker.coordination.led_partitions import LedPartitions
from broker.network.outgoing import Peer, PeerUnavailable
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.bound_partition import Bound, bind
from broker.replica.delayed_produce import AwaitedAppend
from broker.replica.manager import ReplicaManager
from broker.replica.own_appends import OwnAppends
from broker.replica.partition import Partition
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.records.batch import batches
from storage.batches.validation import AppendOrigin

Buffer = bytes | bytearray | memoryview

COMMIT_CHECK_MS: Final = 30_000
"""How long `committed` waits for an event of the partition before it checks again."""

DEBUGGER: Final = -2
"""The replica id of readers that may read any replica."""
FOLLOWER_FETCH_VERSION: Final = 12
"""The last version that names topics."""
FOLLOWER_TIMEOUT_MS: Final = 10_000

_COORDINATOR = AppendOrigin.COORDINATOR  # looked up once: access to an enum member costs as much as a call


def follow_leadership(assigned: AssignedReplicas, topic: str, partitions: LedPartitions[Any]) -> None:
    """Load a partition of a coordinator's topic when this broker becomes its leader, and unload it when it resigns."""
    assigned.on_leadership(
        topic,
        gained=lambda partition: partitions.become_leader(partition.partition, partition.leader_epoch),
        lost=lambda partition: partitions.resign(partition.partition),
    )


class ReplicatedLog:
    """Appends with acks=all and reads whole batches of one internal topic, by partition number."""

    def __init__(
        self,
        topic: str,
        replica_manager: ReplicaManager,
        own_appends: OwnAppends,
        metadata: MetadataCache,
        clock: Clock,
        in_thread: InThread,
        connect: Callable[[int, str], Peer],
    ) -> None:
        """`connect(broker_id, purpose)` returns a new connection to another broker."""
        self._topic = topic
        self._replica_manager = replica_manager
        self._own_appends = own_appends
        self._bound: Bound = {}
        self._metadata = metadata
        self._clock = clock
        self._in_thread = in_thread
        self._connect = connect

    def partition_count(self) -> int | None:
        """Return the partition count of the topic; None while it does not exist."""
        return self._metadata.partition_count(self._topic)

    def start_offset(self, partition: int) -> int:
        """Return the first offset of the log. Raises KafkaError if this broker does not lead the partition."""
        return self._require(partition).log.log_start_offset

    def end_offset(self, partition: int) -> int:
        """Return the offset after the last record. Raises KafkaError if this broker does not lead the partition."""
        return self._require(partition).log.log_end_offset

    def append(
        self, partition: int, batch: bytearray, timeout_ms: int, *, needs_isr: bool = True
    ) -> asyncio.Future[None] | None:
        """Append `batch`, which is changed in place. Return None if all in-sync replicas have it already.

        Otherwise the future is done once they have it, and it is synced if `flush.messages` demands that, in the order
        of the log. Without `needs_isr` it is done once this broker has it, however few replicas are in sync. Raises
        KafkaError, synchronously or from the future.
        """
        bound = bind(self._bound, self._replica_manager, self._topic, partition)
        if bound is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        result = bound.append(memoryview(batch), needs_isr=needs_isr, now_ms=self._clock.now_ms(), origin=_COORDINATOR)
        found = bound.partition
        if self._own_appends.is_complete(bound, result.last_offset + 1):
            return None  # this broker is alone in the ISR: the hot path needs no future and no timer
        append = AwaitedAppend(found, found.leading_since, result.last_offset + 1, needs_isr)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def decide() -> None:
            if committed.done():
                return
            if append.error:
                committed.set_exception(KafkaError(append.error))
            else:
                committed.set_result(None)

        self._own_appends.await_outcome(bound, append, self._clock.monotonic_ms() + timeout_ms, decide)
        return committed

    async def committed(self, partition: int, end_offset: int) -> None:
        """Wait until all in-sync replicas have the log up to `end_offset`.

        Raises KafkaError if this broker does not lead the partition, or stops leading it before then.
        """
        found = self._require(partition)
        while found.log.high_watermark < end_offset:
            append = AwaitedAppend(found, found.leading_since, end_offset)
            decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._replica_manager.await_commit(
                [append],
                self._clock.monotonic_ms() + COMMIT_CHECK_MS,
                lambda decided=decided: None if decided.done() else decided.set_result(None),  # type: ignore[misc]
            )
            await decided
            if append.error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
                raise KafkaError(append.error)

    async def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Read batches from `offset` up to the log end, at least one whole batch; b"" at the end. Raises KafkaError."""
        log = self._require(partition).log
        fetched = await self._in_thread(
            lambda: log.reader.read(offset, max_bytes, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        )
        return b"" if fetched is None else fetched.records

    async def read_follower(self, partition: int, follower: int, offset: int, max_bytes: int) -> Buffer:
        """Read batches of a follower's copy below its high watermark; b"" if there are none. Raises KafkaError."""
        found = self._require(partition)
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            replica_id=DEBUGGER,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=self._topic, partitions=[wanted])],
        )
        peer = self._connect(follower, "coordinator-replay")
        try:
            response: FetchResponse = await peer.ask(request, FOLLOWER_FETCH_VERSION, timeout_ms=FOLLOWER_TIMEOUT_MS)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
            ((data,),) = (topic.partitions for topic in response.responses)
            if data.error_code:
                raise KafkaError(ErrorCode(data.error_code))
            if not found.log.log_start_offset <= offset < data.high_watermark:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"its high watermark is {data.high_watermark}")
            return _below(bytes(data.records or b""), data.high_watermark)
        except PeerUnavailable as error:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, str(error)) from error
        except (Malformed, ValueError) as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        finally:
            peer.close()

    def in_sync_followers(self, partition: int) -> Sequence[int]:
        """Return the ids of the other brokers with an in-sync replica. Raises KafkaError."""
        found = self._require(partition)
        return [replica for replica in found.leadership.isr if replica != found.leadership.leader_id]

    def segment_path(self, partition: int, offset: int) -> str:
        """Return the path of the log segment that may hold an offset, for messages."""
        log = self._require(partition).log
        return (log.segments.floor(offset) or log.segments.first).path

    def _require(self, partition: int) -> Partition:
        found = self._replica_manager.find(self._topic, partition)
        if found is None or not found.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return found


def _below(records: bytes, end_offset: int) -> bytes:
    """Return the whole batches that end at or below an offset. Raises Malformed."""
    size = 0
    for position, header in batches(records):
        if header.next_offset > end_offset:
            break
        size = position + header.size
    return records[:size]
