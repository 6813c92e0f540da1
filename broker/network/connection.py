"""One client connection: bytes in, frames to the dispatcher, answers out in request order.

Owns: the read side (a `FrameReader`), whether this connection may read on, and the order of its answers. Must not know:
what a request means; that is the dispatcher's, which gets a frame and gives back buffers or a future of them.

One request of a connection is worked on at a time, as in Kafka: while an answer is awaited, later requests of the
connection stay unread (first in the buffer, then in the kernel), so that a client that pipelines is answered in order
and cannot park more than one operation. Requests that are answered at once and arrived together leave in one write.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from broker.request_context import Peer
from protocol.errors import Malformed
from protocol.frame import FrameReader

logger = logging.getLogger("kafka.network.connection")

Buffer = bytes | bytearray | memoryview
Buffers = list[Buffer]

# Answers up to this size are joined before they are written: one small copy is cheaper than a vector of small buffers.
JOIN_SIZE_MAX = 16 << 10
# Answers to requests that arrived together are gathered up to this size before they are written.
GATHER_SIZE_MAX = 64 << 10


class Dispatcher(Protocol):
    """What a connection needs of the request layer."""

    def dispatch(self, frame: memoryview, peer: Peer) -> Buffers | asyncio.Future[Buffers | None] | None:
        """Answer one frame: framed buffers, None when the request wants no answer, or a future of either.

        Raises Malformed when the connection has to close. The frame is only valid during the call.
        """


class Admission(Protocol):
    """Who keeps the list of open connections and may refuse one."""

    def admit(self, connection: Connection, transport: asyncio.Transport) -> Peer | None:
        """Note a new connection and say who it is, or None to have it closed at once."""

    def closed(self, connection: Connection) -> None:
        """An admitted connection is gone."""


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one accepted socket."""

    __slots__ = (
        "_admission",
        "_awaited",
        "_dispatcher",
        "_is_reading",
        "_is_writable",
        "_reader",
        "_transport",
        "has_received",
        "idle_sweeps",
        "peer",
    )

    peer: Peer

    def __init__(self, admission: Admission, dispatcher: Dispatcher, reader: FrameReader) -> None:
        self.has_received = False
        self.idle_sweeps = 0
        self._admission = admission
        self._dispatcher = dispatcher
        self._reader = reader
        self._transport: asyncio.Transport | None = None
        self._awaited: asyncio.Future[Buffers | None] | None = None
        self._is_reading = True
        self._is_writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass of it
        peer = self._admission.admit(self, stream)
        if peer is None:
            stream.abort()
            return
        self.peer = peer
        self._transport = stream

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self.has_received = True
        self._reader.received(nbytes)
        if self._awaited is not None or not self._is_writable:
            # Bytes that cannot be served yet are kept once; after that the kernel keeps them.
            self._reader.settle()
            self._pause_reading()
        else:
            self._serve()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        if self._awaited is None:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return  # never admitted
        self._transport = None
        if self._awaited is not None:
            self._awaited.cancel()
        self._admission.closed(self)

    def close(self) -> None:
        """Close after what was already written has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _serve(self) -> None:
        reader = self._reader
        answers: Buffers = []
        size = 0
        try:
            while self._is_writable and (frame := reader.next_frame()) is not None:
                answer = self._dispatcher.dispatch(frame, self.peer)
                if type(answer) is list:
                    answers += answer
                    size += sum(map(len, answer))
                    if size > GATHER_SIZE_MAX:
                        # Writing is what notices a slow reader; many small requests may ask for much.
                        self._write(answers)
                        answers, size = [], 0
                elif answer is not None:
                    self._await(answer)  # type: ignore[arg-type]
                    break
            reader.settle()
        except Malformed as error:
            self._write(answers)
            logger.warning("closing connection from %s: %s", self.peer, error)
            self.close()
            return
        if answers:
            self._write(answers)

    def _await(self, answer: asyncio.Future[Buffers | None]) -> None:
        self._awaited = answer
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[Buffers | None]) -> None:
        self._awaited = None
        if self._transport is None or answer.cancelled():
            return
        error = answer.exception()
        if error is not None:
            if not isinstance(error, Malformed):
                logger.error("no answer for %s", self.peer, exc_info=error)
            self.close()
            return
        buffers = answer.result()
        if buffers:
            self._write(buffers)
        self._go_on()

    def _go_on(self) -> None:
        """Serve what waited, then read again."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._reader.kept_size:
            self._serve()
        if self._awaited is None and self._is_writable and not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _write(self, buffers: Buffers) -> None:
        transport = self._transport
        if transport is None or not buffers:
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif sum(map(len, buffers)) <= JOIN_SIZE_MAX:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)
