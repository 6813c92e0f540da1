"""One client connection: bytes in, frames to the dispatcher, answers out in request order.

Owns: the read side (a `FrameReader`), whether this connection may read on, and the order of its answers. Must not know:
what a request means; that is the dispatcher's, which gets a frame and gives back buffers or a future of them.

One request of a connection is worked on at a time, as in Kafka: while an answer is awaited, later requests of the
connection stay unread (first in the buffer, then in the kernel), so that a client that pipelines is answered in order
and cannot park more than one operation. Requests that are answered at once and arrived together leave in one write.

An answer leaves in the moment in which it is made: straight to the socket unless something waits for it already, as the
transport's way there is longer. What stays in files goes around the transport as well (`FileResponse`).

Connections take turns: one that sends thousands of requests at a time has some of them served, then the others are
looked at, and it goes on. A turn is bounded in requests, in bytes of answers and in time.

Invariant: no request is served while its channel has a reason to hold (`Hold`). Each reason is released separately; the
connection resumes when no reason is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from broker.loop.promise import Awaited
from broker.network.channel import Channel, Hold
from broker.network.file_response import FileResponse
from broker.network.muted_connections import MutedConnections
from broker.network.unsent_responses import UnsentResponses
from broker.network.writable_sockets import WritableSockets
from protocol.errors import Malformed
from protocol.frame import FrameReader
from storage.files import FileSlice

logger = logging.getLogger("kafka.network.connection")

Buffer = bytes | bytearray | memoryview
Buffers = list[Buffer]
"""What leaves one after the other. A `FileSlice` may stand among large ones; until it is sent its length is enough."""

# Answers up to this size are joined before they are written: one small copy is cheaper than a vector of small buffers.
JOIN_SIZE_MAX = 16 << 10
# Answers to requests that arrived together are gathered up to this size before they are written.
GATHER_SIZE_MAX = 64 << 10

# After so many requests, answers of this size, or this time, the other connections are served before this one goes on.
TURN_REQUESTS_MAX = 128
TURN_ANSWERS_SIZE_MAX = 1 << 20
TURN_MS = 5


_ONE_PIECE = (bytes, bytearray, memoryview)


class Outcome(NamedTuple):
    """A response to a client that exceeded a quota."""

    buffers: Buffers | None
    mute_ms: int
    """How long to serve no further request of the connection, from the moment the response is written (KIP-219)."""


AwaitedAnswer = Awaited[Buffers | Outcome | None]
Answer = Buffer | Buffers | Outcome | AwaitedAnswer | None


class Dispatcher(Protocol):
    """What a connection needs of the request layer."""

    def dispatch(self, frame: memoryview, channel: Channel) -> Answer:
        """Serve one frame; return framed buffers, None if the request expects no response, or a future or promise.

        One buffer may come without a list around it, which saves time. An `Outcome` also mutes the connection. Requests
        whose response is complete are added to `channel.answered`.

        Raises Malformed when the connection has to close. The frame is only valid during the call.
        """


class Registry(Protocol):
    """What the listener is for its connections: it keeps the list of those that are open."""

    monotonic_ms: Callable[[], int]
    """The clock that turns are measured with."""
    monotonic_s: Callable[[], float]
    """The clock that the sending of responses is measured with."""
    muted: MutedConnections
    send_buffer_size: int
    """What the buffers of their sockets were set to, -1 when the kernel decides."""
    writable_sockets: WritableSockets

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one accepted socket."""

    __slots__ = (
        "_awaited",
        "_descriptor",
        "_dispatcher",
        "_file_answer",
        "_is_closed_when_sent",
        "_is_reading",
        "_reader",
        "_registry",
        "_swept_size_left",
        "_transport",
        "_unsent",
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
        self._descriptor = -1  # the transport's, where the socket may be written to around it
        self._file_answer: FileResponse | None = None
        self._is_closed_when_sent = False
        self._awaited: AwaitedAnswer | None = None
        self._is_reading = True
        self._swept_size_left = 0

    @property
    def is_connected(self) -> bool:
        """Whether `Registry.closed` is still to come by itself."""
        return self._transport is not None

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_size(self) -> int:
        """Part of `SlowReader`."""
        if self._file_answer is not None:
            return self._file_answer.size_in_memory
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def size_left(self) -> int:
        """Part of `SlowReader`."""
        return self.unsent_size if self._file_answer is None else self._file_answer.size_left

    def was_active_since_sweep(self) -> bool:
        """Whether bytes came or went since this was asked last."""
        size_left = self.size_left
        was_active = self.was_active or size_left != self._swept_size_left
        self.was_active = False
        self._swept_size_left = size_left
        return was_active

    def tcp_info(self, size: int) -> bytes:
        """What the kernel knows about the connection: the first `size` bytes of Linux's tcp_info, none when closing."""
        if self._transport is None or self._transport.is_closing():
            return b""
        stream: socket.socket = self._transport.get_extra_info("socket")
        return stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass of it
        accepted = transport.get_extra_info("socket")
        if accepted is not None and transport.get_extra_info("sslcontext") is None:
            self._descriptor = accepted.fileno()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self.was_active = True
        reader = self._reader
        channel = self.channel
        if channel.holds:
            # Bytes that cannot be served yet are kept once; after that the kernel keeps them.
            reader.received(nbytes)
            reader.settle()
            self._pause_reading()
            return
        frame = reader.sole_frame(nbytes)
        if frame is None:
            reader.received(nbytes)
            self._serve()
            return
        # One request and nothing else, which is what most clients send: nothing is to be put in order.
        try:
            answer = self._dispatcher.dispatch(frame, channel)
        except Exception as error:
            self._close_for(error)
            return
        if isinstance(answer, _ONE_PIECE):
            self._respond([answer])
        elif type(answer) is list or answer is None:
            self._respond(answer)
        elif type(answer) is Outcome:
            self._respond_and_mute(answer)
        else:
            self._await(answer)  # type: ignore[arg-type]

    def pause_writing(self) -> None:
        self.channel.hold(Hold.UNSENT_RESPONSES)
        self._unsent.blocked(self)

    def resume_writing(self) -> None:
        self.was_active = True
        self._unsent.drained(self)
        self.release(Hold.UNSENT_RESPONSES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._discard_file_answer()
        self._descriptor = -1
        self._unsent.drained(self)
        self.channel.closed(self._registry.monotonic_s())
        if self._awaited is not None:
            self._awaited.cancel()
        self._registry.closed(self)

    def hold(self, reason: int) -> None:
        """Serve and read nothing until `release` for this `reason` (of `Hold`). An awaited answer still leaves."""
        self.channel.hold(reason)
        self._pause_reading()

    def release(self, reason: int) -> None:
        """The `reason` is over: go on, unless there is another one. Harmless when there was none."""
        if self.channel.release(reason):
            self._go_on()

    def close(self) -> None:
        """Close after what was already written has left."""
        if self._file_answer is not None:
            self._is_closed_when_sent = True
        elif self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _serve(self) -> None:
        """Serve what has arrived, as far as it is this connection's turn."""
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
        """Serve request after request. Answers that are left to write are in `unwritten`, also when this raises.

        True when the turn is over; False when no request is left, or the next one has to wait.
        """
        size = answered_size = 0
        channel = self.channel
        end_ms = self._registry.monotonic_ms() + TURN_MS
        for _ in range(TURN_REQUESTS_MAX):
            frame = None if channel.holds else self._reader.next_frame()
            if frame is None:
                return False
            answer = self._dispatcher.dispatch(frame, channel)
            if isinstance(answer, _ONE_PIECE):
                answer = [answer]
            if type(answer) is list:
                unwritten += answer
                size += sum(map(len, answer))
                if size > GATHER_SIZE_MAX:
                    # Writing is what notices a slow reader; many small requests may ask for much.
                    self._respond_gathered(unwritten)
                    answered_size += size
                    size = 0
                    if answered_size > TURN_ANSWERS_SIZE_MAX:
                        return True
            elif answer is not None:
                self._respond_gathered(unwritten)
                if type(answer) is Outcome:
                    self._respond_and_mute(answer)
                    return False
                self._await(answer)  # type: ignore[arg-type]
                return self._awaited is None
            if self._registry.monotonic_ms() >= end_ms:
                return True
        return True

    def _close_for(self, error: Exception) -> None:
        """Close, as a request could not be answered. Other requests are not concerned, whoever's they are."""
        if isinstance(error, Malformed):
            logger.warning("closing connection from %s: %s", self.channel, error)
        else:
            # A bug of ours. Here it would end whoever called, and the client would wait for ever.
            logger.error("closing connection from %s: its request failed unexpectedly", self.channel, exc_info=error)
        self.close()

    def _end_turn(self) -> None:
        """There may be more to do, but first it is the others' turn."""
        self._pause_reading()
        if not self.channel.holds & Hold.TURN_OVER:
            self.channel.hold(Hold.TURN_OVER)
            asyncio.get_running_loop().call_soon(self.release, Hold.TURN_OVER)

    def _await(self, answer: AwaitedAnswer) -> None:
        self._awaited = answer
        self.channel.hold(Hold.RESPONSE_AWAITED)
        answer.add_done_callback(self._answered)

    def _answered(self, answer: AwaitedAnswer) -> None:
        """Called by the loop, or in the middle of whatever it was that completed the answer."""
        self._awaited = None
        self.channel.release(Hold.RESPONSE_AWAITED)
        if self._transport is None:
            return
        if answer.cancelled():
            # Not by this connection, which is still open: without this answer the later ones would be out of order.
            logger.info("closing connection from %s: the work on its request was cancelled", self.channel)
            self.close()
            return
        error = answer.exception()
        if error is not None:
            self._close_for(cast(Exception, error))
            return
        self.was_active = True
        response = answer.result()
        try:
            if type(response) is Outcome:
                self._respond_and_mute(response)
            else:
                self._respond(cast("Buffers | None", response))
        except Exception:
            # A bug of ours. Here it would end whoever completed the answer, and a part of it may have left.
            logger.exception("closing connection from %s: its answer failed unexpectedly", self.channel)
            self.abort()
            return
        if self._reader.kept_size or not self._is_reading:
            # Serve the client's next request in a later turn, not inside the call that completed this answer.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Serve what waited, then read again."""
        if self._is_free() and self._reader.kept_size:
            self._serve()
        if self._is_free() and not self._is_reading and self._transport is not None:
            self._is_reading = True
            self._transport.resume_reading()

    def _is_free(self) -> bool:
        """Whether the next request may be served now."""
        return not self.channel.holds and not self.is_closing

    def _pause_reading(self) -> None:
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _respond(self, buffers: Buffers | None, sending_since_s: float | None = None) -> None:
        """Write the responses of all requests in `channel.answered`. Those that expect none are in it as well.

        `sending_since_s` is the present time if some of the responses were gathered before.
        """
        if buffers:
            self._write(buffers)
        channel = self.channel
        if channel.answered:
            channel.sent(self._registry.monotonic_s(), sending_since_s)

    def _respond_gathered(self, buffers: Buffers) -> None:
        if buffers or self.channel.answered:
            self._respond(buffers.copy(), self._registry.monotonic_s())
            buffers.clear()

    def _respond_and_mute(self, outcome: Outcome) -> None:
        """Write a response, then serve no request until its mute time has passed."""
        self._respond(outcome.buffers)
        if self._transport is not None:
            self.hold(Hold.THROTTLED)
            self._registry.muted.mute(self, outcome.mute_ms)

    def _write(self, buffers: Buffers) -> None:
        """`buffers` are not empty."""
        if len(buffers) == 1:
            self._write_one(buffers[0])
        elif sum(map(len, buffers)) <= JOIN_SIZE_MAX:
            self._write_one(b"".join(buffers))
        elif self._transport is not None:
            self._write_large(self._transport, buffers)

    def _write_one(self, answer: Buffer) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._may_write_around(transport):
            try:
                sent = os.write(self._descriptor, answer)
            except OSError:
                sent = 0  # it takes nothing now; or it is broken, as the transport will find as well
            if sent == len(answer):
                return
            answer = memoryview(answer)[sent:]
        transport.write(answer)

    def _may_write_around(self, transport: asyncio.Transport) -> bool:
        """Whether bytes may go to the socket directly: none wait in the transport, and it has its descriptor still."""
        return self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing()

    def _write_large(self, transport: asyncio.Transport, buffers: Sequence[Buffer | FileSlice]) -> None:
        if FileSlice in map(type, buffers) and self._may_write_around(transport):
            self._file_answer = FileResponse(self._descriptor, buffers, self._registry.send_buffer_size)
            self._send_file_answer()
            return
        try:
            transport.writelines([piece.read() if isinstance(piece, FileSlice) else piece for piece in buffers])
        except OSError as error:
            self._cannot_send(error)

    def _send_file_answer(self) -> None:
        """Send what the socket takes now."""
        assert self._file_answer is not None
        self.was_active = True
        try:
            is_sent = self._file_answer.send()
            if not is_sent:
                self._registry.writable_sockets.call_when_writable(self._descriptor, self._send_more)
                if not self.channel.holds & Hold.UNSENT_RESPONSES:
                    self.pause_writing()
                return
        except OSError as error:
            self._cannot_send(error)
            return
        self._file_answer = None
        if self._is_closed_when_sent:
            self.close()
        elif self.channel.holds & Hold.UNSENT_RESPONSES:
            self.resume_writing()

    def _send_more(self) -> None:
        """Called when the socket takes more; what is served behind the answer is served in here."""
        try:
            self._send_file_answer()
        except Exception:
            logger.exception("closing connection from %s: what followed its answer failed unexpectedly", self.channel)
            self.abort()

    def _cannot_send(self, error: Exception) -> None:
        """The client is gone, or a file is not to be had; what follows would be out of order."""
        logger.info("closing connection from %s: its answer cannot be sent: %r", self.channel, error)
        self._discard_file_answer()
        self.abort()

    def _discard_file_answer(self) -> None:
        if self._file_answer is not None:
            self._file_answer.discard()
            self._file_answer = None
            self._registry.writable_sockets.forget(self._descriptor)
