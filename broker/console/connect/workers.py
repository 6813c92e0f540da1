"""Requests to the workers of one Kafka Connect cluster, and which of them is asked.

Owns the HTTP requests, their limits of time and size, and which workers did not respond lately. A worker is another
host: nothing in its responses is trusted, and redirects are not followed. Must not know connectors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypedDict, TypeVar

import aiohttp
from yarl import URL

from broker.console.problem import ProblemError
from broker.console.response_bodies import bounded_body, connect_failure

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 2.0
READ_TIMEOUT_S: Final = 4.0
CHANGE_TIMEOUT_S: Final = 10.0
"""A worker that is not the leader forwards a change."""
ASKED_MAX: Final = 4
"""Workers that one request asks in turn: with the timeouts, less time than a request of a browser has."""
CONNECTIONS_MAX: Final = 8
RESPONSE_SIZE_MAX: Final = 4 << 20
ELEMENTS_MAX: Final = 200_000
"""Elements of the arrays and objects in a response. Each takes far more memory than its text."""
MESSAGE_SIZE_MAX: Final = 1_000
RETRY_MS: Final = 30_000
"""How long a worker that did not respond is asked last."""
HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",  # Kafka's workers require it even of a POST without a body
}
FAILED_GATEWAYS: Final = (401, 407, 502, 503, 504)
"""Statuses of a proxy or a login in front of a worker; another worker may respond."""
_STATUS: Final[Mapping[int, HTTPStatus]] = {
    status.value: status
    for status in (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
}


class UnavailableWorker(TypedDict):
    """A worker that did not respond lately, with the reason."""

    worker: str
    reason: str


class Answer(NamedTuple, Generic[T]):
    """A response and the worker that sent it."""

    worker: str
    value: T


class _Failure(NamedTuple):
    """Why and when a worker did not respond."""

    reason: str
    failed_ms: int


class _NoResponseError(Exception):
    """A worker did not send a response of Kafka Connect. If `was_sent`, it may have received the request."""

    def __init__(self, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.was_sent = was_sent


class Workers:
    """The workers at some addresses, which form one Kafka Connect cluster."""

    def __init__(self, urls: Sequence[str], monotonic_ms: Callable[[], int]) -> None:
        self._workers = tuple(dict.fromkeys(url.rstrip("/") for url in urls))
        self._monotonic_ms = monotonic_ms
        self._session: aiohttp.ClientSession | None = None
        self._failures: dict[str, _Failure] = {}

    def unavailable(self) -> list[UnavailableWorker]:
        """Return the workers that did not respond at their last request, if that was at most `RETRY_MS` ago."""
        return [
            UnavailableWorker(worker=each, reason=self._failures[each].reason)
            for each in self._workers
            if self._has_failed(each)
        ]

    async def read(self, path: str, shaped: Callable[[Any], T]) -> Answer[T]:
        """Return what `shaped` makes of the JSON of the first worker that responds.

        `shaped` raises ValueError for JSON that is not what it expects; then another worker is asked.

        Raises:
            ProblemError: a worker rejected the request, or no worker responded.
        """
        return await self._first_answer("GET", path, READ_TIMEOUT_S, lambda body: _parsed(body, shaped))

    async def change(self, method: str, path: str) -> None:
        """Send a request that changes something. One that may have reached a worker is not sent to another.

        Raises:
            ProblemError: a worker rejected the request, no worker can be reached, or the outcome is unknown.
        """
        await self._first_answer(method, path, CHANGE_TIMEOUT_S, lambda _: None, is_change=True)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _first_answer(
        self, method: str, path: str, timeout_s: float, parsed: Callable[[bytes], T], *, is_change: bool = False
    ) -> Answer[T]:
        reasons = []
        for worker in self._in_order()[:ASKED_MAX]:
            try:
                value = parsed(await self._exchange(method, worker, path, timeout_s))
            except _NoResponseError as error:
                self._has_not_responded(worker, error)
                if is_change and error.was_sent:
                    message = f"{worker}: {error.reason}; whether the change was made is unknown"
                    raise ProblemError(HTTPStatus.GATEWAY_TIMEOUT, message) from None
                reasons.append(f"{worker}: {error.reason}")
            else:
                self._failures.pop(worker, None)
                return Answer(worker, value)
        raise _no_worker(reasons)

    async def _exchange(self, method: str, worker: str, path: str, timeout_s: float) -> bytes:
        """Return the body of a successful response. Raises ProblemError and _NoResponseError."""
        try:
            async with self._open_session().request(
                method,
                URL(worker + path, encoded=True),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
            ) as response:
                body = await bounded_body(response, RESPONSE_SIZE_MAX)
                if body is None:
                    raise _NoResponseError(f"the response has more than {RESPONSE_SIZE_MAX >> 20} MiB")
        except aiohttp.ConnectionTimeoutError:
            raise _NoResponseError(f"no connection within {CONNECT_TIMEOUT_S:.0f} s", was_sent=False) from None
        except TimeoutError:
            raise _NoResponseError(f"no response within {timeout_s:.0f} s") from None
        except aiohttp.ClientConnectorError as error:
            raise _NoResponseError(connect_failure(error)[:MESSAGE_SIZE_MAX], was_sent=False) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise _NoResponseError(f"the response is not valid HTTP ({type(error).__name__})") from None
        if 200 <= response.status < 300:
            return body
        if response.status < 400 or response.status in FAILED_GATEWAYS:
            raise _NoResponseError(f"status {response.status}, expected a response of Kafka Connect")
        raise ProblemError(
            _STATUS.get(response.status, HTTPStatus.BAD_GATEWAY),
            f"{worker} responded with status {response.status}: {_message(body)}",
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers=HEADERS,
            )
        return self._session

    def _in_order(self) -> list[str]:
        return sorted(self._workers, key=self._has_failed)

    def _has_failed(self, worker: str) -> bool:
        failure = self._failures.get(worker)
        return failure is not None and self._monotonic_ms() - failure.failed_ms < RETRY_MS

    def _has_not_responded(self, worker: str, error: _NoResponseError) -> None:
        self._failures[worker] = _Failure(error.reason, self._monotonic_ms())


def _parsed(body: bytes, shaped: Callable[[Any], T]) -> T:
    """Raises _NoResponseError."""
    if sum(map(body.count, (b",", b"[", b"{"))) > ELEMENTS_MAX:
        raise _NoResponseError(f"the response has more than {ELEMENTS_MAX} elements")
    try:
        return shaped(json.loads(body))
    except (ValueError, RecursionError):
        raise _NoResponseError("the response is not what Kafka Connect sends") from None


def _message(body: bytes) -> str:
    """Return the message in the response of a worker that rejected a request."""
    try:
        found = json.loads(body[: 4 * MESSAGE_SIZE_MAX])
    except (ValueError, RecursionError):
        found = None
    message = found.get("message") if isinstance(found, dict) else None
    return message[:MESSAGE_SIZE_MAX] if isinstance(message, str) else "no message"


def _no_worker(reasons: Sequence[str]) -> ProblemError:
    return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, f"no worker of Kafka Connect responded: {'; '.join(reasons)}")
