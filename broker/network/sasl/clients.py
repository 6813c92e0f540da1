"""The client's side of PLAIN and SCRAM, for tools and for logins of brokers to each other.

Owns the messages of a client. Pure: nonces are arguments. Must not know connections.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Protocol

from broker.network.sasl.scram import ITERATIONS_MIN, Digest


class ServerNotTrusted(Exception):  # noqa: N818 - the name states the condition
    """The server's message is invalid, or the server does not know the password."""


class SaslClient(Protocol):
    """One login."""

    def first(self) -> bytes:
        """Return the first token."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the next token; None if the server's last token is right. Raises ServerNotTrusted."""


class PlainClient:
    """`SaslClient` of PLAIN."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def respond(self, challenge: bytes) -> bytes | None:
        return None


class ScramClient:
    """`SaslClient` of SCRAM (RFC 5802)."""

    def __init__(self, digest: Digest, user: str, password: str, nonce: str, *, uses_token: bool = False) -> None:
        """With `uses_token`, user and password are the id and HMAC of a delegation token."""
        self._digest = digest.value
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}" + (",tokenauth=true" if uses_token else "")
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        try:
            members = {part[0]: part[2:] for part in challenge.decode().split(",")}
            if self._signature is None:
                return self._final(challenge.decode(), members)
            self._check(members)
        except (ValueError, KeyError, IndexError) as error:
            raise ServerNotTrusted(f"the server's message is malformed: {type(error).__name__}") from error
        return None

    def _final(self, challenge: str, members: dict[str, str]) -> bytes:
        nonce, iterations = members["r"], int(members["i"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ServerNotTrusted("the server's nonce does not begin with the client's")
        if iterations < ITERATIONS_MIN:
            raise ServerNotTrusted(f"the server asks for {iterations} iterations, expected at least {ITERATIONS_MIN}")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), b64decode(members["s"]), iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        stored_key = hashlib.new(self._digest, client_key).digest()
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{challenge},{without_proof}".encode()
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), signed, self._digest)
        client_signature = hmac.digest(stored_key, signed, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _check(self, members: dict[str, str]) -> None:
        assert self._signature is not None
        if not hmac.compare_digest(b64decode(members["v"]), self._signature):
            raise ServerNotTrusted("the server does not know the password")
