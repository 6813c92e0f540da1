"""The way from the controller to the brokers, as a port.

Owns what may be sent and the order promised. Must not know connections: the broker core implements it, with a direct
call for this broker and a connection for every other.
"""

from collections.abc import Awaitable
from typing import Protocol

from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
ControlResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse


class BrokerChannels(Protocol):
    """Ways to the brokers, this one included."""

    def send(self, broker_id: int, request: ControlRequest) -> Awaitable[ControlResponse]:
        """Queue `request` for the broker. Requests to one broker are delivered in the order of the calls.

        Lost connections are retried for as long as the broker is registered; the awaitable raises when it is given up.
        """
        ...
