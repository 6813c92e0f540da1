"""One client's connection: frames from bytes, and when it is read.

Owns the bytes that have arrived, and the limits on them and on responses. Must not know what a request does.

A connection is not read while the responses that it waits for, or those that its client does not read, exceed their
limits. So a client costs bounded memory, whatever it sends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, Protocol, cast

from controller.coordination.four_letter_words import WORDS
from controller.coordination.machine import jute
from controller.coordination.machine.jute import Malformed
from controller.coordination.machine.messages import ConnectRequest, Request
from controller.coordination.settings import CoordinationSettings

logger = logging.getLogger("org.apache.zookeeper.server.NIOServerCnxn")

_LENGTH_BYTES: Final = 4
_CONNECT_BYTES_MAX: Final = 1024
"""A connect request has 45 bytes: nobody gets memory before there is a session."""


class Requests(Protocol):
    """Who serves the requests of connections."""

    def opened(self, connection: Connection) -> bool:
        """Return whether the connection may stay."""
        ...

    def connect(self, connection: Connection, request: ConnectRequest) -> None: ...

    def request(self, connection: Connection, xid: int, code: int, request: Request | None) -> None: ...

    def four_letter_word(self, word: str) -> str: ...

    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    def __init__(self, requests: Requests, settings: CoordinationSettings) -> None:
        self._requests = requests
        self._settings = settings
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._frame_bytes_max = min(_CONNECT_BYTES_MAX, settings.frame_bytes_max)
        self._is_reading = True
        self._is_writing_paused = False
        self._is_parsing = False
        self._first_request_timer: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._begun_s: deque[float] = deque()
        """When each request that has no response yet arrived; responses come in the order of the requests."""
        self._outstanding_bytes = 0
        self._refused: set[str] = set()
        self.peer = "?"
        self.has_session = False

    @property
    def outstanding(self) -> int:
        return len(self._begun_s)

    # -- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        self.peer = "{}:{}".format(*transport.get_extra_info("peername")[:2])
        if not self._requests.opened(self):
            self._transport = None
            transport.abort()
            return
        self._first_request_timer = asyncio.get_running_loop().call_later(
            self._settings.first_request_timeout_ms / 1000, self.close, "it has not begun a session in time"
        )

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._parse()

    def connection_lost(self, error: Exception | None) -> None:
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._forget()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._parse()

    # -- frames ----------------------------------------------------------------------------------------------------

    def _parse(self) -> None:
        """Serve the complete frames that have arrived, as far as the limits allow."""
        if self._is_parsing:
            return
        self._is_parsing = True
        start = 0
        try:
            while self._transport is not None and self._may_serve:
                end = self._end_of_frame(start)
                if end is None or end > len(self._received):
                    break
                frame = bytes(memoryview(self._received)[start + _LENGTH_BYTES : end])
                start = end
                self._serve(frame)
        except Malformed as error:
            self.close(f"its bytes are no request: {error}")
        finally:
            self._is_parsing = False
        del self._received[:start]
        if self._transport is not None and self._is_reading != self._may_serve:
            self._is_reading = not self._is_reading
            if self._is_reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    @property
    def _may_serve(self) -> bool:
        return (
            not self._is_writing_paused
            and len(self._begun_s) < self._settings.outstanding_max
            and self._outstanding_bytes < self._settings.outstanding_bytes_max
        )

    def _end_of_frame(self, start: int) -> int | None:
        """Return where the frame ends, None if its length is incomplete. Raises Malformed."""
        head = bytes(memoryview(self._received)[start : start + _LENGTH_BYTES])
        if len(head) < _LENGTH_BYTES:
            return None
        length = int.from_bytes(head, "big", signed=True)
        if not self.has_session and head.isalpha() and head.decode() in WORDS:
            assert self._transport is not None
            self._transport.write(self._requests.four_letter_word(head.decode()).encode())
            self.close("")
            return None
        if not 0 <= length <= self._frame_bytes_max:
            raise Malformed(f"a frame has {length} bytes, expected at most {self._frame_bytes_max}")
        return start + _LENGTH_BYTES + length

    def _serve(self, frame: bytes) -> None:
        self._begun_s.append(asyncio.get_running_loop().time())
        if self.has_session:
            self._requests.request(self, *jute.decode_request(frame))
            return
        request = jute.decode_connect(frame)
        self.has_session = True
        self._frame_bytes_max = self._settings.frame_bytes_max
        self._stop_timer()
        self._requests.connect(self, request)

    # -- responses -------------------------------------------------------------------------------------------------

    def hold(self, size: int) -> None:
        """Count the bytes of a response or an event that waits for the disk."""
        self._outstanding_bytes += size

    def respond(self, frame: bytes, held: int) -> float:
        """Send a response as by `send`, and return for how many seconds its client has waited."""
        self.send(frame, held)
        return asyncio.get_running_loop().time() - self._begun_s.popleft()

    def send(self, frame: bytes, held: int) -> None:
        """Send a response or an event, for which `hold` has counted `held` bytes."""
        self._outstanding_bytes -= held
        if self._transport is not None:
            self._transport.write(frame)

    def resume(self) -> None:
        """Serve what has waited for responses to be sent."""
        if self._received or not self._is_reading:
            self._parse()

    def log_refused(self, text: str) -> None:
        """Log what the client asked for in vain, each once. `text` is short, whatever the client sends."""
        if text not in self._refused and len(self._refused) < len(WORDS):
            self._refused.add(text)
            logger.warning("%s asks for %s, which this server refuses", self.peer, text)

    def close(self, reason: str) -> None:
        """Close the connection after sending what was written, as far as its client reads it soon.

        `reason` is logged unless it is empty.
        """
        transport = self._transport
        if transport is None:
            return
        if reason:
            logger.warning("the connection of %s is closed: %s", self.peer, reason)
        self._forget()
        if transport.get_write_buffer_size() and self._is_writing_paused:
            transport.abort()  # it does not read
        else:
            transport.close()
            # It counts no longer among the connections, so it must not stay open as long as its client likes.
            self._abort_timer = asyncio.get_running_loop().call_later(
                self._settings.close_timeout_ms / 1000, transport.abort
            )

    def _forget(self) -> None:
        self._stop_timer()
        if self._transport is not None:
            self._transport = None
            self._received.clear()
            self._requests.closed(self)

    def _stop_timer(self) -> None:
        if self._first_request_timer is not None:
            self._first_request_timer.cancel()
            self._first_request_timer = None
