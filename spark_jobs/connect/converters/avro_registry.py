"""A client of a schema registry with Confluent's HTTP API.

A schema never changes its id, so both directions are remembered, within a bound. A registry that does not respond, or
responds with a failure of its own, raises RetriableError: the task calls again. All else is a DataError.

Owns requests, credentials and the caches. Must not know what is in a schema. Credentials are in no text.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from spark_jobs.connect.base.definitions import invalid
from spark_jobs.connect.base.errors import DataError, RetriableError
from spark_jobs.connect.converters.schema_cache import remember

URL: Final = "schema.registry.url"
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_RESPONSE_BYTES_MAX: Final = 16 << 20
_CACHE_SIZE: Final = 1000
_INCOMPATIBLE: Final = 409
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429


class RegisteredSchema(NamedTuple):
    """A schema's id and its text."""

    id: int
    text: str


class _ResponseError(DataError):
    """The registry refuses a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Registry:
    """Requests schemas of the first of several registries that responds."""

    def __init__(self, urls: Sequence[str], authorization: str | None, timeout_ms: int) -> None:
        """Raises ConfigError for URLs that are none. Without an `authorization`, a URL may have `user:password@`."""
        self._servers = [_server(url, authorization) for url in urls]
        self._timeout_s = timeout_ms / 1000
        self._texts: dict[int, str] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def text(self, schema_id: int) -> str:
        """Return the schema of an id."""
        if schema_id not in self._texts:
            found = self._request(f"/schemas/ids/{schema_id}")
            if found.get("schemaType", "AVRO") != "AVRO":
                raise DataError(f"the schema {schema_id} is of type {found['schemaType']}, expected AVRO")
            if found.get("references"):
                raise DataError(f"the schema {schema_id} refers to other schemas, which is not supported")
            remember(self._texts, schema_id, _get(found, "schema", str), _CACHE_SIZE)
        return self._texts[schema_id]

    def version(self, subject: str, schema_id: int) -> int | None:
        """Return the version that a schema has in a subject; None if it is not in it."""
        try:
            found = self._request(f"/schemas/ids/{schema_id}/versions")
        except _ResponseError:  # older registries do not have this path
            return None
        versions = (each for each in found if isinstance(each, dict) and each.get("subject") == subject)
        return next((_get(each, "version", int) for each in versions), None)

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject."""
        found = self._request(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return RegisteredSchema(_get(found, "id", int), _get(found, "schema", str))

    def id(self, subject: str, text: str, *, registers: bool) -> int:
        """Return the id of a schema in a subject; registers it there, or raises DataError if it is unknown."""
        key = (subject, text)
        if key not in self._ids:
            path = f"/subjects/{quote(subject, safe='')}"
            try:
                found = self._request(f"{path}/versions" if registers else path, {"schema": text})
            except _ResponseError as error:
                raise _explained(error, subject) from error
            remember(self._ids, key, _get(found, "id", int), _CACHE_SIZE)
        return self._ids[key]

    def _request(self, path: str, body: object = None) -> Any:
        failure: Exception | None = None
        for url, headers in self._servers:
            try:
                return self._send(Request(url + path, _encoded(body), headers))
            except RetriableError as error:
                failure = error
        assert failure is not None  # there is at least one server
        raise failure

    def _send(self, request: Request) -> Any:
        url = request.full_url
        try:
            with urlopen(request, timeout=self._timeout_s) as response:
                content = response.read(_RESPONSE_BYTES_MAX + 1)
        except HTTPError as error:
            with error:
                reason = error.read(1000).decode(errors="replace")
            if error.code >= 500 or error.code == _TOO_MANY:
                raise RetriableError(f"schema registry: {url} responds {error.code}: {reason}") from error
            raise _ResponseError(error.code, f"schema registry: {url} responds {error.code}: {reason}") from error
        except URLError as error:
            raise RetriableError(f"schema registry: {url} does not respond: {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise RetriableError(f"schema registry: {url} does not respond: {error!r}") from error
        if len(content) > _RESPONSE_BYTES_MAX:
            raise DataError(f"schema registry: {url} responds with more than {_RESPONSE_BYTES_MAX} bytes")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError(f"schema registry: {url} does not respond with JSON: {error}") from error


def _server(url: str, authorization: str | None) -> tuple[str, Mapping[str, str]]:
    """Return a URL without credentials, and the headers of its requests."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        address = parts.netloc.rpartition("@")[2]
        _ = parts.port  # raises ValueError
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        raise invalid(
            URL, url.rpartition("@")[2], "Expected URLs such as http://registry:8081, with commas between them"
        )
    if authorization is None and parts.username is not None:
        authorization = basic_authorization(f"{unquote(parts.username)}:{unquote(parts.password or '')}")
    headers = {"Content-Type": _CONTENT_TYPE, "Accept": f"{_CONTENT_TYPE}, application/json"}
    if authorization is not None:
        headers["Authorization"] = authorization
    return urlunsplit((parts.scheme, address, parts.path.rstrip("/"), "", "")), headers


def basic_authorization(user_info: str) -> str:
    """Return the header of `user:password`."""
    return f"Basic {b64encode(user_info.encode()).decode('ascii')}"


def _explained(error: _ResponseError, subject: str) -> DataError:
    if error.status == _INCOMPATIBLE:
        return DataError(f"the schema is incompatible with those of the subject {subject} (409): {error}")
    if error.status == _NOT_FOUND:
        return DataError(
            f"the subject {subject} lacks the schema, and auto.register.schemas=false: register it first: {error}"
        )
    return error


def _encoded(body: object) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _get(found: Any, key: str, kind: type) -> Any:
    value = found.get(key) if isinstance(found, dict) else None
    if type(value) is not kind:
        raise DataError(f"schema registry: the response has no {key}: {found!r:.200}")
    return value
