"""Channels for markers to all brokers: direct calls for this one, WriteTxnMarkers over a connection for the others.

Owns: the channels, and the requests with the markers of many transactions. Must not know: which transactions end, who
leads their partitions, or what an error code means for a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.coordination.background import BackgroundTasks
from broker.coordination.batched_requests import BatchedRequests
from broker.network.outgoing import Peer, Peers, PeerUnavailable
from broker.transactions.marker_writer import STEP_SIZE
from broker.transactions.markers import Codes, Marker, MarkerChannel, logger
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

PURPOSE: Final = "txn-marker-sender"


class MarkerChannels:
    """The marker channels of one broker."""

    def __init__(self, broker_id: int, own: MarkerChannel, peers: Peers, version: int, timeout_ms: int) -> None:
        """`own` is the channel to this broker itself. `timeout_ms` limits a request.

        `version` is that of the requests: the connections do not begin with ApiVersions.
        """
        self._broker_id = broker_id
        self._own = own
        self._live: Collection[int] = ()
        """The ids of the live brokers, as far as the controller has reported."""
        self._peers = peers
        self._version = version
        self._timeout_ms = timeout_ms
        self._remote: dict[int, RemoteMarkerChannel] = {}

    def get(self, broker_id: int) -> MarkerChannel | None:
        """Return the channel to a broker; None if the broker is not alive."""
        if broker_id == self._broker_id:
            return self._own
        channel = self._remote.get(broker_id)
        if channel is None and broker_id in self._live:
            channel = self._remote[broker_id] = RemoteMarkerChannel(
                broker_id, self._peers.connect(broker_id, PURPOSE), self._version, self._timeout_ms
            )
        return channel

    def brokers_changed(self, live: Collection[int]) -> None:
        """Close the channels to brokers that are not alive: their markers go to other leaders without a timeout."""
        self._live = live
        for broker_id in self._remote.keys() - set(live):
            self._remote.pop(broker_id).close()


class OwnMarkerChannel:
    """A `MarkerChannel` to this broker itself."""

    def __init__(self, writer: MarkerChannel, pause: Pause) -> None:
        self._writer = writer
        self._pause = pause
        self._tasks = BackgroundTasks(logger)

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Codes | Awaitable[Codes]:
        """See `MarkerChannel`. Other work may run after every `STEP_SIZE` partitions.

        As a request that was sent is carried out, so are all pieces, also if nobody waits for them any more.
        """
        if len(partitions) <= STEP_SIZE:
            return self._writer.write(marker, partitions)
        return asyncio.shield(self._tasks.start(self._write_in_pieces(marker, partitions)))

    async def _write_in_pieces(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Codes:
        writing: list[Codes | Awaitable[Codes]] = []
        for start in range(0, len(partitions), STEP_SIZE):
            writing.append(self._writer.write(marker, partitions[start : start + STEP_SIZE]))
            await self._pause()
        codes: dict[TopicPartition, int] = {}
        for each in writing:
            codes |= each if isinstance(each, Mapping) else await each
        return codes


class _Written(NamedTuple):
    """A marker and its partitions."""

    marker: Marker
    partitions: Sequence[TopicPartition]

    @property
    def key(self) -> int:
        """The response names only the producer."""
        return self.marker.producer_id

    @property
    def size(self) -> int:
        return len(self.partitions)

    def failed(self) -> Codes:
        return dict.fromkeys(self.partitions, ErrorCode.NETWORK_EXCEPTION)


class RemoteMarkerChannel:
    """A `MarkerChannel` to another broker."""

    def __init__(self, broker_id: int, peer: Peer, version: int, timeout_ms: int) -> None:
        self._broker_id = broker_id
        self._peer = peer
        self._version = version
        self._timeout_ms = timeout_ms
        self._batches: BatchedRequests[_Written, Codes] = BatchedRequests(
            f"markers to broker {broker_id}", self._send, _Written.failed
        )

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Awaitable[Codes]:
        """See `MarkerChannel`."""
        return self._batches.put(_Written(marker, partitions))

    def close(self) -> None:
        self._peer.close()

    async def _send(self, written: Sequence[_Written]) -> Sequence[Codes]:
        request = _request(written)
        try:
            response: WriteTxnMarkersResponse = await self._peer.ask(
                request, self._version, timeout_ms=self._timeout_ms
            )
        except PeerUnavailable as error:
            logger.warning("%d markers will be sent again: %s", len(written), error)
            return [each.failed() for each in written]
        by_producer: dict[int, dict[TopicPartition, int]] = {}
        for result in response.markers:
            codes = by_producer.setdefault(result.producer_id, {})
            for topic in result.topics:
                codes.update(((topic.name, each.partition_index), each.error_code) for each in topic.partitions)
        return [{**each.failed(), **_codes(by_producer, each)} for each in written]


def _codes(by_producer: dict[int, dict[TopicPartition, int]], written: _Written) -> Codes:
    """Return the codes of the partitions that were asked for. A peer may leave some out: they are asked for again."""
    codes = by_producer.get(written.marker.producer_id, {})
    return {partition: codes[partition] for partition in written.partitions if partition in codes}


def _request(written: Sequence[_Written]) -> WriteTxnMarkersRequest:
    # On demand: only a broker with others beside it sends these.
    from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

    request = WriteTxnMarkersRequest(markers=[])
    for marker, partitions in written:
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for topic, partition in partitions:
            if topic not in topics:
                topics[topic] = WritableTxnMarkerTopic(name=topic, partition_indexes=[])
            topics[topic].partition_indexes.append(partition)
        request.markers.append(
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_committed,
                topics=list(topics.values()),
                coordinator_epoch=marker.coordinator_epoch,
            )
        )
    return request
