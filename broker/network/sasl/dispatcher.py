"""The dispatcher of a listener with SASL: it precedes the one that serves requests.

Owns: tokens that arrive as bare frames (after SaslHandshake v0, or GSSAPI without a handshake), the delay of failures,
and the end of logins. Must not know: mechanisms (`session`), or what a request means beyond its API key. Connections of
listeners without SASL do not pass through it.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable

from base.clock import Clock
from base.line_limit import LineLimit
from broker.loop.driver import start
from broker.loop.promise import Promise
from broker.network.channel import Authentication, Channel
from broker.network.connection import AwaitedResponse, Buffers, Dispatcher, Outcome, Response
from broker.network.principals import NoPrincipalError
from broker.network.sasl import gssapi
from broker.network.sasl.exchange import AuthenticationFailed, Step
from broker.network.sasl.session import SaslSession, Stage
from protocol.api_key import ApiKey
from protocol.errors import Malformed
from protocol.frame import LENGTH

logger = logging.getLogger("kafka.network.Selector")

_API_KEY = struct.Struct(">h")
_GSSAPI_TOKEN = bytes((gssapi.FIRST_BYTE,))


LINE_INTERVAL_S = 10.0
LINES_MAX = 20
"""Lines in an interval about clients that fail to log in."""


class SaslDispatcher:
    """`Dispatcher` of connections whose channels have a `SaslSession`."""

    def __init__(self, inner: Dispatcher, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._lines = LineLimit(LINE_INTERVAL_S, LINES_MAX)

    def dispatch(self, frame: memoryview, channel: Channel) -> Response:
        session = channel.sasl
        assert session is not None, "a listener with SASL gives each channel a session"
        if channel.authentication is Authentication.COMPLETE:
            if session.expires_ms is not None:
                self._check_lifetime(frame, channel, session)
            if channel.authentication is Authentication.COMPLETE:
                return self._inner.dispatch(frame, channel)
        if self._is_first_token(frame, session) and not session.choose(gssapi.NAME, is_raw=True):
            return start(self._refuse(None, channel, session))
        if session.stage is Stage.RAW_TOKENS:
            return self._evaluate(bytes(frame), channel, session)
        try:
            response = self._inner.dispatch(frame, channel)
        except Malformed as error:
            self._log_failure(channel, error)
            raise
        if session.stage is Stage.FAILED:
            return start(self._refuse(response, channel, session))
        if isinstance(response, Promise):  # it waits for a thread, or for a turn of the loop
            return start(self._refused_if_failed(response, channel, session))
        return response

    @staticmethod
    def _is_first_token(frame: memoryview, session: SaslSession) -> bool:
        """Return whether a client of 0.9 begins with a token of GSSAPI. Later ones begin with SaslHandshake."""
        return session.stage is Stage.HANDSHAKE and session.login is None and frame[:1] == _GSSAPI_TOKEN

    def _check_lifetime(self, frame: memoryview, channel: Channel, session: SaslSession) -> None:
        """Begin a re-authentication if the client asks for one. Raises Malformed if its login has ended."""
        now_ms = self._clock.monotonic_ms()
        is_handshake = len(frame) >= _API_KEY.size and _API_KEY.unpack_from(frame)[0] == ApiKey.SASL_HANDSHAKE
        if is_handshake and session.begin_again(now_ms):
            channel.authenticate_again()
        elif session.is_expired(now_ms):
            raise Malformed("its login has expired, and it has not authenticated itself again")

    def _evaluate(self, token: bytes, channel: Channel, session: SaslSession) -> Response:
        """Return the response to a token that is a frame of its own, which is a frame of its own as well."""
        evaluate = session.evaluation(token, is_raw=True)
        if session.in_thread is not None:
            evaluated = session.in_thread(evaluate)
            return start(self._conclude_later(evaluated, channel, session))
        return self._conclude(evaluate(), channel, session)

    async def _conclude_later(
        self, evaluated: Awaitable[Step | AuthenticationFailed], channel: Channel, session: SaslSession
    ) -> Buffers | Outcome | None:
        response = self._conclude(await evaluated, channel, session)
        return await response if isinstance(response, Promise) else response

    def _conclude(
        self, outcome: Step | AuthenticationFailed, channel: Channel, session: SaslSession
    ) -> Buffers | Outcome | AwaitedResponse | None:
        clock = self._clock
        verdict = session.conclude(outcome, clock.monotonic_ms(), clock.now_ms())
        if verdict.step is None:
            return start(self._refuse(None, channel, session))
        if verdict.step.login is not None:
            try:
                channel.authenticated(verdict.step.login.user, session.mechanism)
            except NoPrincipalError as error:
                raise Malformed(str(error)) from error
        response = verdict.step.token
        return None if response is None else [LENGTH.pack(len(response)) + response]

    async def _refused_if_failed(
        self, response: AwaitedResponse, channel: Channel, session: SaslSession
    ) -> Buffers | Outcome | None:
        """Return a response; if it states a failure, after the delay."""
        outcome = await response
        return await self._refuse(outcome, channel, session) if session.stage is Stage.FAILED else outcome

    def _log_failure(self, channel: Channel, reason: object) -> None:
        held_back = self._lines.admit(self._clock.monotonic_s())
        if held_back is not None:
            note = f" ({held_back} such failures not logged)" if held_back else ""
            logger.info("Failed authentication with %s (%s)%s", channel, reason, note)

    async def _refuse(self, response: Response, channel: Channel, session: SaslSession) -> Outcome:
        """Return a failure after its delay, which slows down a search for passwords."""
        self._log_failure(channel, session.failure)
        await asyncio.sleep(session.failure_delay_ms / 1000)
        if isinstance(response, Promise):
            response = await response
        buffers: Buffers | None
        match response:
            case Outcome():
                buffers = response.buffers
            case list() | None:
                buffers = response
            case _:
                buffers = [response]
        return Outcome(buffers, 0, is_last=True)
