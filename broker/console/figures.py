"""Rates and latencies of all brokers: those of this one, and those that other brokers' consoles report.

Owns the figures of a broker, and the requests for those of others. Kafka's protocol has no request for them, so a
broker asks the HTTP ports that `console.brokers` names. What comes back is another host's: only figures of the right
types are used. Must not know HTTP of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final, TypedDict

import aiohttp

from broker.console.bodies import require_type
from broker.console.console import Console
from broker.console.problem import ProblemError
from broker.console.rates import INTERVAL_MS
from broker.console.response_bodies import bounded_body, connect_failure
from broker.metrics.histogram import distribution

PATH: Final = "/api/v1/figures"
TIMEOUT_S: Final = 3.0
RESPONSE_SIZE_MAX: Final = 64 << 10
REASON_MAX: Final = 200
VALID_MS: Final = 4_000


class Figures(TypedDict):
    """Rates of one broker per second over the last 10 s, and how fast it responds; null before its first requests."""

    broker: int
    version: str
    messages_in: float
    bytes_in: float
    bytes_out: float
    requests: float
    produce_p99_ms: float | None
    fetch_p99_ms: float | None
    loop_idle_percent: float
    loop_lag_p99_ms: float
    connections: int


class Silent(TypedDict):
    """An address of `console.brokers` that did not report figures, and why."""

    address: str
    reason: str


class AllFigures(TypedDict):
    """The figures of this broker and of those that `console.brokers` names, by broker id."""

    brokers: list[Figures]
    silent: list[Silent]


async def figures(console: Console) -> Figures:
    """Return the figures of this broker."""
    measures = console.measures
    return Figures(
        broker=console.services.broker_id,
        version=console.version,
        messages_in=rate(console, "messages_in"),
        bytes_in=rate(console, "bytes_in"),
        bytes_out=rate(console, "bytes_out"),
        requests=rate(console, "requests"),
        produce_p99_ms=_p99_ms(console, "Produce"),
        fetch_p99_ms=_p99_ms(console, "FetchConsumer"),
        loop_idle_percent=round(measures.loop_idle_percent(), 1),
        loop_lag_p99_ms=round(measures.loop_lag().quantiles["0.99"] * 1000, 2),
        connections=console.connection_count,
    )


async def all_figures(console: Console) -> AllFigures:
    """Return the figures of all brokers that are known."""
    return await console.remembered("figures", VALID_MS, lambda: _collected(console))


async def _collected(console: Console) -> AllFigures:
    own = await figures(console)
    found, silent = await reported(console.broker_urls)
    by_broker = {each["broker"]: each for each in (*found, own)}
    return AllFigures(brokers=[by_broker[each] for each in sorted(by_broker)], silent=silent)


async def reported(urls: Sequence[str]) -> tuple[list[Figures], list[Silent]]:
    """Return what the consoles at some addresses report, and which do not."""
    if not urls:
        return [], []
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
    ) as session:
        answers = await asyncio.gather(*(_asked(session, url) for url in urls))
    found = [each for each in answers if not isinstance(each, str)]
    silent = [
        Silent(address=url, reason=each) for url, each in zip(urls, answers, strict=True) if isinstance(each, str)
    ]
    return found, silent


async def _asked(session: aiohttp.ClientSession, url: str) -> Figures | str:
    """Return the figures that one console reports, or why there are none."""
    try:
        async with session.get(url.rstrip("/") + PATH, allow_redirects=False) as response:
            body = await bounded_body(response, RESPONSE_SIZE_MAX)
            if response.status != 200 or body is None:
                return f"it responded with status {response.status}: {_message(body)}"[:REASON_MAX]
            found: Figures = json.loads(body)
        require_type(found, Figures, "its response")
    except TimeoutError:
        return f"no response within {TIMEOUT_S:g} s"
    except aiohttp.ClientConnectorError as error:
        return connect_failure(error)[:REASON_MAX]
    except aiohttp.ClientError as error:
        return f"its response is not valid HTTP ({type(error).__name__})"
    except ProblemError as problem:
        return problem.message[:REASON_MAX]
    except (ValueError, RecursionError):
        return "its response is no JSON"
    return found


def _message(body: bytes | None) -> str:
    try:
        found = json.loads(body or b"")
    except (ValueError, RecursionError):
        return "expected the console of a broker"
    error = found.get("error") if isinstance(found, dict) else None
    return error if isinstance(error, str) else "expected the console of a broker"


def rate(console: Console, name: str) -> float:
    """Return a rate of this broker per second, over the last 10 s."""
    series = console.rates.figure(name)
    last = None if series is None else series.last(console.rates.index)
    return 0.0 if last is None else last / (INTERVAL_MS / 1000)


def _p99_ms(console: Console, name: str) -> float | None:
    request = console.measures.requests.get(name)
    if request is None or not request.count:
        return None
    times = distribution(0, 0.0, [parts.total_s for parts in request.sample.values()])
    return round(1000 * times.quantiles["0.99"], 3)
