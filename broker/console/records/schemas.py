"""Schemas of values by their ids, from a schema registry with Confluent's HTTP API.

Owns the requests to the registry, their bounds, the cache, and whether the registry failed lately. Must not know
records. The console asks the registry only if `console.schema.registry.url` is set.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import aiohttp
from yarl import URL

from broker.console.response_bodies import bounded_body, connect_failure

SETTING: Final = "console.schema.registry.url"
SCHEMAS_MAX: Final = 1_000
RESPONSE_SIZE_MAX: Final = 1 << 20
TIMEOUT_S: Final = 3.0
RETRY_MS: Final = 30_000
"""How long a registry that failed is asked for no schema, and one without a schema is not asked for it again."""


class NoSchemaError(Exception):
    """The registry has not sent what was asked for; the message says why."""


class _FailureError(NoSchemaError):
    """The registry did not respond, or not as a registry does: a request for another schema would fail as well."""


class _Failure(NamedTuple):
    """Why and when the registry failed."""

    reason: str
    failed_ms: int


class _Known(NamedTuple):
    """What the registry has sent for an id, and when. None: it has no such schema."""

    schema: dict[str, Any] | None
    received_ms: int


class SchemaRegistry:
    """The registry at one address; None: there is none."""

    def __init__(self, url: str | None, monotonic_ms: Callable[[], int]) -> None:
        self._url = None if url is None else url.rstrip("/")
        self._monotonic_ms = monotonic_ms
        self._session: aiohttp.ClientSession | None = None
        self._schemas: dict[int, _Known] = {}
        self._failure: _Failure | None = None

    @property
    def is_configured(self) -> bool:
        return self._url is not None

    async def schema(self, schema_id: int) -> dict[str, Any]:
        """Return the registry's object with `schema` and `schemaType`.

        Raises:
            NoSchemaError: there is no such schema, or the registry failed, now or at most `RETRY_MS` ago.
        """
        known = self._schemas.get(schema_id)
        if known is None or (known.schema is None and self._is_over(known.received_ms)):
            if self._failure is not None and not self._is_over(self._failure.failed_ms):
                raise NoSchemaError(self._failure.reason)
            found = await self.get(f"/schemas/ids/{schema_id}")
            if len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.clear()
            known = _Known(found if isinstance(found, dict) else None, self._monotonic_ms())
            self._schemas[schema_id] = known
        if known.schema is None:
            raise NoSchemaError(f"the registry has no schema {schema_id}")
        return known.schema

    async def get(self, path: str) -> Any:
        """Return the JSON at a path of the registry; None if there is none. Raises NoSchemaError."""
        if self._url is None:
            raise NoSchemaError(f"{SETTING} names no registry")
        try:
            found = await self._received(self._url + path, path)
        except _FailureError as error:
            self._failure = _Failure(str(error), self._monotonic_ms())
            raise
        self._failure = None
        return found

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _received(self, address: str, path: str) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        try:
            async with self._session.get(URL(address, encoded=True), allow_redirects=False) as response:
                body = await bounded_body(response, RESPONSE_SIZE_MAX)
                if response.status == 404:
                    return None
                if body is None or response.status != 200:
                    raise NoSchemaError(f"the registry responded with status {response.status} to {path}")
                return json.loads(body)
        except TimeoutError:
            raise _FailureError(f"the registry did not respond within {TIMEOUT_S:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise _FailureError(f"the registry did not respond: {connect_failure(error)}") from error
        except aiohttp.ClientError as error:
            raise _FailureError(f"the response of the registry is not valid HTTP ({type(error).__name__})") from error
        except (ValueError, RecursionError):
            raise _FailureError(f"the response of the registry to {path} is no JSON") from None

    def _is_over(self, since_ms: int) -> bool:
        return self._monotonic_ms() - since_ms >= RETRY_MS
