"""A connection to another broker: one request at a time, its response or a failure within a time limit.

Owns: connecting and connecting again, the order of requests, the receive buffer, and what a peer may not do. Must not
know: why a request is sent, which broker is asked, or what follows from a failure: the callers retry.

As the brokers of Kafka do, a connection has one request in flight. So the bytes of a response are the only ones that
may arrive, and they begin at the start of the buffer:

    buffer:  [length|header|body ..............]          the frame of the response that is awaited
              ^ its record sets are views into it, valid until the next request

A peer that breaks this, with bytes that no request asked for, another correlation id, a length that is negative or
above the limit, or a frame that cannot be decoded, loses its connection. So does one that does not respond in time: a
late response would be taken for the one to the next request.

Invariant: memory follows the bytes that have arrived, not the length that a peer announces.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, Protocol, TypeVar, cast

from base.clock import Clock
from base.dataclass import dataclass
from broker.network.network import Network, SocketOptions
from broker.network.tls import ClientContext
from config.addresses import HostAndPort
from milena_broker import __version__
from protocol.api import APIS, Api
from protocol.codec import Decoder, decoder, encoder
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.frame import GROWN_FROM_SIZE, GROWTH, LENGTH, LENGTH_SIZE, MAPPED_FROM_SIZE
from protocol.headers import read_response_header, request_header
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.reader import TooManyElements
from protocol.schema import Records, message_info

T = TypeVar("T")

logger = logging.getLogger("kafka.clients.NetworkClient")

PAUSE_GROWTH: Final = 2
PAUSE_JITTER: Final = 0.2
"""Pauses are up to this fraction longer or shorter, so that brokers that lost the same peer do not return together."""

LOGIN_SHARE: Final = 0.85
"""The share of a login's lifetime after which the broker logs in again."""

RESPONSE_SIZE_MAX: Final = 100 << 20
"""In bytes; as large as the requests that a broker accepts."""
ELEMENTS_MAX: Final = 2_000_000
"""How many list elements a response may have. A response about 100,000 partitions has about 1,000,000."""
ELEMENTS_ON_LOOP_MAX: Final = 4_000
"""Messages with more list elements are encoded and decoded in a thread, because that takes more than 2 ms."""
CORRELATION_ID_MAX: Final = (1 << 31) - 1

API_VERSIONS_VERSION: Final = 4
SOFTWARE_NAME: Final = "milena"
UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class PeerUnavailable(Exception):  # noqa: N818 - a state of the peer, like StoreUnavailable
    """Another broker did not respond. The message names it, with its address, and the reason."""


class RequestAbandoned(Exception):  # noqa: N818 - what the caller wanted
    """The caller has abandoned its request."""


class Peer(Protocol):
    """Another broker, as one purpose of this broker reaches it."""

    async def ask(self, request: Any, version: int, *, timeout_ms: int) -> Any:
        """Send a request in at most this version, and return the response. Requests are sent in the order of the calls.

        Record sets in the response are views that the next call invalidates. A cancelled call closes the connection if
        its request was sent. `timeout_ms` includes the time to connect, but not the wait for earlier calls.

        Raises:
            PeerUnavailable: There is no connection, it was lost, or the time is over. The peer may have done what was
                requested.
            KafkaError: UNSUPPORTED_VERSION if the peer cannot serve the request.
            RequestAbandoned: `abandon` was called.
        """

    def abandon(self) -> bool:
        """Abandon the request that was sent, and return True, unless its response is arriving or nothing was sent.

        Its connection is closed, because the peer may still respond; the next call connects without a pause.
        """

    def close(self) -> None:
        """Close the connection for ever; a call in progress raises PeerUnavailable."""


class Peers(Protocol):
    """The other brokers of the cluster, by their ids."""

    def connect(self, broker_id: int, purpose: str) -> Peer:
        """Return a new connection to a broker, for one purpose, which names it at the peer.

        Its address is looked up whenever it connects, so a broker may restart elsewhere.
        """


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long a connection waits before it connects again: twice as long after each failure."""

    first_ms: int = 50
    longest_ms: int = 1000


GROWING_PAUSES: Final = Pauses()


@dataclass(frozen=True, slots=True)
class SetupTimeouts:
    """How long an attempt to connect may take: twice as long after each that took too long (KIP-601)."""

    first_ms: int = 10_000
    longest_ms: int = 30_000

    def after(self, expired_count: int) -> int:
        """Return the timeout of an attempt after so many that expired."""
        return min(self.first_ms << min(expired_count, 20), max(self.longest_ms, self.first_ms))


SETUP_TIMEOUTS: Final = SetupTimeouts()


class RunComputing(Protocol):
    """Runs work that computes for long in a thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


OpenTransport = Callable[[asyncio.BufferedProtocol, HostAndPort], Awaitable[asyncio.Transport]]
"""Connects a protocol to an address. Raises OSError."""


def plaintext(network: Network, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> OpenTransport:
    """Return a way to open unencrypted connections whose sockets have these buffer sizes; -1: the kernel chooses."""
    options = SocketOptions(send_buffer_bytes=send_buffer_bytes, receive_buffer_bytes=receive_buffer_bytes)

    def open_transport(protocol: asyncio.BufferedProtocol, address: HostAndPort) -> Awaitable[asyncio.Transport]:
        return network.connect(protocol, address.host, address.port, options)

    return open_transport


def encrypted(
    network: Network, context: Callable[[], ClientContext], *, receive_buffer_bytes: int = -1
) -> OpenTransport:
    """Return a way to open connections with TLS; `context()` is called for each of them."""
    options = SocketOptions(send_buffer_bytes=-1, receive_buffer_bytes=receive_buffer_bytes)

    def open_transport(protocol: asyncio.BufferedProtocol, address: HostAndPort) -> Awaitable[asyncio.Transport]:
        return network.connect(protocol, address.host, address.port, options, context())

    return open_transport


LogIn = Callable[[Callable[[Any, int], Awaitable[Any]], str], Awaitable[int]]
"""Logs in to a host by requests; returns for how many ms the login is valid, 0: no limit. Raises PermissionError."""


@dataclass(frozen=True, slots=True)
class LinkSecurity:
    """How connections to other brokers are secured."""

    tls: Callable[[], ClientContext] | None = None
    """Returns the present context; None: connections are not encrypted."""
    log_in: LogIn | None = None


@dataclass(slots=True)
class OutgoingCounts:
    """What was exchanged with a peer, over all connections to it; sizes in bytes."""

    opened: int = 0
    requests: int = 0
    responses: int = 0
    sent_size: int = 0
    received_size: int = 0
    request_size_max: int = 0


class OutgoingConnection:
    """A `Peer` over a connection that is opened when it is needed."""

    def __init__(
        self,
        name: str,
        address: Callable[[], HostAndPort | None],
        open_transport: OpenTransport,
        client_id: str,
        clock: Clock,
        random: Random,
        *,
        compute: RunComputing,
        asks_versions: bool = False,
        pauses: Pauses = GROWING_PAUSES,
        setup_timeouts: SetupTimeouts = SETUP_TIMEOUTS,
        response_size_max: int = RESPONSE_SIZE_MAX,
        log_in: LogIn | None = None,
    ) -> None:
        """`name` is the peer's name in messages, and `client_id` the name of this broker at the peer.

        `address()` is called for each attempt to connect; None: it is not known at present. With `asks_versions`, each
        connection begins with ApiVersions, and requests are sent in a version that the peer supports. Without, the
        caller's versions are sent as they are.
        """
        self._name = name
        self._address = address
        self._open_transport = open_transport
        self._client_id = client_id
        self._clock = clock
        self._random = random
        self._compute = compute
        self._asks_versions = asks_versions
        self._pauses = pauses
        self._setup_timeouts = setup_timeouts
        self._expired_setups = 0  # in a row
        self._response_size_max = response_size_max
        self._log_in = log_in
        self._log_in_again_ms: int | None = None  # monotonic; None: the login has no limit
        self._in_order = asyncio.Lock()  # it is fair
        self._link: _Link | None = None
        self._opening: tuple[_Link, asyncio.Future[asyncio.Transport]] | None = None
        self._versions: dict[int, range] = {}
        self._next_pause_ms = 0  # 0 after a response
        self._connects_from_ms = 0  # monotonic
        self._correlation_id = 0
        self._is_closed = False
        self.counts = OutgoingCounts()

    @property
    def is_connected(self) -> bool:
        return self._link is not None and not self._link.is_lost

    async def ask(
        self, request: Any, version: int, *, timeout_ms: int, older: Callable[[Any, int], Any] | None = None
    ) -> Any:
        """See `Peer`. `older(request, version)` returns the request in the form of the version that both sides know."""
        async with self._in_order:
            if self._is_closed:
                raise PeerUnavailable(f"the connection to {self._name} is closed")
            address: HostAndPort | None = None
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    link = self._link
                    if link is None or link.is_lost:
                        await self._back_off()
                        address = self._address()
                        link = await self._connect(address)
                    address = link.address
                    if self._log_in_again_ms is not None and self._clock.monotonic_ms() >= self._log_in_again_ms:
                        await self._authenticate(link)
                    agreed = self._agreed(request, version)
                    response = await self._exchange(link, request if older is None else older(request, agreed), agreed)
            except TimeoutError as error:
                raise self._failed(address, f"no response within {timeout_ms} ms") from error
            except (OSError, Malformed) as error:
                raise self._failed(address, str(error) or type(error).__name__) from error
            except (asyncio.CancelledError, RequestAbandoned):
                self.disconnect()
                raise
            self._next_pause_ms = 0
            return response

    def abandon(self) -> bool:
        """See `Peer`."""
        return self._link is not None and self._link.abandon()

    def close(self) -> None:
        """See `Peer`."""
        self._is_closed = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close the present connection, or end the attempt to connect; a call in progress raises PeerUnavailable.

        The next request looks up the address, which may have changed, and connects.
        """
        link, self._link = self._link, None
        if link is not None:
            link.abort()
        if self._opening is not None:
            link, opening = self._opening
            link.abort()
            opening.cancel()

    def leave_old_address(self) -> None:
        """Call `disconnect` if the peer is at another address now: a host that does not respond delays no request."""
        link = self._link if self._opening is None else self._opening[0]
        if link is not None and link.address != self._address():
            self.disconnect()

    async def _connect(self, address: HostAndPort | None) -> _Link:
        if address is None:
            raise ConnectionRefusedError("its address is not known")
        link = _Link(address, self._response_size_max)
        await self._open(link, address)
        self._link = link
        if self._is_closed:
            self.disconnect()
        if self._asks_versions:
            try:
                await self._ask_versions(link)
            except BaseException:
                self.disconnect()  # so that no request is sent in a version that the peer may not know
                raise
        await self._authenticate(link)
        return link

    async def _open(self, link: _Link, address: HostAndPort) -> None:
        """Connect. Raises OSError, also if that takes too long."""
        timeout_ms = self._setup_timeouts.after(self._expired_setups)
        expiry = asyncio.timeout(timeout_ms / 1000)
        opening = asyncio.ensure_future(self._open_transport(link, address))
        self._opening = link, opening
        try:
            async with expiry:
                await opening
        except TimeoutError as error:
            if not expiry.expired():
                raise
            self._expired_setups += 1
            raise ConnectionAbortedError(f"no connection within {timeout_ms} ms") from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not link.is_lost or (task is not None and task.cancelling()):
                raise
            raise ConnectionAbortedError("the connection was closed") from None  # by `disconnect`
        finally:
            self._opening = None
        self._expired_setups = 0
        self.counts.opened += 1

    async def _authenticate(self, link: _Link) -> None:
        """Log in if that is required, and note when to do it again (KIP-368)."""
        if self._log_in is None:
            return
        try:
            lifetime_ms = await self._log_in(
                lambda request, version: self._exchange(link, request, version), link.address.host
            )
        except BaseException:
            self.disconnect()
            raise
        self._log_in_again_ms = None
        if lifetime_ms:
            self._log_in_again_ms = self._clock.monotonic_ms() + round(lifetime_ms * LOGIN_SHARE)

    async def _ask_versions(self, link: _Link) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        response: ApiVersionsResponse = await self._exchange(link, request, API_VERSIONS_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            own_key = _api_of(request).key
            served = next((api.max_version for api in response.api_keys if api.api_key == own_key), 0)
            if served not in range(API_VERSIONS_VERSION):
                raise Malformed(f"ApiVersions v{API_VERSIONS_VERSION} is refused, but v{served} served")
            response = await self._exchange(link, request, served)
        if response.error_code:
            raise Malformed(f"ApiVersions failed with {ErrorCode(response.error_code).name}")
        self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}

    def _agreed(self, request: object, version: int) -> int:
        """Return the highest version up to `version` that the peer serves. Raises KafkaError(UNSUPPORTED_VERSION)."""
        if not self._asks_versions:
            return version
        api = _api_of(request)
        served = self._versions.get(api.key, range(0))
        agreed = min(version, served.stop - 1)
        if agreed not in served:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self._name} does not serve {api.name} v{version}, only {list(served) or 'none'}",
            )
        return agreed

    async def _exchange(self, link: _Link, request: object, version: int) -> Any:
        api = _api_of(request)
        correlation_id, self._correlation_id = self._correlation_id, (self._correlation_id + 1) & CORRELATION_ID_MAX
        body = await self._encoded(request, version)
        header = request_header(api.key, version, correlation_id, self._client_id)
        size = len(header) + sum(map(len, body))
        counts = self.counts
        counts.requests += 1
        counts.sent_size += LENGTH_SIZE + size
        counts.request_size_max = max(counts.request_size_max, LENGTH_SIZE + size)
        frame = await link.exchange([LENGTH.pack(size) + header, *body])
        counts.responses += 1
        counts.received_size += LENGTH_SIZE + len(frame)
        try:
            received_id, position = read_response_header(api.key, version, frame)
            if received_id != correlation_id:
                raise Malformed(f"correlation id {received_id}, expected {correlation_id}")
            layout = 0 if _refuses_api_versions(request, frame, position) else version
            return await self._decoded(decoder(api.response, layout), frame, position)
        except Malformed as error:
            raise Malformed(f"a malformed response to {api.name} v{version}: {error}") from error

    async def _encoded(self, request: object, version: int) -> list[Records]:
        body: list[Records] = []
        write = encoder(type(request), version)
        try:
            write(request, body, ELEMENTS_ON_LOOP_MAX)
        except TooManyElements:
            await self._compute(lambda: write(request, body))
        return body

    async def _decoded(self, read: Decoder[Any], frame: memoryview, position: int) -> Any:
        try:
            return read(frame, position, ELEMENTS_ON_LOOP_MAX)
        except TooManyElements:
            return await self._compute(lambda: read(frame, position, ELEMENTS_MAX))

    async def _back_off(self) -> None:
        pause_ms = self._connects_from_ms - self._clock.monotonic_ms()
        if self._next_pause_ms and pause_ms > 0:
            await asyncio.sleep(pause_ms / 1000)

    def _failed(self, address: HostAndPort | None, reason: str) -> PeerUnavailable:
        """Close the connection, and return the exception to raise. The next attempt to connect comes after a pause."""
        self.disconnect()
        self._next_pause_ms = min(self._next_pause_ms * PAUSE_GROWTH or self._pauses.first_ms, self._pauses.longest_ms)
        jitter = PAUSE_JITTER * (2 * self._random.random() - 1)
        self._connects_from_ms = self._clock.monotonic_ms() + round(self._next_pause_ms * (1 + jitter))
        where = "" if address is None else f" at {address.host}:{address.port}"
        logger.debug("%s%s is unavailable: %s", self._name, where, reason)
        return PeerUnavailable(f"{self._name}{where} is unavailable: {reason}")


class _Link(asyncio.BufferedProtocol):
    """One connection, from its beginning to its end: at most one frame sent, and without a response, at any time."""

    def __init__(self, address: HostAndPort, frame_size_max: int) -> None:
        self.address = address
        self.is_lost = False
        self._frame_size_max = frame_size_max
        self._transport: asyncio.Transport | None = None
        self._awaited: asyncio.Future[memoryview] | None = None
        self._buffer = memoryview(bytearray(GROWN_FROM_SIZE))
        self._not_requested = memoryview(bytearray(1))
        self._received_size = 0
        self._frame_stop = LENGTH_SIZE  # the end of the frame, or of its length while that has not arrived

    async def exchange(self, buffers: list[Any]) -> memoryview:
        """Send a frame and return the peer's, without its length. It is valid until the next exchange.

        Raises:
            OSError: The connection is lost.
            Malformed: The peer sent something else than one frame.
        """
        if self._transport is None or self.is_lost:
            raise ConnectionResetError("the connection was closed")
        self._received_size, self._frame_stop = 0, LENGTH_SIZE
        awaited: asyncio.Future[memoryview]
        awaited = self._awaited = asyncio.get_running_loop().create_future()
        self._transport.writelines(buffers)
        return await awaited

    def abort(self) -> None:
        """Close the connection; an exchange in progress fails."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(ConnectionAbortedError("the connection was closed"))

    def abandon(self) -> bool:
        """Fail the exchange in progress with RequestAbandoned unless bytes of the response have arrived."""
        is_waiting = self._awaited is not None and not self._received_size
        if is_waiting:
            self._fail(RequestAbandoned())
        return is_waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._awaited is None:
            return self._not_requested  # the last response may still be in use
        if self._received_size == len(self._buffer):
            self._grow()
        return self._buffer[self._received_size :]

    def buffer_updated(self, nbytes: int) -> None:
        awaited = self._awaited
        if self.is_lost:
            return
        if awaited is None:
            self._reject("bytes that were not requested")
            return
        self._received_size += nbytes
        if self._frame_stop == LENGTH_SIZE and self._received_size >= LENGTH_SIZE:
            (size,) = LENGTH.unpack_from(self._buffer)
            if not 0 < size <= self._frame_size_max:
                self._reject(f"a frame of {size} bytes, expected 1 to {self._frame_size_max}")
                return
            self._frame_stop = LENGTH_SIZE + size
        if self._received_size > self._frame_stop:
            self._reject(f"{self._received_size - self._frame_stop} bytes after the end of its response")
        elif self._received_size == self._frame_stop > LENGTH_SIZE:
            self._awaited = None
            if not awaited.done():
                awaited.set_result(self._buffer[LENGTH_SIZE : self._frame_stop])

    def eof_received(self) -> None:
        """Return None: the transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("the peer closed the connection"))

    def _reject(self, what: str) -> None:
        logger.warning("closing the connection to %s:%d: it sent %s", *self.address, what)
        self._fail(Malformed(f"it sent {what}"))
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        self.is_lost = True
        awaited, self._awaited = self._awaited, None
        if awaited is not None and not awaited.done():
            awaited.set_exception(error)

    def _grow(self) -> None:
        """Continue in a larger buffer. A large one is a mapping, whose memory is allocated as it is written."""
        size = self._frame_stop
        if size < MAPPED_FROM_SIZE:
            size = min(size, GROWTH * self._received_size)
        larger = memoryview(mmap.mmap(-1, size) if size >= MAPPED_FROM_SIZE else bytearray(size))
        larger[: self._received_size] = self._buffer[: self._received_size]
        self._buffer = larger


def _refuses_api_versions(request: object, frame: memoryview, position: int) -> bool:
    """Return whether an older peer does not know this version of ApiVersions: then the response is of version 0."""
    return isinstance(request, ApiVersionsRequest) and frame[position : position + 2] == UNSUPPORTED_VERSION


def _api_of(request: object) -> Api:
    return APIS[message_info(type(request)).api_key]
