"""The states of an authentication: what is due, what fails, and how long a login is valid."""

import pytest

from broker.network.sasl.exchange import AuthenticationFailed, InvalidCredentials, Login, Step
from broker.network.sasl.session import SaslListener, SaslMechanism, SaslSession, Stage, WrongState

HOUR_MS = 3_600_000


class Scripted:
    """Returns `c` for the token `c`, logs in for `in:USER`, with an expiration for `until:USER`, else fails."""

    def evaluate(self, token: bytes) -> Step:
        what, _, user = token.decode().partition(":")
        if what == "in":
            return Step(b"ok", Login(user))
        if what == "until":
            return Step(b"ok", Login(user, expires_ms=5_000))
        if what == "c":
            return Step(b"c")
        raise (InvalidCredentials if what == "bad" else AuthenticationFailed)("scripted reason")


def listener(session_ms_max: int = 0) -> SaslListener:
    mechanism = SaslMechanism(Scripted, session_ms_max)
    return SaslListener({"ONE": mechanism, "TWO": mechanism}, receive_size_max=100, failure_delay_ms=100)


def logged_in(of: SaslListener, token: bytes = b"in:alice", *, now_ms: int = 10, wall_ms: int = 1_000) -> SaslSession:
    session = SaslSession(of)
    session.choose("ONE", is_raw=False)
    session.authenticate(token, now_ms, wall_ms, is_raw=False)
    return session


@pytest.mark.parametrize("is_raw", [True, False])
def test_tokens_lead_to_a_login(is_raw: bool) -> None:
    of = listener()
    session = SaslSession(of)
    assert session.choose("ONE", is_raw=is_raw)
    assert session.authenticate(b"c", 1, 1, is_raw=is_raw).step == Step(b"c")
    verdict = session.authenticate(b"in:alice", 2, 2, is_raw=is_raw)
    assert (verdict.step, verdict.lifetime_ms) == (Step(b"ok", Login("alice")), 0)
    assert (session.stage, session.login, session.expires_ms) == (Stage.COMPLETE, Login("alice"), None)
    assert (of.counts.successes, of.counts.failures) == (1, 0)


def test_unknown_mechanism_fails() -> None:
    of = listener()
    session = SaslSession(of)
    assert not session.choose("NONE", is_raw=False)
    assert (session.stage, session.offered, of.counts.failures) == (Stage.FAILED, ["ONE", "TWO"], 1)


def test_text_for_wrong_credentials_does_not_state_the_reason() -> None:
    session = SaslSession(listener())
    session.choose("ONE", is_raw=False)
    verdict = session.authenticate(b"bad", 1, 1, is_raw=False)
    assert (
        verdict.error
        == "Authentication failed during authentication due to invalid credentials with SASL mechanism ONE"
    )
    assert session.failure == "ONE: scripted reason"


def test_other_failures_keep_their_text() -> None:
    session = SaslSession(listener())
    session.choose("ONE", is_raw=False)
    assert session.authenticate(b"other", 1, 1, is_raw=False).error == "scripted reason"


def test_messages_that_are_not_due_fail() -> None:
    for is_raw in (True, False):
        session = SaslSession(listener())
        with pytest.raises(WrongState):
            session.authenticate(b"c", 1, 1, is_raw=is_raw)
        session = SaslSession(listener())
        session.choose("ONE", is_raw=is_raw)
        with pytest.raises(WrongState):
            session.choose("ONE", is_raw=is_raw)
        assert session.stage is Stage.FAILED
        session = SaslSession(listener())
        session.choose("ONE", is_raw=is_raw)
        with pytest.raises(WrongState):
            session.authenticate(b"c", 1, 1, is_raw=not is_raw)


@pytest.mark.parametrize(
    ("session_ms_max", "token", "lifetime_ms"),
    [
        (0, b"in:alice", 0),
        (HOUR_MS, b"in:alice", HOUR_MS),
        (HOUR_MS, b"until:alice", 4_000),
        (3_000, b"until:alice", 3_000),
        (0, b"until:alice", 4_000),
    ],
)
def test_lifetime_is_the_shorter_of_limit_and_credential(session_ms_max: int, token: bytes, lifetime_ms: int) -> None:
    session = logged_in(listener(session_ms_max), token)
    assert session.expires_ms == (10 + lifetime_ms if lifetime_ms else None)


def test_expired_login_is_counted() -> None:
    of = listener(HOUR_MS)
    session = logged_in(of)
    assert not session.is_expired(HOUR_MS + 9)
    assert session.is_expired(HOUR_MS + 10)
    assert of.counts.expired_connections == 1


def test_authentication_again_extends_the_login() -> None:
    of = listener(HOUR_MS)
    session = logged_in(of)
    assert not session.begin_again(500), "once a second at most"
    assert session.begin_again(2_000)
    assert session.choose("ONE", is_raw=False)
    assert session.authenticate(b"in:alice", 2_001, 0, is_raw=False).lifetime_ms == HOUR_MS
    assert session.expires_ms == HOUR_MS + 2_001
    assert (of.counts.successes, of.counts.reauthentications) == (1, 1)


def test_login_without_lifetime_is_not_renewed() -> None:
    assert not logged_in(listener()).begin_again(HOUR_MS)


def test_principal_and_mechanism_must_stay_the_same() -> None:
    of = listener(HOUR_MS)
    session = logged_in(of)
    session.begin_again(2_000)
    session.choose("ONE", is_raw=False)
    assert "Cannot change principals" in session.authenticate(b"in:bob", 2_001, 0, is_raw=False).error
    session = logged_in(of)
    session.begin_again(2_000)
    assert session.choose("TWO", is_raw=False)
    assert "not supported for re-authentication" in session.authenticate(b"in:alice", 2_001, 0, is_raw=False).error
    assert of.counts.failed_reauthentications == 2
