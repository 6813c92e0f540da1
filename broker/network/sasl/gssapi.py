"""SASL/GSSAPI (RFC 4752): the client proves who it is by a Kerberos ticket.

Owns the messages of both sides. Must not know Kerberos libraries: a `SecurityContext` makes and checks the tokens.

    client   token of the security context                        server   token of the security context, if it has one
             ... until both contexts are established ...
    client   empty                                                 server   wrap(layers, size)
    client   wrap(layer, size, authorization id)                   server   nothing more

`layers` is a byte with a bit for each security layer, and `size` has three bytes. As Kafka, this offers only the layer
0x01, none: TLS encrypts. As in Kafka, the authorization id has no effect; the principal comes from the ticket alone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from broker.network.sasl.clients import ServerNotTrusted
from broker.network.sasl.exchange import InvalidCredentials, Login, Step

NAME = "GSSAPI"
FIRST_BYTE = 0x60
"""The first byte of the first token (RFC 2743, 3.1). No request of Kafka begins with it."""

_NO_LAYER = 0x01
_NO_BUFFER = b"\0\0\0"
_LAYER_MESSAGE_SIZE = 4


class GssFailed(Exception):  # noqa: N818 - the name states the condition
    """A token is invalid, or there is no ticket. The message states why, for the log."""


class SecurityContext(Protocol):
    """A context of GSS-API (RFC 2743) of one side. All methods raise GssFailed."""

    @property
    def is_established(self) -> bool:
        """Whether no further token is expected."""

    def step(self, token: bytes | None) -> bytes | None:
        """Process the peer's token, None for the first of a client; return the next token for it, if there is one."""

    def peer(self) -> str:
        """Return the principal of the client."""

    def wrap(self, message: bytes) -> bytes:
        """Return a message with the signature of this side."""

    def unwrap(self, token: bytes) -> bytes:
        """Return a message of the peer after the check of its signature."""


class _Stage(Enum):
    CONTEXT = auto()
    """Tokens of the security context."""
    OFFER = auto()
    """The client's empty token, to which the server responds with its layers."""
    CHOICE = auto()
    """The client's choice of a layer."""


class GssapiExchange:
    """`Exchange` of the server."""

    def __init__(self, context: SecurityContext, user_of: Callable[[str], str]) -> None:
        """`user_of(principal)` returns the name of the user. Raises ValueError if there is none."""
        self._context = context
        self._user_of = user_of
        self._stage = _Stage.CONTEXT

    def evaluate(self, token: bytes) -> Step:
        try:
            return self._next(token)
        except GssFailed as error:
            raise InvalidCredentials(str(error)) from None

    def _next(self, token: bytes) -> Step:
        context = self._context
        match self._stage:
            case _Stage.CONTEXT:
                response = context.step(token)
                if not context.is_established:
                    return Step(response or b"")
                self._stage = _Stage.OFFER
                return self._offer() if response is None else Step(response)
            case _Stage.OFFER:
                if token:
                    raise InvalidCredentials("a token after the end of the security context, expected an empty one")
                return self._offer()
            case _Stage.CHOICE:
                return self._completed(context.unwrap(token))

    def _offer(self) -> Step:
        self._stage = _Stage.CHOICE
        return Step(self._context.wrap(bytes((_NO_LAYER,)) + _NO_BUFFER))

    def _completed(self, choice: bytes) -> Step:
        if len(choice) < _LAYER_MESSAGE_SIZE or choice[0] != _NO_LAYER:
            raise InvalidCredentials("the client asks for a security layer, which is not available")
        try:
            user = self._user_of(self._context.peer())
        except ValueError as error:
            raise InvalidCredentials(str(error)) from None
        return Step(None, Login(user))


class GssapiClient:
    """`SaslClient` of one login. Its context may ask a key distribution center, which blocks."""

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._has_chosen = False

    def first(self) -> bytes:
        """See `SaslClient`. Raises ServerNotTrusted."""
        return self._step(None) or b""

    def respond(self, challenge: bytes) -> bytes | None:
        if self._has_chosen:
            return None
        if not self._context.is_established:
            return self._step(challenge) or b""
        try:
            offer = self._context.unwrap(challenge)
            if len(offer) < _LAYER_MESSAGE_SIZE or not offer[0] & _NO_LAYER:
                raise ServerNotTrusted("the server asks for a security layer, which is not available")
            self._has_chosen = True
            return self._context.wrap(bytes((_NO_LAYER,)) + _NO_BUFFER)
        except GssFailed as error:
            raise ServerNotTrusted(str(error)) from error

    def _step(self, token: bytes | None) -> bytes | None:
        try:
            return self._context.step(token)
        except GssFailed as error:
            raise ServerNotTrusted(str(error)) from error
