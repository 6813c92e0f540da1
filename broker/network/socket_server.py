"""All listeners of one broker, and the limits that they share: connections, memory and file descriptors.

Owns: the listeners, the count of connections over all of them, the memory of unsent responses, and which connections
are closed to free descriptors for files. Must not know: requests.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from base.clock import Clock
from base.line_limit import LineLimit
from broker.network.connection import Connection, Dispatcher
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from broker.network.descriptors import MEASURED_EVERY_S, DescriptorBudget
from broker.network.listener import LINE_INTERVAL_S, Listener, ListenerSettings, idle_ms
from broker.network.network import Network
from broker.network.principals import PrincipalBuilder
from broker.network.request_memory import RequestMemory
from broker.network.sasl.session import SaslListener
from broker.network.tls import TlsListener
from broker.network.unsent_responses import UnsentResponses
from config.listeners import Listener as Address

logger = logging.getLogger("kafka.network.SocketServer")


class SocketServer:
    """The listeners of one broker (`kafka.network.SocketServer`)."""

    def __init__(
        self,
        network: Network,
        settings: ListenerSettings,
        limits: ConnectionLimits,
        clock: Clock,
        control_plane_listener: str | None = None,
        *,
        descriptors: DescriptorBudget,
        address_rate: Callable[[str], float | None],
        new_principal_builder: Callable[[str], PrincipalBuilder | None],
    ) -> None:
        """`clock` measures the turns of connections and how long responses take to send.

        `control_plane_listener` names the listener whose requests never wait for those of the others. `descriptors`
        says how many connections the process may have beside its files. `address_rate(host)` returns how many
        connections a second an address may open, None for any number. `new_principal_builder(listener)` returns what
        determines the principals of a listener's clients.
        """
        loop = self._loop = asyncio.get_running_loop()
        self._network = network
        self._settings = settings
        self._clock = clock
        self._descriptors = descriptors
        self._descriptor_check: asyncio.TimerHandle | None = None
        self._lines = LineLimit(LINE_INTERVAL_S)
        self.closed_for_files_count = 0
        """Connections closed because files needed their file descriptors."""
        self.quotas = ConnectionQuotas(limits, address_rate)
        self.unsent = UnsentResponses(lambda delay_ms, callback: loop.call_later(delay_ms / 1000, callback))
        self._control_plane_listener = control_plane_listener
        self._new_principal_builder = new_principal_builder
        self._request_memory = self._new_request_memory()
        self._listeners: dict[str, Listener] = {}
        self._addresses: dict[str, Address] = {}
        self._ports: dict[str, int] = {}
        self._dispatcher: Dispatcher | None = None
        self._is_held = False

    @property
    def ports(self) -> Mapping[str, int]:
        """The real port of each listener, by its name."""
        return self._ports

    @property
    def addresses(self) -> Mapping[str, Address]:
        """The bound addresses as they were configured, by name."""
        return self._addresses

    @property
    def listeners(self) -> Collection[Listener]:
        return tuple(self._listeners.values())

    @property
    def request_memory(self) -> RequestMemory | None:
        """The memory that arriving requests of the data plane share; None if it is unbounded."""
        return self._request_memory

    def bind(self, addresses: Sequence[Address]) -> None:
        """Bind the addresses of all listeners.

        Raises:
            ListenError: An address cannot be bound. `stop_accepting` closes those that were bound before.
        """
        for address in addresses:
            self._bind(address)

    def add(self, address: Address, tls: TlsListener | None, sasl: SaslListener | None) -> None:
        """Bind the address of one more listener, and serve it if the others are served. Raises ListenError."""
        listener = self._bind(address)
        listener.secure(tls, sasl)
        if self._dispatcher is not None:
            listener.start(self._dispatcher)
        if self._is_held and address.name != self._control_plane_listener:
            listener.hold()

    def remove(self, name: str) -> None:
        """Close the address of a listener and its connections."""
        listener = self._listeners.pop(name)
        del self._addresses[name], self._ports[name]
        listener.stop_accepting()
        listener.close_connections()

    def _bind(self, address: Address) -> Listener:
        is_control_plane = address.name == self._control_plane_listener
        listener = Listener(
            address.name,
            self._network,
            self._settings,
            self.quotas,
            self.unsent,
            self._descriptors,
            self._clock,
            request_memory=self._new_request_memory() if is_control_plane else self._request_memory,
            on_exceeded=self._close_least_recently_used,
            principal_builder=self._new_principal_builder(address.name),
        )
        port = listener.bind(address.host, address.port)
        self._listeners[address.name] = listener
        self._addresses[address.name], self._ports[address.name] = address, port
        return listener

    def secure(self, tls: Mapping[str, TlsListener], sasl: Mapping[str, SaslListener]) -> None:
        """Encrypt the connections of the listeners in `tls`, and have the clients of those in `sasl` log in.

        Call this before `start`.
        """
        for name in {**tls, **sasl}:
            self._listeners[name].secure(tls.get(name), sasl.get(name))

    def start(self, dispatcher: Dispatcher) -> None:
        """Accept connections and serve their requests with `dispatcher`."""
        self._dispatcher = dispatcher
        for listener in self._listeners.values():
            listener.start(dispatcher)
        self._leave_descriptors_to_files()

    def hold(self) -> None:
        """Read only requests of the control plane until `release`. Requests already read get their responses."""
        self._is_held = True
        for listener in self._data_plane():
            listener.hold()

    def release(self) -> None:
        """Read requests again. Those that are read at once may lead to another `hold`, which counts."""
        self._is_held = False
        for listener in self._data_plane():
            if self._is_held:
                return
            listener.release()

    def stop_accepting(self) -> None:
        if self._descriptor_check is not None:
            self._descriptor_check.cancel()
        for listener in self._listeners.values():
            listener.stop_accepting()

    def close_connections(self) -> None:
        for listener in self._listeners.values():
            listener.close_connections()

    def _data_plane(self) -> Iterator[Listener]:
        return (one for name, one in self._listeners.items() if name != self._control_plane_listener)

    def _new_request_memory(self) -> RequestMemory | None:
        queued_max = self._settings.queued_request_bytes_max
        return RequestMemory(queued_max, self._clock.monotonic_s) if queued_max > 0 else None

    def _close_least_recently_used(self) -> None:
        """Close one client connection for one that a protected listener accepted above the limit."""
        for victim in self._idle_longest(1):
            logger.info(
                "closing the connection from %s: max.connections is reached and a broker has connected", victim.channel
            )
            victim.abort()

    def _leave_descriptors_to_files(self) -> None:
        """Close the longest idle connections if files have too few descriptors left, and schedule the next check."""
        now_s = self._loop.time()
        self._descriptor_check = self._loop.call_later(MEASURED_EVERY_S, self._leave_descriptors_to_files)
        # Those that were turned away close by themselves soon.
        excess = self._descriptors.excess(self.quotas.open_count, now_s) - self.quotas.turned_away_count
        victims = self._idle_longest(max(0, excess))
        for victim in victims:
            victim.abort()
        self.closed_for_files_count += len(victims)
        held_back = self._lines.admit(now_s) if victims else None
        if held_back is not None:
            logger.error(
                "closing %d connections, the longest idle first: files need their file descriptors; the limit is %d "
                "(%d such closings not logged)",
                len(victims),
                self._descriptors.limit,
                held_back,
            )

    def _idle_longest(self, count: int) -> list[Connection]:
        """Return the `count` longest idle connections of listeners that are not protected."""
        if not count:
            return []
        others = [
            connection
            for listener in self._listeners.values()
            if not self.quotas.is_protected(listener.name)
            for connection in listener.connections()
            if not connection.is_closing
        ]
        return heapq.nlargest(count, others, key=lambda connection: (idle_ms(connection), connection.idle_sweeps))
