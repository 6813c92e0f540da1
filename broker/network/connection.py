"""One client connection: bytes in, frames to the dispatcher, responses out in request order.

Owns: the read side (a `FrameReader`), whether the connection reads, and the order of its responses. Must not know: what
a request means. The dispatcher gets a frame and returns buffers, or a promise of them.

As in Kafka, a connection has at most one request in progress. While its response is awaited, later requests stay
unread, first in the buffer, then in the kernel. So a client that pipelines gets its responses in order and cannot park
more than one operation. Responses to requests that arrived together, and complete without waiting, leave in one write.

A response is written directly to the socket unless the transport still has unsent bytes, because a write through the
transport costs more: a large one as soon as it is complete, a small one at the end of the event loop's turn
(`TurnWrites`). Parts of files bypass the transport as well (`FileResponse`).

Connections take turns. A connection that sends thousands of requests is served for one turn; then the event loop serves
the other connections. A turn is bounded in requests, in bytes of responses and in time.

Invariant: no request is served while its channel has a reason to hold (`Hold`). Each reason is released separately; the
connection resumes when no reason is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Sequence
from operator import add
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from base.file_slice import FileSlice
from base.line_limit import LineLimit
from base.system_calls import SYSTEM_CALLS
from broker.loop.promise import Promise
from broker.network.channel import Channel, Hold
from broker.network.file_response import FileResponse
from broker.network.turn_writes import TurnWrites
from broker.network.unsent_responses import UnsentResponses
from protocol.errors import Malformed
from protocol.frame import FrameReader

if TYPE_CHECKING:
    from broker.network.muted_connections import MutedConnections
    from broker.network.writable_sockets import WritableSockets

logger = logging.getLogger("kafka.network.connection")

Buffer = bytes | bytearray | memoryview
Buffers = list[Buffer]
"""Buffers that are written in order. Large ones may include a `FileSlice`, which is not read before it is sent."""

# Responses up to this size are joined before they are written: one small copy is cheaper than a vector of buffers.
JOIN_SIZE_MAX = 16 << 10
# A frame of this size may take long, as may several frames, so the responses of other connections are sent before.
LONG_FRAME_SIZE = 32 << 10
# Responses to requests that arrived together are gathered up to this size before they are written.
GATHER_SIZE_MAX = 64 << 10

# A turn ends after this many requests, this many bytes of responses, or this time, whichever comes first.
TURN_REQUESTS_MAX = 128
TURN_RESPONSES_SIZE_MAX = 1 << 20
TURN_MS = 5


_SINGLE_BUFFER = (bytes, bytearray, memoryview)


class Outcome(NamedTuple):
    """A response after which the connection does not serve the next request at once."""

    buffers: Buffers | None
    mute_ms: int
    """Milliseconds during which the connection serves no request, from the write of the response on (KIP-219)."""
    is_last: bool = False
    """Whether the connection closes after this response: its client has failed to authenticate itself."""


AwaitedResponse = Promise[Buffers | Outcome | None]
Response = Buffer | Buffers | Outcome | AwaitedResponse | None


class Dispatcher(Protocol):
    """The request layer as a connection uses it."""

    def dispatch(self, frame: memoryview, channel: Channel) -> Response:
        """Serve one frame; return framed buffers, None if the request expects no response, or a promise.

        A single buffer may be returned without a list, which is faster. An `Outcome` also mutes the connection.
        Requests whose response is complete are added to `channel.completed`. The frame is valid only during the call.

        Raises:
            Malformed: The connection has to be closed.
        """


class Traffic(NamedTuple):
    """What a connection has carried so far: requests, and the bytes in both directions as the kernel counts them."""

    request_count: int = 0
    incoming_size: int = 0
    outgoing_size: int = 0

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(*map(add, self, other))


NO_TRAFFIC = Traffic()

# Offsets of tcpi_bytes_acked and tcpi_bytes_received in Linux's struct tcp_info.
_ACKNOWLEDGED_AND_RECEIVED = struct.Struct("=QQ")
_BYTES_ACKNOWLEDGED = 120
_TCP_INFO_SIZE = _BYTES_ACKNOWLEDGED + _ACKNOWLEDGED_AND_RECEIVED.size


class Registry(Protocol):
    """The listener as its connections use it: it keeps the list of open connections."""

    monotonic_ms: Callable[[], int]
    """Measures the turns of connections."""
    monotonic_s: Callable[[], float]
    """Measures how long responses take to send."""
    turn_writes: TurnWrites
    """The responses to requests that were done at once."""
    awaited_writes: TurnWrites
    """The responses that were awaited: a consumer gets its records before the append that woke it has a response."""
    closing_lines: LineLimit
    """Bounds the lines about connections that are closed because of what they sent."""
    send_buffer_size: int
    """`SO_SNDBUF` of the connections' sockets in bytes; -1 if the kernel chooses it."""

    @property
    def muted(self) -> MutedConnections:
        """The connections whose clients have exceeded a quota."""
        ...

    @property
    def writable_sockets(self) -> WritableSockets:
        """Calls back when a full socket is writable again."""
        ...

    def flush_writes(self) -> None:
        """Write the responses that wait for the end of the turn."""

    def secured(self, connection: Connection, transport: asyncio.BaseTransport) -> None:
        """Determine the client of a connection whose TLS handshake is complete."""

    def closed(self, connection: Connection, traffic: Traffic = NO_TRAFFIC) -> None:
        """Remove a connection that is closed, and add up what it has carried."""


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one accepted socket."""

    __slots__ = (
        "_awaited",
        "_descriptor",
        "_dispatcher",
        "_file_response",
        "_is_closed_when_sent",
        "_is_reading",
        "_reader",
        "_registry",
        "_swept_size_left",
        "_transport",
        "_unsent",
        "_waiting",
        "channel",
        "idle_sweeps",
        "was_active",
    )

    def __init__(
        self, registry: Registry, dispatcher: Dispatcher, reader: FrameReader, unsent: UnsentResponses, channel: Channel
    ) -> None:
        self.channel = channel
        self.was_active = False
        self.idle_sweeps = 0
        self._registry = registry
        self._dispatcher = dispatcher
        self._reader = reader
        self._unsent = unsent
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1  # of the transport's socket; -1 if writes must not bypass the transport
        self._file_response: FileResponse | None = None
        self._waiting: Buffer = b""  # a response that is written at the end of the turn
        self._is_closed_when_sent = False
        self._awaited: AwaitedResponse | None = None
        self._is_reading = True
        self._swept_size_left = 0

    @property
    def is_connected(self) -> bool:
        """Whether the connection has a transport, whose loss will call `Registry.closed`."""
        return self._transport is not None

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_size(self) -> int:
        """Part of `SlowReader`."""
        if self._file_response is not None:
            return self._file_response.size_in_memory
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def size_left(self) -> int:
        """Part of `SlowReader`."""
        return self.unsent_size if self._file_response is None else self._file_response.size_left

    def was_active_since_sweep(self) -> bool:
        """Return whether bytes were received or sent since the last call."""
        size_left = self.size_left
        was_active = self.was_active or size_left != self._swept_size_left
        self.was_active = False
        self._swept_size_left = size_left
        return was_active

    def tcp_info(self, size: int) -> bytes:
        """Return the first `size` bytes of Linux's `struct tcp_info`; empty without an open socket or Linux."""
        option = SYSTEM_CALLS.tcp_info_option
        if self._transport is None or option is None:
            return b""
        stream: socket.socket | None = self._transport.get_extra_info("socket")
        try:
            return b"" if stream is None else stream.getsockopt(socket.IPPROTO_TCP, option, size)
        except OSError:  # it is closed
            return b""

    def traffic(self) -> Traffic:
        """Return what the connection has carried so far. Bytes are 0 where the kernel does not count them."""
        info = self.tcp_info(_TCP_INFO_SIZE)
        incoming = outgoing = 0
        if len(info) == _TCP_INFO_SIZE:
            outgoing, incoming = _ACKNOWLEDGED_AND_RECEIVED.unpack_from(info, _BYTES_ACKNOWLEDGED)
        return Traffic(self.channel.request_count, incoming, outgoing)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass of it
        accepted = transport.get_extra_info("socket")
        if transport.get_extra_info("sslcontext") is not None:
            self._registry.secured(self, transport)
        elif accepted is not None:
            self._descriptor = accepted.fileno()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self.was_active = True
        reader = self._reader
        channel = self.channel
        if channel.holds:
            # The reader keeps these bytes until they can be served; later bytes stay in the kernel.
            reader.received(nbytes)
            reader.settle()
            self._pause_reading()
            return
        frame = reader.sole_frame(nbytes)
        if frame is None:
            reader.received(nbytes)
            self._serve()
            return
        # Fast path: exactly one whole request has arrived, so there is no order of responses to keep.
        if nbytes >= LONG_FRAME_SIZE:
            self._registry.flush_writes()
        try:
            response = self._dispatcher.dispatch(frame, channel)
        except Exception as error:
            self._close_for(error)
            return
        if type(response) is list or response is None:
            self._respond(response, self._registry.turn_writes)
        elif isinstance(response, _SINGLE_BUFFER):
            self._respond([response], self._registry.turn_writes)
        elif type(response) is Outcome:
            self._respond_and_mute(response)
        else:
            self._await_response(response)  # type: ignore[arg-type]

    def pause_writing(self) -> None:
        self.channel.hold(Hold.UNSENT_RESPONSES)
        self._unsent.blocked(self)

    def resume_writing(self) -> None:
        self.was_active = True
        self._unsent.drained(self)
        self.release(Hold.UNSENT_RESPONSES)

    def eof_received(self) -> None:
        """Send what waits: the transport closes itself then."""
        self.write_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        traffic = self.traffic()
        self._transport = None
        self._waiting = b""
        self._discard_file_response()
        self._descriptor = -1
        self._unsent.drained(self)
        try:
            self.channel.closed(self._registry.monotonic_s())
        finally:
            if self._awaited is not None:
                self._awaited.cancel()
            self._registry.closed(self, traffic)

    def hold(self, reason: int) -> None:
        """Stop serving and reading until `release` of this `reason` (of `Hold`). An awaited response is still sent."""
        self.channel.hold(reason)
        self._pause_reading()

    def release(self, reason: int) -> None:
        """Remove one `reason` of `Hold`; resume if none is left. A reason that is not set has no effect."""
        if self.channel.release(reason):
            self._resume()

    def close(self) -> None:
        """Close the connection after all written bytes are sent."""
        if self._file_response is not None:
            self._is_closed_when_sent = True
        elif self._transport is not None:
            self.write_waiting()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are lost."""
        if self._transport is not None:
            self._transport.abort()

    def _serve(self) -> None:
        """Serve the requests that have arrived, for at most one turn."""
        self._registry.flush_writes()
        reader = self._reader
        unwritten: Buffers = []
        try:
            is_turn_over = self._serve_turn(unwritten)
            if is_turn_over:
                reader.vacate()
            else:
                reader.settle()
        except Exception as error:
            self._respond_gathered(unwritten)
            self._close_for(error)
            return
        self._respond_gathered(unwritten)
        if is_turn_over and reader.kept_size:
            self._end_turn()

    def _serve_turn(self, unwritten: Buffers) -> bool:
        """Serve requests until the turn is over, and add responses that are not written yet to `unwritten`.

        `unwritten` is valid also when this raises. Returns True if the turn is over, False if no request is left or the
        next one has to wait.
        """
        size = written_size = 0
        channel = self.channel
        end_ms = self._registry.monotonic_ms() + TURN_MS
        for _ in range(TURN_REQUESTS_MAX):
            frame = None if channel.holds else self._reader.next_frame()
            if frame is None:
                return False
            response = self._dispatcher.dispatch(frame, channel)
            if isinstance(response, _SINGLE_BUFFER):
                response = [response]
            if type(response) is list:
                unwritten += response
                size += sum(map(len, response))
                if size > GATHER_SIZE_MAX:
                    # Only a write detects a slow reader, and small requests may have large responses.
                    self._respond_gathered(unwritten)
                    written_size += size
                    size = 0
                    if written_size > TURN_RESPONSES_SIZE_MAX:
                        return True
            elif response is not None:
                self._respond_gathered(unwritten)
                if type(response) is Outcome:
                    self._respond_and_mute(response)
                    return False
                self._await_response(response)  # type: ignore[arg-type]
                return self._awaited is None
            if self._registry.monotonic_ms() >= end_ms:
                return True
        return True

    def _close_for(self, error: Exception) -> None:
        """Close this connection because one of its requests failed. Requests of other connections are not affected."""
        if isinstance(error, Malformed):
            held_back = self._registry.closing_lines.admit(self._registry.monotonic_s())
            if held_back is not None:
                note = f" ({held_back} such lines not logged)" if held_back else ""
                logger.warning("closing connection from %s: %s%s", self.channel, error, note)
        else:
            # A bug of ours. If it were raised here, it would end the caller, and the client would wait forever.
            logger.error("closing connection from %s: its request failed unexpectedly", self.channel, exc_info=error)
        self.close()

    def _end_turn(self) -> None:
        """Pause this connection until the event loop has served the others."""
        self._pause_reading()
        if not self.channel.holds & Hold.TURN_OVER:
            self.channel.hold(Hold.TURN_OVER)
            asyncio.get_running_loop().call_soon(self.release, Hold.TURN_OVER)

    def _await_response(self, awaited: AwaitedResponse) -> None:
        self._awaited = awaited
        self.channel.hold(Hold.RESPONSE_AWAITED)
        awaited.add_done_callback(self._response_completed)

    def _response_completed(self, awaited: AwaitedResponse) -> None:
        """Write an awaited response. Called by the code that completed the promise."""
        self._awaited = None
        self.channel.release(Hold.RESPONSE_AWAITED)
        if self._transport is None:
            return
        if awaited.cancelled():
            # This open connection did not cancel it. Without this response the later ones would be out of order.
            logger.info("closing connection from %s: the work on its request was cancelled", self.channel)
            self.close()
            return
        error = awaited.exception()
        if error is not None:
            self._close_for(error)
            return
        self.was_active = True
        response = awaited.result()
        try:
            if type(response) is Outcome:
                self._respond_and_mute(response)
            else:
                self._respond(cast("Buffers | None", response), self._registry.awaited_writes)
        except Exception:
            # A bug of ours. If it were raised here, it would end the code that completed the promise. A part of the
            # response may be sent already.
            logger.exception("closing connection from %s: its response failed unexpectedly", self.channel)
            self.abort()
            return
        if self._reader.kept_size or not self._is_reading:
            # Serve the client's next request in a later turn, not inside the call that completed this response.
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        """Serve the requests that are kept, then read again."""
        if self._is_free() and self._reader.kept_size:
            self._serve()
        if self._is_free() and not self._is_reading and self._transport is not None:
            self._is_reading = True
            self._transport.resume_reading()

    def _is_free(self) -> bool:
        """Return whether the next request may be served now."""
        return not self.channel.holds and not self.is_closing

    def _pause_reading(self) -> None:
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _respond(self, buffers: Buffers | None, writes: TurnWrites, sending_since_s: float | None = None) -> None:
        """Send the responses of all requests in `channel.completed`, which includes requests that expect no response.

        `writes` are those that the response may wait with. `sending_since_s` is the present time if some of the
        responses were gathered before, else None.
        """
        transport = self._transport
        registry = self._registry
        if buffers and transport is not None:
            if self._waiting:
                self.write_waiting()
            response = buffers[0] if len(buffers) == 1 else self._joined_or_written(transport, buffers)
            if response:
                if writes.is_worthwhile and self._descriptor >= 0 and len(response) <= JOIN_SIZE_MAX:
                    self._waiting = response
                    writes.add(self)
                    return
                self._write(transport, response)
        channel = self.channel
        if channel.completed:
            now_s = registry.monotonic_s()
            channel.sent(now_s, sending_since_s)
            writes.note(self, now_s)

    def write_waiting(self) -> None:
        """Write the response that waits, if one does: see `TurnWrites`."""
        waiting = self._waiting
        if waiting:
            self._waiting = b""
            if self._transport is not None:
                self._write(self._transport, waiting)

    def _write(self, transport: asyncio.Transport, response: Buffer) -> None:
        sent = 0
        if self._may_write_directly(transport):
            try:
                sent = os.write(self._descriptor, response)
            except OSError:
                sent = 0  # the socket is full; or it is broken, which the transport's write reports as well
        if sent < len(response) and not transport.is_closing():
            transport.write(memoryview(response)[sent:])

    def _respond_gathered(self, buffers: Buffers) -> None:
        if buffers or self.channel.completed:
            self._respond(buffers.copy(), self._registry.turn_writes, self._registry.monotonic_s())
            buffers.clear()

    def _respond_and_mute(self, outcome: Outcome) -> None:
        """Write a response, then serve no request until its mute time has passed, or close."""
        self._respond(outcome.buffers, self._registry.turn_writes)
        if outcome.is_last:
            self.close()
        elif self._transport is not None:
            self.hold(Hold.THROTTLED)
            self._registry.muted.mute(self, outcome.mute_ms)

    def _joined_or_written(self, transport: asyncio.Transport, buffers: Buffers) -> bytes:
        """Return small buffers joined into one. Write large ones, which is not worth a copy, and return nothing."""
        if sum(map(len, buffers)) <= JOIN_SIZE_MAX:
            return b"".join(buffers)
        self._write_large(transport, buffers)
        return b""

    def _may_write_directly(self, transport: asyncio.Transport) -> bool:
        """Return whether bytes may bypass the transport: it has no unsent bytes, and its descriptor is still open."""
        return self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing()

    def _write_large(self, transport: asyncio.Transport, buffers: Sequence[Buffer | FileSlice]) -> None:
        if FileSlice in map(type, buffers) and self._may_write_directly(transport):
            self._file_response = FileResponse(self._descriptor, buffers, self._registry.send_buffer_size)
            self._send_file_response()
            return
        try:
            transport.writelines([piece.read() if isinstance(piece, FileSlice) else piece for piece in buffers])
        except OSError as error:
            self._cannot_send(error)

    def _send_file_response(self) -> None:
        """Send as many bytes as the socket accepts now."""
        assert self._file_response is not None
        self.was_active = True
        try:
            is_sent = self._file_response.send()
            if not is_sent:
                self._registry.writable_sockets.call_when_writable(self._descriptor, self._send_more)
                if not self.channel.holds & Hold.UNSENT_RESPONSES:
                    self.pause_writing()
                return
        except OSError as error:
            self._cannot_send(error)
            return
        self._file_response = None
        if self._is_closed_when_sent:
            self.close()
        elif self.channel.holds & Hold.UNSENT_RESPONSES:
            self.resume_writing()

    def _send_more(self) -> None:
        """Continue when the socket is writable. The requests after this response are served inside this call."""
        try:
            self._send_file_response()
        except Exception:
            logger.exception(
                "closing connection from %s: a request after its response failed unexpectedly", self.channel
            )
            self.abort()

    def _cannot_send(self, error: Exception) -> None:
        """Abort: the client is gone or a file cannot be read, and later responses would be out of order."""
        logger.info("closing connection from %s: its response cannot be sent: %r", self.channel, error)
        self._discard_file_response()
        self.abort()

    def _discard_file_response(self) -> None:
        if self._file_response is not None:
            self._file_response.discard()
            self._file_response = None
            self._registry.writable_sockets.forget(self._descriptor)
