"""The way to the controller of the cluster: a direct call if this broker is the controller, else connections to it.

Owns: which broker is asked, and what its top-level errors mean. Must not know: why the controller is asked, or when a
request that failed is repeated: the callers do that.

As in Kafka, AlterPartition and AllocateProducerIds each have a connection that begins with ApiVersions, so that a slow
request of one kind does not delay the other. ControlledShutdown has one too, in the version of
inter.broker.protocol.version 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.peers import ALTER_PARTITION, FORWARDING, BrokerPeers, Link
from broker.network.outgoing import OutgoingConnection
from config.addresses import HostAndPort
from controller.controller import Controller
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
    from protocol.messages.controlled_shutdown import ControlledShutdownResponse

ALTER_PARTITION_VERSION: Final = 3
ALLOCATE_PRODUCER_IDS_VERSION: Final = 0
CONTROLLED_SHUTDOWN_VERSION: Final = 3

MOVED: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_CONTROLLER_EPOCH})
"""Codes of a broker that is no longer the controller."""


class ControllerLink:
    """The controller as this broker reaches it.

    All requests raise KafkaError, NOT_CONTROLLER among others, or PeerUnavailable.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller: Controller,
        metadata: MetadataCache,
        peers: BrokerPeers,
        timeout_ms: int,
    ) -> None:
        """`broker_epoch()` is the epoch of this broker's registration; `timeout_ms` limits one request."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._metadata = metadata
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._isr_changes = self._connection(ALTER_PARTITION, asks_versions=True)
        self._producer_ids = self._connection(FORWARDING, asks_versions=True)
        self._shutdown = self._connection(FORWARDING, asks_versions=False)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Ask for other in-sync replicas. `request` has the fields of version 3."""
        if self._controller.is_active:
            return await self._controller.alter_partition(request, ALTER_PARTITION_VERSION)
        response: AlterPartitionResponse = await self._ask(self._isr_changes, request, ALTER_PARTITION_VERSION)
        return response

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids for this broker alone."""
        if self._controller.is_active:
            return await self._controller.allocate_producer_ids(self._broker_id, self._broker_epoch())
        from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest  # on demand

        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        response: AllocateProducerIdsResponse = await self._ask(
            self._producer_ids, request, ALLOCATE_PRODUCER_IDS_VERSION
        )
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def controlled_shutdown(self) -> list[TopicPartition]:
        """Have leadership moved off this broker; return the partitions that it still leads."""
        if self._controller.is_active:
            return await self._controller.controlled_shutdown(self._broker_id, self._broker_epoch())
        from protocol.messages.controlled_shutdown import ControlledShutdownRequest  # on demand

        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        response: ControlledShutdownResponse = await self._ask(self._shutdown, request, CONTROLLED_SHUTDOWN_VERSION)
        return [(each.topic_name, each.partition_index) for each in response.remaining_partitions]

    def metadata_changed(self) -> None:
        """Give up requests to a broker that is no longer the controller.

        It may be halted or cut off. Otherwise a leader that waits for its response could not change an ISR for
        `controller.socket.timeout.ms`, as in Kafka, and its producers would wait for a lagging follower.
        """
        for connection in (self._isr_changes, self._producer_ids, self._shutdown):
            connection.leave_old_address()

    def _connection(self, purpose: str, *, asks_versions: bool) -> OutgoingConnection:
        return self._peers.connect_to(
            Link(purpose, None), "the controller", self._address, str(self._broker_id), asks_versions=asks_versions
        )

    def _address(self) -> HostAndPort | None:
        """Return the address of the controller; None if no other broker is known to be the controller.

        The metadata store names it first. While that is not available, the last controller that has sent metadata is
        asked.
        """
        for controller_id in (self._controller.controller_id, self._metadata.controller_id):
            address = None if controller_id == self._broker_id else self._peers.address_of(controller_id)
            if address is not None:
                return address
        return None

    async def _ask(self, connection: OutgoingConnection, request: object, version: int) -> Any:
        response = await connection.ask(request, version, timeout_ms=self._timeout_ms)
        if response.error_code:
            code = ErrorCode(response.error_code)
            if code in MOVED:
                connection.disconnect()
                code = ErrorCode.NOT_CONTROLLER
            raise KafkaError(code, f"the controller refuses a {type(request).__name__}: {code.name}")
        return response
