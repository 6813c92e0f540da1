"""OAUTHBEARER: the messages around a token."""

import pytest

from broker.network.sasl.exchange import AuthenticationFailed, InvalidCredentials, Login, Step
from broker.network.sasl.oauthbearer import InvalidToken, OauthBearerExchange


def verify(token: str) -> Login:
    if token != "good.token":
        raise InvalidToken("scripted")
    return Login("alice", expires_ms=5)


def exchange() -> OauthBearerExchange:
    return OauthBearerExchange(verify)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good.token\x01\x01",
        b"n,a=alice,\x01auth=bearer good.token\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01extension=value\x01\x01",
    ],
)
def test_valid_token_logs_in(message: bytes) -> None:
    assert exchange().evaluate(message) == Step(b"", Login("alice", expires_ms=5))


def test_invalid_token_gets_an_error_that_its_client_acknowledges() -> None:
    one = exchange()
    assert one.evaluate(b"n,,\x01auth=Bearer bad\x01\x01") == Step(b'{"status":"invalid_token"}')
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        one.evaluate(b"\x01")


def test_another_authorization_id_is_rejected() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        exchange().evaluate(b"n,a=bob,\x01auth=Bearer good.token\x01\x01")


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=good.token\x01\x01", b"n,,\x01auth=Bearer good.token\x01", b"\xff"],
)
def test_malformed_message_is_rejected(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        exchange().evaluate(message)
