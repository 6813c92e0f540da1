"""Schemas of values by their ids, from a schema registry with Confluent's HTTP API.

Owns the requests to the registry, their bounds and the cache. Must not know records. The console asks the registry only
if `console.schema.registry.url` is set.
"""

from __future__ import annotations

import json
from typing import Any, Final

import aiohttp

from broker.console.response_bodies import bounded_body

SCHEMAS_MAX: Final = 1_000
RESPONSE_SIZE_MAX: Final = 1 << 20
TIMEOUT_S: Final = 3.0


class SchemaRegistry:
    """The registry at one address; None: there is none."""

    def __init__(self, url: str | None) -> None:
        self._url = None if url is None else url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._schemas: dict[int, dict[str, Any] | None] = {}

    async def schema(self, schema_id: int) -> dict[str, Any] | None:
        """Return the registry's object with `schema` and `schemaType`; None if it has none, or does not respond."""
        if self._url is None:
            return None
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        try:
            async with self._session.get(f"{self._url}/schemas/ids/{schema_id}", allow_redirects=False) as response:
                body = await bounded_body(response, RESPONSE_SIZE_MAX)
                if body is None or response.status not in (200, 404):
                    return None
                found = json.loads(body) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            found = None
        if len(self._schemas) >= SCHEMAS_MAX:
            self._schemas.clear()
        self._schemas[schema_id] = found
        return found

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
