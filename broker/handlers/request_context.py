"""The context of a request: all that a handler may know about it besides its body.

Owns: the request's client, listener and version, and what it waits for. Must not know: sockets, or what a request
means.
"""

from __future__ import annotations

from broker.loop.waits import Waits
from broker.network.channel import Channel
from protocol.errors import Malformed


class RequestContext(Waits):
    """One request: its header, its client and the parts of its time."""

    is_frame_kept = False
    """Whether the request's frame, into which its records point, stays valid after the handler has returned."""
    mute_ms = 0
    """Milliseconds during which the connection serves no request because its client exceeded a quota (KIP-219)."""
    is_of_broker = False
    """Whether another broker sent it, and is allowed to: it has no quotas."""
    conversion_s = 0.0
    """Seconds spent on converting records between formats."""
    temporary_size = 0
    """Bytes that were allocated to convert or decompress records."""

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, channel: Channel
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.channel = channel

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
