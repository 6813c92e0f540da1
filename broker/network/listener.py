"""One listener: its listening sockets and its open connections.

Owns: which connections are open, and when the next one is accepted. Must not know: requests, or how limits are counted.

It calls `accept` itself instead of using asyncio's `Server`. A listener at its limit must leave new connections in the
kernel's backlog, and a listener above its creation rate must delay them.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from base.clock import Clock
from base.dataclass import dataclass
from base.line_limit import LineLimit
from broker.network.channel import NOBODY, Channel, Hold
from broker.network.connection import NO_TRAFFIC, Connection, Dispatcher, Traffic
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.descriptors import DescriptorBudget
from broker.network.network import Arrival, ListenError, ListeningPort, Network, SocketOptions
from broker.network.principals import NoPrincipalError, PrincipalBuilder
from broker.network.request_memory import AccountedConnection, RequestMemory
from broker.network.sasl.session import SaslListener, SaslSession
from broker.network.tls import NotAuthenticated, TlsListener
from broker.network.turn_writes import TurnWrites
from broker.network.unsent_responses import UnsentResponses
from protocol.frame import SCRATCH_SIZE, FrameReader

if TYPE_CHECKING:
    from broker.network.muted_connections import MutedConnections
    from broker.network.writable_sockets import WritableSockets

logger = logging.getLogger("kafka.network.listener")

# Unsent response bytes of one connection from which on its requests stay unread and its memory is counted.
WRITE_HIGH_WATER_SIZE = 128 << 10
IDLE_SWEEPS_PER_LIMIT = 10

# Bounds the connections accepted per turn, so that many new connections do not delay the open ones.
ACCEPTED_PER_TURN_MAX = 32
ACCEPT_RETRY_MS = 1000
LINE_INTERVAL_S = 10.0
CLOSING_LINES_MAX = 20
"""Lines in an interval about connections that are closed because of what they sent."""

# Offsets of tcpi_last_data_sent and tcpi_last_data_recv (ms) in Linux's struct tcp_info.
_LAST_DATA_SENT, _LAST_DATA_RECEIVED = 44, 52
_TCP_INFO_SIZE = 56


@dataclass(frozen=True)
class ListenerSettings:
    """Limits of one listener, named like their properties."""

    request_size_max: int
    backlog_size: int = 50
    send_buffer_bytes: int = 102400
    receive_buffer_bytes: int = 102400
    connection_idle_ms_max: int = 600_000
    queued_request_bytes_max: int = -1


class Listener:
    """Accepts connections on one named address."""

    def __init__(
        self,
        name: str,
        network: Network,
        settings: ListenerSettings,
        quotas: ConnectionQuotas,
        unsent: UnsentResponses,
        descriptors: DescriptorBudget,
        clock: Clock,
        *,
        request_memory: RequestMemory | None = None,
        on_exceeded: Callable[[], None],
        principal_builder: PrincipalBuilder | None = None,
    ) -> None:
        """`principal_builder` determines the principals of clients; None: their proven names do.

        `request_memory` bounds the memory of arriving requests; None: it is unbounded.

        `on_exceeded` is called when this listener is protected and accepted a connection above the broker's limit.
        """
        self.name = name
        self._principal_builder = principal_builder
        self.sasl: SaslListener | None = None
        """How clients authenticate themselves; None: they do not."""
        self.tls: TlsListener | None = None
        """How connections are encrypted; None: they are not."""
        self._clock = clock
        self.monotonic_ms = clock.monotonic_ms
        self.monotonic_s = clock.monotonic_s
        self.send_buffer_size = settings.send_buffer_bytes
        self._writable_sockets: WritableSockets | None = None
        self._muted: MutedConnections | None = None
        self.turn_writes = TurnWrites(clock.monotonic_s)
        self.awaited_writes = TurnWrites(clock.monotonic_s)
        self._network = network
        self._settings = settings
        self._quotas = quotas
        self._unsent = unsent
        self._descriptors = descriptors
        self._lines = LineLimit(LINE_INTERVAL_S)
        self._handshake_lines = LineLimit(LINE_INTERVAL_S)
        self._crowd_lines = LineLimit(LINE_INTERVAL_S)
        self.closing_lines = LineLimit(LINE_INTERVAL_S, CLOSING_LINES_MAX)
        self._request_memory = request_memory
        self._on_exceeded = on_exceeded
        self._scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._connections: dict[Connection, None] = {}
        """In the order of their arrival, in which they are closed."""
        self._ports: Sequence[ListeningPort] = ()
        self._delayed: dict[Connection, tuple[Arrival, asyncio.TimerHandle]] = {}
        self._arrivals: set[asyncio.Task[None]] = set()
        self._dispatcher: Dispatcher
        self._loop: asyncio.AbstractEventLoop
        self._is_accepting = False
        self._is_held = False
        self._is_closed = False
        self._idle_sweep: asyncio.TimerHandle | None = None
        self.accepted_count = self.closed_count = 0
        self.arrived_count = 0
        """Connections that count for max.connection.creation.rate, those included that are refused then."""
        self._throttles = quotas.new_throttle_times()
        self._address_throttles = quotas.new_throttle_times()
        self.traffic_of_closed = NO_TRAFFIC
        """What the connections that are closed have carried."""
        self.expired_count = 0
        """Connections closed because they were idle."""
        self.refused_count = 0
        """Connections refused, or not accepted, because the process has too few file descriptors left."""

    @property
    def muted(self) -> MutedConnections:
        """Part of `Registry`."""
        if self._muted is None:
            from broker.network.muted_connections import MutedConnections  # on demand: few clients exceed a quota

            self._muted = MutedConnections(self.monotonic_ms, self._loop.call_later)
        return self._muted

    @property
    def writable_sockets(self) -> WritableSockets:
        """Part of `Registry`."""
        if self._writable_sockets is None:
            from broker.network.writable_sockets import writable_sockets  # on demand: few sockets are ever full

            self._writable_sockets = writable_sockets(self._loop)
        return self._writable_sockets

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def secure(self, tls: TlsListener | None, sasl: SaslListener | None) -> None:
        """Protect the connections that are accepted from now on; None: as before."""
        if tls is not None:
            self.tls = tls
        if sasl is not None:
            self.sasl = sasl

    def bind(self, host: str, port: int) -> int:
        """Bind `host` ("" = all addresses) and `port` (0 = any free port); return the real port.

        Raises:
            ListenError: The address cannot be bound.
        """
        settings = self._settings
        options = SocketOptions(settings.backlog_size, settings.send_buffer_bytes, settings.receive_buffer_bytes)
        try:
            self._ports = self._network.listen(host, port, options)
        except ListenError as error:
            raise ListenError(f"listener {self.name} {error}") from error
        return self._ports[0].port

    def start(self, dispatcher: Dispatcher) -> None:
        """Accept connections on the bound sockets and serve their requests with `dispatcher`."""
        self._dispatcher = dispatcher
        if self.sasl is not None:
            from broker.network.sasl.dispatcher import SaslDispatcher  # listeners without SASL start without it

            self._dispatcher = SaslDispatcher(dispatcher, self._clock)
        self._loop = asyncio.get_running_loop()
        self._accept_again()
        self._schedule_idle_sweep()

    @property
    def is_accepting(self) -> bool:
        """Whether connections are accepted now. A limit that is reached stops it for a while."""
        return self._is_accepting

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections are still served."""
        self._pause_accepting()
        for port in self._ports:
            port.close()
        self._ports = ()
        for connection, (arrival, later) in self._delayed.items():
            later.cancel()
            arrival.close()
            self.closed(connection)
        self._delayed.clear()
        if self._idle_sweep is not None:
            self._idle_sweep.cancel()

    def close_connections(self) -> None:
        """Abort the open connections, and those that are just being accepted."""
        self._is_closed = True
        self.flush_writes()
        for connection in list(self._connections):
            connection.abort()
        if self._writable_sockets is not None:
            self._writable_sockets.close()

    def flush_writes(self) -> None:
        """Write the responses that wait for the end of the turn."""
        self.turn_writes.flush()
        self.awaited_writes.flush()

    def hold(self) -> None:
        """Read no requests until `release`, also from new connections. Requests already read get their responses."""
        self._is_held = True
        for connection in self._connections:
            connection.hold(Hold.REQUEST_QUEUE)

    def release(self) -> None:
        """Read requests again after `hold`. Those that are read at once may lead to another `hold`, which counts."""
        self._is_held = False
        for connection in list(self._connections):
            if self._is_held:
                return
            connection.release(Hold.REQUEST_QUEUE)

    def connections(self) -> Iterator[Connection]:
        return iter(self._connections)

    def closed(self, connection: Connection, traffic: Traffic = NO_TRAFFIC) -> None:
        """Part of `Registry`: uncount a closed connection, served or not. A second call has no effect."""
        if connection in self._connections:
            del self._connections[connection]
            self.closed_count += 1
            self.traffic_of_closed = self.traffic_of_closed.plus(traffic)
            self._quotas.close(self.name, connection.channel.client_host)

    # Accepting

    def _accept_again(self) -> None:
        if not self._is_accepting:
            self._is_accepting = True
            for port in self._ports:
                port.watch(self._accept)

    def _pause_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            for port in self._ports:
                port.unwatch()

    def _accept(self, port: ListeningPort) -> None:
        """Accept the connections in the backlog of `port`, as far as limits allow."""
        for _ in range(ACCEPTED_PER_TURN_MAX):
            if not self._quotas.has_room(self.name):
                self._pause_accepting()
                self._quotas.when_room(self._accept_again)
                return
            try:
                arrival = port.accept()
            except OSError as error:
                # Descriptors or memory are used up: retry later, when some may have been released.
                self._note_refusal(f"in the backlog: {error.strerror}")
                self._pause_accepting()
                self._loop.call_later(ACCEPT_RETRY_MS / 1000, self._accept_again)
                return
            if arrival is None:
                return
            now_ms = int(self._loop.time() * 1000)
            closing_ms = self._quotas.record_address(arrival.host, now_ms)
            if closing_ms:
                self._address_throttles.record(closing_ms, now_ms)
                self._turn_away(arrival, closing_ms)
                continue
            self.arrived_count += 1
            delay_ms = self._quotas.record_creation(self.name, now_ms)
            is_protected = self._quotas.is_protected(self.name)
            if not self._descriptors.has_room(self._quotas.open_count, self._loop.time(), is_protected=is_protected):
                self._note_refusal(f"from {arrival.host}: files need the file descriptors that are left")
                arrival.close()
            elif not self._quotas.open(self.name, arrival.host):
                self._note_crowd(arrival.host)
                arrival.close()
            else:
                self._arrive(arrival, delay_ms)
            if delay_ms:
                self._throttles.record(delay_ms, now_ms)
                self._pause_accepting()
                self._loop.call_later(delay_ms / 1000, self._accept_again)
                return

    def _turn_away(self, arrival: Arrival, closing_ms: int) -> None:
        """Serve no connection, but keep its client waiting, or it would connect again immediately.

        If files need the descriptors that are left, it is closed at once.
        """
        if not self._descriptors.has_room(self._quotas.open_count, self._loop.time()):
            arrival.close()
            return
        self._quotas.turn_away()

        def close() -> None:
            self._quotas.close_turned_away()
            arrival.close()

        self._loop.call_later(closing_ms / 1000, close)

    @property
    def throttle_ms(self) -> float:
        """The mean time for which connections above max.connection.creation.rate were delayed of late."""
        return self._throttles.mean_ms(int(self._loop.time() * 1000))

    @property
    def address_throttle_ms(self) -> float:
        """The mean time for which connections above connection_creation_rate of their address were held of late."""
        return self._address_throttles.mean_ms(int(self._loop.time() * 1000))

    def secured(self, connection: Connection, transport: asyncio.BaseTransport) -> None:
        """Part of `Registry`: with SASL the client is the user that logs in, else that of its certificate."""
        tls = self.tls
        if tls is None or self.sasl is not None:
            return
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        try:
            name = NOBODY if certificate is None else tls.name_in(certificate)
            connection.channel.identified(name, certificate=certificate)
        except (NotAuthenticated, NoPrincipalError) as error:
            self._note_failed_handshake(connection.channel, error)
            connection.abort()

    def _note_failed_handshake(self, channel: Channel, error: Exception) -> None:
        if self.tls is not None:
            self.tls.failure_count += 1
        held_back = self._handshake_lines.admit(self._loop.time())
        if held_back is not None:
            logger.info(
                "Failed authentication with %s (SSL handshake failed: %s) (%d such failures not logged)",
                channel,
                getattr(error, "verify_message", None)
                or getattr(error, "reason", None)
                or str(error)
                or type(error).__name__,
                held_back,
            )

    def _note_crowd(self, host: str) -> None:
        held_back = self._crowd_lines.admit(self._loop.time())
        if held_back is not None:
            logger.warning(
                "refused a connection from %s: this address has as many as it may (%d such refusals not logged)",
                host,
                held_back,
            )

    def _note_refusal(self, reason: str) -> None:
        self.refused_count += 1
        held_back = self._lines.admit(self._loop.time())
        if held_back is not None:
            logger.error(
                "listener %s refused a connection %s; the limit is %d, %d connections are open "
                "(%d such refusals not logged)",
                self.name,
                reason,
                self._descriptors.limit,
                self._quotas.count,
                held_back,
            )

    def _arrive(self, arrival: Arrival, delay_ms: int) -> None:
        """Serve an accepted connection after `delay_ms`. The quotas count it already."""
        channel = Channel(
            arrival.host,
            arrival.port,
            self.name,
            security_protocol=self._security_protocol,
            principal_builder=self._principal_builder,
        )
        proves_nothing = self.tls is None and self.sasl is None
        if proves_nothing and self._principal_builder is not None and not self._identify(channel, arrival):
            return
        connection = self._new_connection(channel)
        self._connections[connection] = None
        self.accepted_count += 1
        if delay_ms:
            later = self._loop.call_later(delay_ms / 1000, self._take_over, arrival, connection)
            self._delayed[connection] = arrival, later
        else:
            self._take_over(arrival, connection)
        if self._quotas.is_exceeded:
            self._on_exceeded()

    @property
    def _security_protocol(self) -> str:
        return ("" if self.sasl is None else "SASL_") + ("PLAINTEXT" if self.tls is None else "SSL")

    def _identify(self, channel: Channel, arrival: Arrival) -> bool:
        """Determine the principal of a client that proves nothing; False if it is refused."""
        try:
            channel.identified(NOBODY)
        except NoPrincipalError as error:
            logger.warning("refused a connection from %s: %s", channel, error)
            arrival.close()
            self._quotas.close(self.name, arrival.host)
            return False
        return True

    def _take_over(self, arrival: Arrival, connection: Connection) -> None:
        self._delayed.pop(connection, None)
        # Never cancel this task, see `Arrival.serve`.
        task = self._loop.create_task(self._hand_over(arrival, connection))
        self._arrivals.add(task)
        task.add_done_callback(self._arrivals.discard)

    async def _hand_over(self, arrival: Arrival, connection: Connection) -> None:
        tls = self.tls
        try:
            transport = await arrival.serve(connection, None if tls is None else tls.context)
        except OSError as error:
            # The client closed the connection before it was served, or its handshake failed.
            if tls is not None:
                self._note_failed_handshake(connection.channel, error)
            if not connection.is_connected:
                arrival.close()
                self.closed(connection)
            return
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_SIZE)
        if self._is_held:
            connection.hold(Hold.REQUEST_QUEUE)
        if self._is_closed:
            connection.abort()

    def _new_connection(self, channel: Channel) -> Connection:
        size_max = self._settings.request_size_max
        if self.sasl is None:
            reader = FrameReader(self._scratch, size_max)
        else:
            # Only short frames, and only those of an authentication, until it is complete.
            reader = FrameReader(self._scratch, min(self.sasl.receive_size_max, size_max))
            channel.authenticate_by(SaslSession(self.sasl), partial(reader.limit, self._scratch, size_max))
        if self._request_memory is None:
            return Connection(self, self._dispatcher, reader, self._unsent, channel)
        return AccountedConnection(self, self._dispatcher, reader, self._unsent, channel, self._request_memory)

    # Idle connections

    def _schedule_idle_sweep(self) -> None:
        idle_ms_max = self._settings.connection_idle_ms_max
        if idle_ms_max >= 0:
            self._idle_sweep = self._loop.call_later(idle_ms_max / 1000 / IDLE_SWEEPS_PER_LIMIT, self._close_idle)

    def _close_idle(self) -> None:
        # Counting sweeps without traffic costs one attribute store per request; reading a clock would cost more.
        for connection in list(self._connections):
            if connection.was_active_since_sweep():
                connection.idle_sweeps = 0
                continue
            connection.idle_sweeps += 1
            if connection.idle_sweeps >= IDLE_SWEEPS_PER_LIMIT:
                self.expired_count += 1
                logger.info("closing idle connection from %s", connection.channel)
                connection.abort()  # `close` would wait forever for a client that does not read
        self._schedule_idle_sweep()


def idle_ms(connection: Connection) -> int:
    """Return the milliseconds since the kernel last sent or received data of a connection; 0 if it does not tell."""
    info = connection.tcp_info(_TCP_INFO_SIZE)
    if len(info) < _TCP_INFO_SIZE:
        return 0
    (sent_ms,) = struct.unpack_from("=I", info, _LAST_DATA_SENT)
    (received_ms,) = struct.unpack_from("=I", info, _LAST_DATA_RECEIVED)
    return int(min(sent_ms, received_ms))
