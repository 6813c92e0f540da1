"""SASL/PLAIN: one token with user and password."""

import hmac

import pytest

from broker.network.sasl.exchange import AuthenticationFailed, Login, Step
from broker.network.sasl.plain import PlainExchange, by_table

PASSWORDS = {"alice": "secret", "zoë": "pässword"}


def evaluate(token: bytes) -> Step:
    return PlainExchange(by_table(PASSWORDS.get)).evaluate(token)


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        ("\0zoë\0pässword".encode(), "zoë"),
    ],
)
def test_right_password_logs_in(token: bytes, user: str) -> None:
    assert evaluate(token) == Step(b"", Login(user))


def test_an_unknown_user_takes_the_same_steps_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def noted(expected: bytes, given: bytes) -> bool:
        compared.append(given)
        return compare(expected, given)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    for user in ("alice", "nobody"):
        with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
            evaluate(f"\0{user}\0wrong".encode())
    assert compared == [b"wrong", b"wrong"]


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\0alice\0\xff", "Invalid SASL/PLAIN response: expected UTF-8"),
    ],
)
def test_invalid_token_is_rejected_with_the_text_of_kafka(token: bytes, text: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        evaluate(token)
    assert str(caught.value) == text


def test_authorization_id_does_not_tell_whether_the_password_is_right() -> None:
    with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
        evaluate(b"bob\0alice\0wrong")
