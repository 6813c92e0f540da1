"""Connections to the other brokers of the cluster, by their ids.

Owns: where a broker is reached, and under which name this broker presents itself. Must not know: what is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from weakref import WeakSet

from broker.cluster.metadata_cache import MetadataCache
from broker.loop.clock import Clock
from broker.network.outgoing import (
    GROWING_PAUSES,
    SETUP_TIMEOUTS,
    LogIn,
    OpenTransport,
    OutgoingConnection,
    Pauses,
    RunComputing,
    SetupTimeouts,
)
from config.addresses import HostAndPort


class BrokerPeers:
    """`Peers` over the metadata cache."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        listener: str,
        open_transport: OpenTransport,
        clock: Clock,
        random: Random,
        compute: RunComputing,
        log_in: LogIn | None = None,
        setup_timeouts: SetupTimeouts = SETUP_TIMEOUTS,
    ) -> None:
        """`listener` is the one for traffic between brokers. `compute` encodes and decodes large messages.

        `log_in` is how this broker logs in; None: it need not.
        """
        self._log_in = log_in
        self._setup_timeouts = setup_timeouts
        self.broker_id = broker_id
        self._metadata = metadata
        self._listener = listener
        self._open_transport = open_transport
        self._clock = clock
        self._random = random
        self._compute = compute
        self._connections: WeakSet[OutgoingConnection] = WeakSet()

    def connect(self, broker_id: int, purpose: str) -> OutgoingConnection:
        """See `Peers`."""
        return self.connect_as(f"broker-{self.broker_id}-{purpose}", broker_id)

    def connect_as(self, client_id: str, broker_id: int, *, asks_versions: bool = False) -> OutgoingConnection:
        """Return a new connection to a broker. `client_id` is the name of this broker there."""
        return self.connect_to(
            f"broker {broker_id}", lambda: self.address_of(broker_id), client_id, asks_versions=asks_versions
        )

    def connect_to(
        self,
        name: str,
        address: Callable[[], HostAndPort | None],
        client_id: str,
        *,
        asks_versions: bool = False,
        pauses: Pauses = GROWING_PAUSES,
    ) -> OutgoingConnection:
        """Return a new connection to a peer called `name` in messages, at an address that is looked up at each use."""
        connection = OutgoingConnection(
            name,
            address,
            self._open_transport,
            client_id,
            self._clock,
            self._random,
            asks_versions=asks_versions,
            pauses=pauses,
            setup_timeouts=self._setup_timeouts,
            compute=self._compute,
            log_in=self._log_in,
        )
        self._connections.add(connection)
        return connection

    def close(self) -> None:
        """Close all connections that are still in use."""
        for connection in list(self._connections):
            connection.close()

    def address_of(self, broker_id: int) -> HostAndPort | None:
        """Return where a broker is reached; None if it is not alive, as far as the controller has reported."""
        broker = self._metadata.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        return None if endpoint is None else HostAndPort(*endpoint)
