"""The way to the controller of the cluster: a direct call if this broker is the controller, else connections to it.

Owns: which broker is asked, and what its top-level errors mean. Must not know: why the controller is asked, or when a
request that failed is repeated: the callers do that.

As in Kafka, AlterPartition and AllocateProducerIds each have a connection that begins with ApiVersions, so that a slow
request of one kind does not delay the other. ControlledShutdown has one too, in the version of
`inter.broker.protocol.version`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.peers import ALTER_PARTITION, FORWARDING, BrokerPeers, Link
from broker.network.outgoing import OutgoingConnection
from config.addresses import HostAndPort
from config.inter_broker import InterBrokerProtocol
from controller.controller import Controller
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
    from protocol.messages.controlled_shutdown import ControlledShutdownResponse

ALTER_PARTITION_WITH_TOPIC_IDS: Final = 2
ALTER_PARTITION_WITH_EPOCHS: Final = 3

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
        protocol: InterBrokerProtocol,
        timeout_ms: int,
    ) -> None:
        """`broker_epoch()` is the epoch of this broker's registration; `timeout_ms` limits one request."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._metadata = metadata
        self._peers = peers
        self._protocol = protocol
        self._timeout_ms = timeout_ms
        self._isr_changes = self._connection(ALTER_PARTITION, asks_versions=True)
        self._producer_ids = self._connection(FORWARDING, asks_versions=True)
        self._shutdown = self._connection(FORWARDING, asks_versions=False)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Ask for other in-sync replicas. `request` has the fields of version 3, and the names of topics.

        The response names topics by their ids, or by name if the controller or the request knows no id.
        """
        version = self._protocol.alter_partition
        assert version is not None, "by an older protocol leaders write the states themselves"
        if any(topic.topic_id == ZERO_UUID for topic in request.topics):
            version = min(version, ALTER_PARTITION_WITH_TOPIC_IDS - 1)
        if self._controller.is_active:
            return await self._controller.alter_partition(request, version)
        response: AlterPartitionResponse = await self._ask(self._isr_changes, request, version, _older_alter_partition)
        return response

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids for this broker alone."""
        if self._controller.is_active:
            return await self._controller.allocate_producer_ids(self._broker_id, self._broker_epoch())
        from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest  # on demand

        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        version = self._protocol.allocate_producer_ids
        assert version is not None, "by an older protocol brokers reserve blocks themselves"
        response: AllocateProducerIdsResponse = await self._ask(self._producer_ids, request, version)
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def controlled_shutdown(self) -> list[TopicPartition]:
        """Have leadership moved off this broker; return the partitions that it still leads."""
        if self._controller.is_active:
            return await self._controller.controlled_shutdown(self._broker_id, self._broker_epoch())
        from protocol.messages.controlled_shutdown import ControlledShutdownRequest  # on demand

        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        response: ControlledShutdownResponse = await self._ask(
            self._shutdown, request, self._protocol.controlled_shutdown
        )
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

    async def _ask(
        self,
        connection: OutgoingConnection,
        request: object,
        version: int,
        older: Callable[[Any, int], Any] | None = None,
    ) -> Any:
        response = await connection.ask(request, version, timeout_ms=self._timeout_ms, older=older)
        if response.error_code:
            code = ErrorCode(response.error_code)
            if code in MOVED:
                connection.disconnect()
                code = ErrorCode.NOT_CONTROLLER
            raise KafkaError(code, f"the controller refuses a {type(request).__name__}: {code.name}")
        return response


def _older_alter_partition(request: AlterPartitionRequest, version: int) -> AlterPartitionRequest:
    """Return the request in the form of a version: before the last one replicas have no epochs."""
    if version >= ALTER_PARTITION_WITH_EPOCHS:
        return request
    older = copy(request)
    older.topics = [
        TopicData(
            topic_name=topic.topic_name,
            topic_id=topic.topic_id,
            partitions=[
                PartitionData(
                    partition_index=reported.partition_index,
                    leader_epoch=reported.leader_epoch,
                    new_isr=[replica.broker_id for replica in reported.new_isr_with_epochs],
                    leader_recovery_state=reported.leader_recovery_state,
                    partition_epoch=reported.partition_epoch,
                )
                for reported in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return older
