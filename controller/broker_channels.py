"""The port through which the controller sends requests to brokers.

Owns which requests may be sent and the promised order. Must not know connections: the broker package implements the
port with a direct call for this broker and a connection for each other broker.
"""

from collections.abc import Awaitable
from typing import Protocol

from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
ControlResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse


class BrokerChannels(Protocol):
    """Channels to all brokers, this one included."""

    def send(self, broker_id: int, request: ControlRequest) -> Awaitable[ControlResponse]:
        """Queue `request` for the broker and return an awaitable of its response.

        One broker receives its requests in the order of the calls. A lost connection is retried while the broker is
        registered; after that the awaitable raises.
        """
        ...
