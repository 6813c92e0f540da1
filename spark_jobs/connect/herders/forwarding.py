"""Requests of workers to each other: what only the leader may do, and what only the owner of a task can do.

Requests that users cannot send, `POST /connectors/C/tasks` and `PUT /connectors/C/fence`, carry a signature of their
body by the session's key, if the group's protocol is 'sessioned' (KIP-507).

Owns the HTTP requests and the signature. Must not know why something is sent.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.stores.config_state import SessionKey

SIGNATURE: Final = "X-Connect-Authorization"
ALGORITHM: Final = "X-Connect-Request-Signature-Algorithm"
TIMEOUT_S: Final = 30.0
RESPONSE_MAX: Final = 1 << 24
ALGORITHMS: Mapping[str, Callable[..., Any]] = {
    "HmacSHA256": hashlib.sha256,
    "HmacSHA384": hashlib.sha384,
    "HmacSHA512": hashlib.sha512,
}


def signature(key: SessionKey, body: bytes) -> str:
    """Return the signature of a request's body. Raises ConnectError for an algorithm that is not supported."""
    if key.algorithm not in ALGORITHMS:
        raise ConnectError(f"the session key is of {key.algorithm}: expected one of {', '.join(ALGORITHMS)}")
    return base64.b64encode(hmac.new(key.key, body, ALGORITHMS[key.algorithm]).digest()).decode()


def is_signed(key: SessionKey, body: bytes, headers: Mapping[str, str]) -> bool:
    """Whether a request carries the right signature."""
    given = headers.get(SIGNATURE, "").encode(errors="replace")
    return headers.get(ALGORITHM) == key.algorithm and hmac.compare_digest(given, signature(key, body).encode())


def send_internal(url: str, method: str, path: str, content: Any, key: SessionKey | None) -> None:
    """Send what only workers send. Raises ConnectError if the worker refuses it or is not reached."""
    body = json.dumps(content).encode()
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers |= {SIGNATURE: signature(key, body), ALGORITHM: key.algorithm}
    status, text = send(url, method, path, body, headers)
    if status >= 300:
        raise ConnectError(f"{method} {url.rstrip('/')}{path}: {status} {text[:500].decode(errors='replace')}")


def send(url: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Return status and body of the response. Raises ConnectError if the worker is not reached."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise ConnectError(f"the address {url} of a worker is invalid: {error}") from error
    host = parts.hostname or ""
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read(RESPONSE_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise ConnectError(f"the worker at {url} is not reached: {error}") from error
    finally:
        connection.close()


def connector_path(connector: str, rest: str) -> str:
    return f"/connectors/{quote(connector, safe='')}/{rest}"
