"""Schemas of values by their ids, from a schema registry with Confluent's HTTP API.

Owns the requests to the registry, their bounds and the cache. Must not know records. The console asks the registry only
if `console.schema.registry.url` is set.
"""

from __future__ import annotations

import json
from typing import Any, Final

import aiohttp
from yarl import URL

from broker.console.response_bodies import bounded_body, connect_failure

SETTING: Final = "console.schema.registry.url"
SCHEMAS_MAX: Final = 1_000
RESPONSE_SIZE_MAX: Final = 1 << 20
TIMEOUT_S: Final = 3.0


class NoSchemaError(Exception):
    """The registry has not sent what was asked for; the message says why."""


class SchemaRegistry:
    """The registry at one address; None: there is none."""

    def __init__(self, url: str | None) -> None:
        self._url = None if url is None else url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._schemas: dict[int, dict[str, Any] | None] = {}
        """What the registry has said; None: it has no such schema."""

    @property
    def is_configured(self) -> bool:
        return self._url is not None

    async def schema(self, schema_id: int) -> dict[str, Any]:
        """Return the registry's object with `schema` and `schemaType`. Raises NoSchemaError."""
        if schema_id not in self._schemas:
            found = await self.get(f"/schemas/ids/{schema_id}")
            if len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.clear()
            self._schemas[schema_id] = found if isinstance(found, dict) else None
        known = self._schemas[schema_id]
        if known is None:
            raise NoSchemaError(f"the registry has no schema {schema_id}")
        return known

    async def get(self, path: str) -> Any:
        """Return the JSON at a path of the registry; None if there is none. Raises NoSchemaError."""
        if self._url is None:
            raise NoSchemaError(f"{SETTING} names no registry")
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        try:
            url = URL(self._url + path, encoded=True)
            async with self._session.get(url, allow_redirects=False) as response:
                body = await bounded_body(response, RESPONSE_SIZE_MAX)
                if response.status == 404:
                    return None
                if body is None or response.status != 200:
                    raise NoSchemaError(f"the registry responded with status {response.status} to {path}")
                return json.loads(body)
        except TimeoutError:
            raise NoSchemaError(f"the registry did not respond within {TIMEOUT_S:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise NoSchemaError(f"the registry did not respond: {connect_failure(error)}") from error
        except aiohttp.ClientError as error:
            raise NoSchemaError(f"the response of the registry is not valid HTTP ({type(error).__name__})") from error
        except (ValueError, RecursionError):
            return None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
