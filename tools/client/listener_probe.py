"""What serves at an address: how a listener expects its clients to connect, found without settings of a client.

A listener that is asked in the wrong way closes the connection without a reason, so a client that fails asks in every
way: in plain text, with TLS, as HTTP. Only clients that fail probe, because a broker logs each wrong attempt.

Owns the probe and the text about a wrong `security.protocol`. Must not know retries, or what a client wants to do.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.client.bootstrap import Endpoint

HTTP = "HTTP"
TLS_WITH_CERTIFICATE = "SSL or SASL_SSL"
"""The listener asks for a certificate of the client, so it stays unknown whether it also asks for a login."""
PROBE_TIMEOUT_S = 0.8
"""Of each step; three of them and the first attempt of the client end within five seconds."""

_EXPECTED = {
    "PLAINTEXT": "neither TLS nor a login",
    "SSL": "TLS",
    "SASL_PLAINTEXT": "a login without TLS",
    "SASL_SSL": "TLS and a login",
    TLS_WITH_CERTIFICATE: "TLS with a certificate of the client",
}
_RESPONSE_SIZE_MAX = 1 << 20
_INT32 = struct.Struct(">i")


def _request(api_key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    frame = struct.pack(">hhih", api_key, version, correlation_id, -1) + body  # -1: no client id
    return _INT32.pack(len(frame)) + frame


# Written as bytes: tools probe before they import the codec. Every broker since 0.10 serves these versions.
_API_VERSIONS = _request(18, 0, 1)
_METADATA = _request(3, 1, 2, _INT32.pack(0))  # of no topic


class _NotKafka(Exception):  # noqa: N818 - named as what was found
    """The peer sent something else than a response of a broker."""

    def __init__(self, first: bytes) -> None:
        super().__init__(first)
        self.is_http = first == b"HTTP"


def wrong_listener(endpoint: Endpoint, protocol: str, option: str) -> str | None:
    """Return one line if a client with this `security.protocol` cannot be served at an address; None if it may be.

    `option` is that of the command line whose file has the settings of the client.
    """
    found = served_at(endpoint)
    if found is None or protocol in found.split(" or "):
        return None
    if found.startswith("SASL") and served_at(endpoint) != found:
        return None  # a broker that stops closes connections between two requests, too
    if found == HTTP:
        return (
            f"{endpoint} is an HTTP server, expected a listener of a broker: use a port of its setting listeners, "
            "usually 9092"
        )
    return (
        f"{endpoint} expects {_EXPECTED[found]}: security.protocol is {protocol}, expected {found}. Set it in the file "
        f"that {option} names; docs/security.md describes the settings"
    )


def served_at(endpoint: Endpoint, timeout_s: float = PROBE_TIMEOUT_S) -> str | None:
    """Return the `security.protocol` of a listener, or HTTP; None if nothing responds as any of them."""
    try:
        with socket.create_connection(endpoint, timeout_s) as plain:
            return "SASL_PLAINTEXT" if _asks_for_login(plain) else "PLAINTEXT"
    except _NotKafka as other:
        if other.is_http:
            return HTTP
    except TimeoutError:
        return _http_at(endpoint, timeout_s)  # a server with TLS closes the connection at the first bytes
    except OSError:
        pass
    return _tls_at(endpoint, timeout_s) or _http_at(endpoint, timeout_s)


def _tls_at(endpoint: Endpoint, timeout_s: float) -> str | None:
    import ssl  # most clients connect without it

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no secret is sent, nothing is believed
    try:
        with (
            socket.create_connection(endpoint, timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=endpoint.host) as encrypted,
        ):
            return "SASL_SSL" if _asks_for_login(encrypted) else "SSL"
    except _NotKafka as other:
        return HTTP if other.is_http else None
    except ssl.SSLError as error:
        # A server that misses a certificate sends an alert, with TLS 1.3 after the handshake.
        return TLS_WITH_CERTIFICATE if "ALERT" in (error.reason or "") else None
    except OSError:
        return None


def _http_at(endpoint: Endpoint, timeout_s: float) -> str | None:
    try:
        with socket.create_connection(endpoint, timeout_s) as plain:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return HTTP if _receive(plain, _INT32.size) == b"HTTP" else None
    except OSError:
        return None


def _asks_for_login(connection: socket.socket) -> bool:
    """Return whether a broker closes the connection at a request before a login. Raises _NotKafka, OSError."""
    _exchange(connection, _API_VERSIONS, 1)
    try:
        _exchange(connection, _METADATA, 2)
    except ConnectionError:
        return True
    return False


def _exchange(connection: socket.socket, request: bytes, correlation_id: int) -> None:
    connection.sendall(request)
    head = _receive(connection, _INT32.size)
    (size,) = _INT32.unpack(head)
    if not _INT32.size <= size <= _RESPONSE_SIZE_MAX:
        raise _NotKafka(head)
    if _INT32.unpack_from(_receive(connection, size)) != (correlation_id,):
        raise _NotKafka(head)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the connection was closed")
        data += piece
    return data
