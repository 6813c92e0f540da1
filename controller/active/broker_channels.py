"""The port through which the controller sends requests to brokers.

Owns which requests may be sent and the promised order. Must not know connections: the broker package implements the
port with a direct call for this broker and a connection for each other broker.
"""

from collections.abc import Awaitable
from typing import Protocol

from controller.machine.model import Broker
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
ControlResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse


class BrokerChannels(Protocol):
    """Channels to the registered brokers, this one included."""

    def open_to(self, broker: Broker) -> None:
        """Send requests to this registration from now on, at its present addresses.

        A channel to an earlier registration of the broker is closed.
        """

    def close_to(self, broker_id: int) -> None:
        """Close the channel of a broker; requests that it has not responded to fail. No effect if there is none."""

    def send(self, broker_id: int, request: ControlRequest) -> Awaitable[ControlResponse]:
        """Queue `request` for the broker and return an awaitable of its response.

        One broker receives its requests in the order of the calls. A request is sent again until there is a response,
        or the channel is closed: then the awaitable raises. If the awaitable is cancelled, a request that was not sent
        is dropped.
        """
        ...
