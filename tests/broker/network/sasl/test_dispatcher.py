"""The dispatcher of listeners with SASL: what reaches the requests' dispatcher, and when a connection closes."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from broker.handlers import sasl_authenticate
from broker.loop.driver import start
from broker.loop.promise import Promise
from broker.network.channel import Authentication, Channel
from broker.network.connection import Outcome, Response
from broker.network.sasl.dispatcher import SaslDispatcher
from broker.network.sasl.exchange import Login, Step
from broker.network.sasl.plain import PlainExchange, by_table
from broker.network.sasl.session import SaslListener, SaslMechanism, SaslSession
from protocol.errors import Malformed
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.support.manual_clock import ManualClock

HANDSHAKE, METADATA = b"\0\x11handshake", b"\0\x03metadata"
SESSION_MS = 60_000


class Inner:
    """Returns each frame as its response, and fails the session for `fail`."""

    def __init__(self) -> None:
        self.served: list[bytes] = []

    def dispatch(self, frame: memoryview, channel: Channel) -> Response:
        self.served.append(bytes(frame))
        assert channel.sasl is not None
        if bytes(frame).endswith(b"fail"):
            channel.sasl.choose("NONE", is_raw=False)
        return [bytes(frame)]


class Served:
    """One connection of a listener with PLAIN."""

    def __init__(self, session_ms_max: int = 0) -> None:
        self.clock = ManualClock()
        self.inner = Inner()
        self.dispatcher = SaslDispatcher(self.inner, self.clock)
        mechanism = SaslMechanism(lambda: PlainExchange(by_table({"alice": "secret"}.get)), session_ms_max)
        self.session = SaslSession(SaslListener({"PLAIN": mechanism}, receive_size_max=100, failure_delay_ms=1))
        self.channel = Channel("127.0.0.1", 5, "A")
        self.channel.authenticate_by(self.session, lambda: None)

    def send(self, frame: bytes) -> Response:
        return self.dispatcher.dispatch(memoryview(frame), self.channel)

    def log_in(self) -> None:
        self.session.choose("PLAIN", is_raw=True)
        assert self.send(b"\0alice\0secret") == [bytes(4)]


def test_client_is_its_user_after_a_token_in_a_frame() -> None:
    served = Served()
    served.log_in()
    assert (served.channel.principal, served.channel.authentication) == ("User:alice", Authentication.COMPLETE)
    assert served.send(METADATA) == [METADATA]


async def test_failed_token_in_a_frame_closes_without_a_response() -> None:
    served = Served()
    served.session.choose("PLAIN", is_raw=True)
    refused = served.send(b"\0alice\0wrong")
    assert isinstance(refused, Promise)
    assert await refused == Outcome(None, 0, is_last=True)
    assert served.channel.authentication is Authentication.PENDING


async def test_response_to_a_failure_comes_later_and_is_the_last() -> None:
    served = Served()
    refused = served.send(b"\0\x11fail")
    assert isinstance(refused, Promise)
    assert not refused.done()
    assert await refused == Outcome([b"\0\x11fail"], 0, is_last=True)


async def test_failure_in_a_later_turn_of_the_loop_is_answered_late_as_well() -> None:
    """A busy loop begins the handler later than the request is dispatched."""
    served = Served()
    response: Promise[object] = Promise()
    served.inner.dispatch = lambda frame, channel: response  # type: ignore[method-assign,assignment,return-value]
    refused = served.send(b"\0\x24token")
    served.session.choose("NONE", is_raw=False)
    response.set_result([b"refused"])
    assert isinstance(refused, Promise)
    assert not refused.done()
    assert await refused == Outcome([b"refused"], 0, is_last=True)


@pytest.mark.parametrize(("password", "is_accepted"), [(b"secret", True), (b"wrong", False)])
@pytest.mark.parametrize("is_raw", [True, False])
async def test_tokens_of_a_blocking_mechanism_are_evaluated_in_a_thread(
    password: bytes, is_accepted: bool, is_raw: bool
) -> None:
    threads: list[int] = []

    class Blocking(PlainExchange):
        def evaluate(self, token: bytes) -> Step:
            threads.append(threading.get_ident())
            return super().evaluate(token)

    clock, api_key = ManualClock(), 36
    mechanism = SaslMechanism(
        lambda: Blocking(by_table({"alice": "secret"}.get)),
        in_thread=lambda work: asyncio.get_running_loop().run_in_executor(None, work),
    )
    session = SaslSession(SaslListener({"PLAIN": mechanism}, receive_size_max=100, failure_delay_ms=1))
    channel = Channel("127.0.0.1", 5, "A")
    channel.authenticate_by(session, lambda: None)

    class Handler:
        def dispatch(self, frame: memoryview, channel: Channel) -> Response:
            context = SimpleNamespace(channel=channel)
            request = SaslAuthenticateRequest(auth_bytes=bytes(frame[2:]))
            handled = sasl_authenticate.handle(SimpleNamespace(clock=clock), request, context)  # type: ignore[arg-type]

            async def encoded() -> list[bytes]:
                return [bytes([(await handled).error_code])]

            return start(encoded())

    dispatcher = SaslDispatcher(Handler(), clock)
    session.choose("PLAIN", is_raw=is_raw)
    token = b"\0alice\0" + password
    served = dispatcher.dispatch(memoryview(token if is_raw else b"\0" + bytes([api_key]) + token), channel)
    assert isinstance(served, Promise)
    assert channel.authentication is Authentication.PENDING
    outcome = await served
    assert threads
    assert threading.get_ident() not in threads
    assert isinstance(outcome, Outcome) is not is_accepted
    assert channel.authentication is (Authentication.COMPLETE if is_accepted else Authentication.PENDING)
    assert channel.principal == ("User:alice" if is_accepted else "User:ANONYMOUS")


def test_expired_login_closes_the_connection_at_its_next_request() -> None:
    served = Served(SESSION_MS)
    served.log_in()
    served.clock.advance(SESSION_MS - 1)
    assert served.send(METADATA) == [METADATA]
    served.clock.advance(1)
    with pytest.raises(Malformed, match="expired"):
        served.send(METADATA)
    assert served.inner.served == [METADATA]


def test_handshake_begins_a_new_authentication_of_a_login_with_a_lifetime() -> None:
    served = Served(SESSION_MS)
    served.log_in()
    served.clock.advance(SESSION_MS + 1)
    served.send(HANDSHAKE)
    assert served.channel.authentication is Authentication.PENDING
    served.log_in()
    assert served.session.login == Login("alice")
    assert served.send(METADATA) == [METADATA]


def test_handshake_after_a_login_without_a_lifetime_is_an_ordinary_request() -> None:
    served = Served()
    served.log_in()
    served.send(HANDSHAKE)
    assert served.channel.authentication is Authentication.COMPLETE
    assert served.inner.served == [HANDSHAKE]
