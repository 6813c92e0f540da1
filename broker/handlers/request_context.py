"""The context of a request: all that a handler may know about it besides its body.

Owns: the request's client, listener and version, and what is recorded of it. Must not know: sockets, or what a request
means.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.loop.waits import Waits
from broker.network.channel import Channel
from protocol.errors import Malformed


class Extras(Waits):
    """What is recorded of few requests only."""

    queue_s = 0.0
    """How long the request waited before it was decoded."""
    mute_ms = 0
    """Milliseconds during which the connection serves no request because its client exceeded a quota (KIP-219)."""
    conversion_s = 0.0
    """Seconds spent on converting records between formats."""
    temporary_size = 0
    """Bytes that were allocated to convert or decompress records."""
    records_size = 0
    """Bytes of memory that the records of the response take; counted as unsent while it waits for a thread."""
    other_codes: Mapping[int, int] | None = None
    """How many times the response has each error code but NONE; None if it has no other."""
    is_logged = False
    """Whether the request gets a line in the request log."""
    details: object = None
    """What the request contains, for the request log."""
    response_details: object = None
    """What its response contains."""


class RequestContext:
    """One request: its header, its client and the parts of its time."""

    is_frame_kept = False
    """Whether the request's frame, into which its records point, stays valid after the handler has returned."""
    is_of_broker = False
    """Whether another broker sent it, and is allowed to: it has no quotas."""

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, channel: Channel
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.channel = channel
        self.extras: Extras | None = None
        """None as long as nothing of it was recorded. `with_extras` returns it to be written."""

    def with_extras(self) -> Extras:
        extras = self.extras
        if extras is None:
            extras = self.extras = Extras()
        return extras

    def begin_wait(self, waits_for: str, now_s: float) -> None:
        """Part of `Waiting`."""
        self.with_extras().begin_wait(waits_for, now_s)

    def end_wait(self, now_s: float) -> None:
        """Part of `Waiting`."""
        if self.extras is not None:
            self.extras.end_wait(now_s)

    def count_conversion(self, duration_s: float, size: int) -> None:
        """Part of `Converting`."""
        extras = self.with_extras()
        extras.conversion_s += duration_s
        extras.temporary_size += size

    @property
    def mute_ms(self) -> int:
        """Milliseconds during which the connection serves no request because its client exceeded a quota (KIP-219)."""
        return 0 if self.extras is None else self.extras.mute_ms

    @mute_ms.setter
    def mute_ms(self, mute_ms: int) -> None:
        self.with_extras().mute_ms = mute_ms

    @property
    def quota_entity(self) -> tuple[str, str]:
        """The user and the client id that quotas are set for."""
        return self.principal.partition(":")[2], self.client_id or ""

    @property
    def client_host(self) -> str:
        return self.channel.client_host

    @property
    def listener(self) -> str:
        return self.channel.listener

    @property
    def principal(self) -> str:
        return self.channel.principal


class CloseConnection(Malformed):
    """The protocol's only way to signal an error to this client is to close its connection."""
