"""Connections to the other brokers of the cluster, by their ids.

Owns: where a broker is reached, and under which name this broker presents itself. Must not know: what is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from base.clock import Clock
from broker.cluster.metadata_cache import MetadataCache
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


class Link(NamedTuple):
    """What a connection is for, and the peer's id; None: whichever broker is the controller."""

    purpose: str
    broker_id: int | None


CONTROLLER_CHANNEL: Final = "controller-channel"
ALTER_PARTITION: Final = "alter-partition"
FORWARDING: Final = "forwarding"
ADD_PARTITIONS: Final = "add-partitions"
SHARE_STATES: Final = "share-states"
"""Purposes besides those of `connect`."""


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
        self._connections: WeakKeyDictionary[OutgoingConnection, Link] = WeakKeyDictionary()

    def connect(self, broker_id: int, purpose: str) -> OutgoingConnection:
        """See `Peers`."""
        return self.connect_as(f"broker-{self.broker_id}-{purpose}", Link(purpose, broker_id))

    def connect_as(self, client_id: str, link: Link, *, asks_versions: bool = False) -> OutgoingConnection:
        """Return a new connection to the broker of `link`. `client_id` is the name of this broker there."""
        broker_id = link.broker_id
        assert broker_id is not None
        return self.connect_to(
            link, f"broker {broker_id}", lambda: self.address_of(broker_id), client_id, asks_versions=asks_versions
        )

    def connect_to(
        self,
        link: Link,
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
        self._connections[connection] = link
        return connection

    def connections(self) -> Sequence[tuple[OutgoingConnection, Link]]:
        """Return all connections that are in use, with their purposes, whether they are open now or not."""
        return list(self._connections.items())

    def close(self) -> None:
        """Close all connections that are still in use."""
        for connection in list(self._connections):
            connection.close()

    def address_of(self, broker_id: int) -> HostAndPort | None:
        """Return where a broker is reached; None if it is not alive, as far as the controller has reported."""
        broker = self._metadata.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        return None if endpoint is None else HostAndPort(*endpoint)
