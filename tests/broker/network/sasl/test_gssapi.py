"""GSSAPI: the messages of both sides over a context that only counts its tokens."""

import pytest

from broker.network.sasl.clients import ServerNotTrusted
from broker.network.sasl.exchange import InvalidCredentials, Login, Step
from broker.network.sasl.gssapi import GssapiClient, GssapiExchange, GssFailed

NO_LAYER = b"\x01\0\0\0"


class Context:
    """A context that is established after a number of tokens, and signs a message with a byte before it."""

    def __init__(self, tokens: list[bytes | None], principal: str = "alice@EXAMPLE.COM") -> None:
        self._tokens = tokens
        self._principal = principal

    @property
    def is_established(self) -> bool:
        return not self._tokens

    def step(self, token: bytes | None) -> bytes | None:
        if token == b"bad":
            raise GssFailed("the token is bad")
        return self._tokens.pop(0)

    def peer(self) -> str:
        return self._principal

    def wrap(self, message: bytes) -> bytes:
        return b"S" + message

    def unwrap(self, token: bytes) -> bytes:
        if token[:1] != b"S":
            raise GssFailed("the signature is wrong")
        return token[1:]


def user_of(principal: str) -> str:
    name, _, realm = principal.partition("@")
    if realm != "EXAMPLE.COM":
        raise ValueError(f"No rules apply to {principal}")
    return name


def test_client_is_the_user_of_its_principal() -> None:
    exchange = GssapiExchange(Context([b"one", b"two"]), user_of)
    assert exchange.evaluate(b"first") == Step(b"one")
    assert exchange.evaluate(b"second") == Step(b"two")
    assert exchange.evaluate(b"") == Step(b"S" + NO_LAYER)
    assert exchange.evaluate(b"S\x01\0\0\0mallory") == Step(None, Login("alice"))


def test_layers_follow_at_once_if_the_context_needs_no_token() -> None:
    assert GssapiExchange(Context([None]), user_of).evaluate(b"first") == Step(b"S" + NO_LAYER)


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (b"S\x02\0\0\0", "security layer"),
        (b"S\x05\0\0\0", "security layer"),
        (b"S\x01\0", "security layer"),
        (b"S", "security layer"),
        (b"\x01\0\0\0", "signature"),
        (b"", "signature"),
    ],
)
def test_invalid_choices_fail(choice: bytes, reason: str) -> None:
    exchange = GssapiExchange(Context([None]), user_of)
    exchange.evaluate(b"first")
    with pytest.raises(InvalidCredentials, match=reason):
        exchange.evaluate(choice)


def test_token_after_the_end_of_the_context_fails() -> None:
    exchange = GssapiExchange(Context([b"one"]), user_of)
    exchange.evaluate(b"first")
    with pytest.raises(InvalidCredentials, match="expected an empty one"):
        exchange.evaluate(b"more")


def test_bad_token_fails() -> None:
    with pytest.raises(InvalidCredentials, match="the token is bad"):
        GssapiExchange(Context([b"one"]), user_of).evaluate(b"bad")


def test_principal_without_a_user_fails() -> None:
    exchange = GssapiExchange(Context([None], "alice@OTHER.ORG"), user_of)
    exchange.evaluate(b"first")
    with pytest.raises(InvalidCredentials, match="No rules apply to alice"):
        exchange.evaluate(b"S" + NO_LAYER)


def test_client_and_server_complete_each_other() -> None:
    client, server = GssapiClient(Context([b"a", None])), GssapiExchange(Context([b"b"]), user_of)
    token: bytes | None = client.first()
    logins = []
    while token is not None:
        step = server.evaluate(token)
        logins.append(step.login)
        token = client.respond(step.token or b"")
    assert logins == [None, None, Login("alice")]


@pytest.mark.parametrize("challenge", [b"bad", b"S\x02\0\0\0", b"S"])
def test_client_does_not_trust_other_servers(challenge: bytes) -> None:
    client = GssapiClient(Context([b"a", b"b"] if challenge == b"bad" else [b"a"]))
    client.first()
    with pytest.raises(ServerNotTrusted):
        client.respond(challenge)
