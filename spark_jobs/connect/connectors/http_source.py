"""Polls a URL, and sends the records of its JSON responses.

The source partition is `{"url": URL}`, with the URL as configured. What the source offset has depends on the URL:

| URL | source offset | a response is sent again if |
|---|---|---|
| without `{offset}` | `{"etag": E, "last_modified": L}`, of the last record of a response | the server reports no 304 |
| with `{offset}` | `{"offset": O}`, what `offset.pointer` finds in the record | the server returns older records |

A response of which the worker stored a part is requested again as a whole: delivery is at-least-once. Statuses 429 and
5xx and failed connections are retried; another status ends the task.

Owns when and how is asked. Must not know what records mean. Secrets may be in headers and in the query of the URL, so
no message has them.
"""

from __future__ import annotations

import base64
import email.utils
import http.client
import json
import logging
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlsplit

from spark_jobs.connect.base.api import SourceConnector, SourceTask
from spark_jobs.connect.base.definitions import (
    HIDDEN,
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    invalid,
    one_of,
)
from spark_jobs.connect.base.errors import ConfigError, ConnectError, DataError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.connectors.json_pointer import check_pointer, resolve
from spark_jobs.connect.connectors.sources import TOPIC, wait_until_due

_LOG = logging.getLogger(__name__)
_HEADERS = "http.headers."
_OFFSET = "{offset}"
_CHUNK_BYTES = 64 << 10
_WAIT_S = 0.5
_BACKOFF_S_MAX = 60.0
_RETRY_AFTER_S_MAX = 3600.0
_FIRST_LINE = 200  # characters of an error's body in a message
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a field name of RFC 9110


def _check_url(name: str, value: Any) -> None:
    try:
        parts = urlsplit(value)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        raise invalid(name, HIDDEN, "Expected a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise invalid(name, f"{parts.scheme}://{parts.hostname}", "Expected http://HOST[:PORT]/PATH or https://...")
    if parts.username is not None:
        raise invalid(name, HIDDEN, "Expected no user in the URL: set http.auth.user and http.auth.password")
    if re.search(r"[\x00-\x20\x7f]", value):
        raise invalid(name, HIDDEN, "Expected a URL without spaces and control characters: encode them as %20")


_SETTINGS: Final = Definition(
    [
        Setting(
            "http.url",
            Kind.STRING,
            REQUIRED,
            Importance.HIGH,
            "The URL to poll; {offset} in it becomes the offset of the last record.",
            _check_url,
        ),
        TOPIC,
        Setting("http.method", Kind.STRING, "GET", Importance.LOW, "GET or POST.", one_of("GET", "POST")),
        Setting("http.body", Kind.STRING, None, Importance.LOW, "The body of a POST, JSON; may have {offset} too."),
        Setting("http.auth.user", Kind.STRING, None, Importance.MEDIUM, "The user of Basic authentication."),
        Setting("http.auth.password", Kind.PASSWORD, None, Importance.MEDIUM, "The password of this user."),
        Setting(
            "http.timeout.ms",
            Kind.INT,
            10_000,
            Importance.LOW,
            "How long a connect or a read may take.",
            at_least(1),
        ),
        Setting("poll.interval.ms", Kind.LONG, 60_000, Importance.MEDIUM, "The time between requests.", at_least(1)),
        Setting(
            "response.pointer",
            Kind.STRING,
            "",
            Importance.MEDIUM,
            "A JSON pointer to the array of records; if it finds an object, that is the record.",
            check_pointer,
        ),
        Setting(
            "offset.pointer",
            Kind.STRING,
            None,
            Importance.MEDIUM,
            "A JSON pointer to the offset in a record, a string or a whole number; required with {offset}.",
            check_pointer,
        ),
        Setting("offset.initial", Kind.STRING, "", Importance.MEDIUM, "What {offset} is before the first record."),
        Setting(
            "response.max.bytes",
            Kind.INT,
            16 << 20,
            Importance.LOW,
            "The size of the largest response; the task fails at a larger one.",
            at_least(1),
        ),
        Setting("retries.max", Kind.INT, 10, Importance.LOW, "How often in a row a request is retried.", at_least(0)),
        Setting(
            "retry.backoff.ms",
            Kind.LONG,
            1000,
            Importance.LOW,
            "The time before the first retry; it doubles up to a minute. A Retry-After of the server wins.",
            at_least(0),
        ),
    ]
)


def _problems(config: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, ConfigError]:
    """Return what is wrong with settings that are valid for themselves, by their names."""
    found: dict[str, ConfigError] = {}
    has_offset = _OFFSET in settings["http.url"] or _OFFSET in (settings["http.body"] or "")
    if has_offset != (settings["offset.pointer"] is not None):
        reason = "Expected a pointer if http.url or http.body has {offset}, and none otherwise"
        found["offset.pointer"] = invalid("offset.pointer", settings["offset.pointer"], reason)
    if settings["http.body"] is not None and settings["http.method"] != "POST":
        found["http.body"] = invalid("http.body", HIDDEN, "Expected no body unless http.method is POST")
    if (settings["http.auth.user"] is None) != (settings["http.auth.password"] is None):
        found["http.auth.user"] = ConfigError("http.auth.user and http.auth.password are set together or not at all")
    for name, value in config.items():
        if name.startswith(_HEADERS):
            if not _TOKEN.fullmatch(name.removeprefix(_HEADERS)):
                found[name] = invalid(name, HIDDEN, f"Expected a header's name after {_HEADERS}")
            elif not value.isascii() or not value.isprintable():
                found[name] = invalid(name, HIDDEN, "Expected printable ASCII characters")
    return found


def _parse(config: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings. Raises ConfigError for the first problem."""
    settings = _SETTINGS.parse(config)
    for error in _problems(config, settings).values():
        raise error
    return settings


def _headers(config: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": "milena-connect"}
    if settings["http.body"] is not None:
        headers["Content-Type"] = "application/json"
    if settings["http.auth.user"] is not None:
        login = f"{settings['http.auth.user']}:{settings['http.auth.password']}"
        headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
    given = {name.removeprefix(_HEADERS): value for name, value in config.items() if name.startswith(_HEADERS)}
    return headers | given


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects on the server only: another one must not get the headers."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            raise ConnectError(f"{_shown(req.full_url)}: {code} redirects to {_shown(newurl)}: set http.url to it")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _shown(url: str) -> str:
    """Return a URL as messages have it, without the query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


@dataclass(frozen=True, slots=True)
class _Validators:
    """By which a server knows that its response would be the same."""

    etag: str | None = None
    last_modified: str | None = None

    def headers(self) -> dict[str, str]:
        found = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in found.items() if value is not None}


class HttpSourceTask(SourceTask):
    version = "1.0"

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def start(self, config: Mapping[str, str]) -> None:
        settings = _parse(config)
        self._settings = settings
        self._headers = _headers(config, settings)
        self._topic: str = settings["topic"]
        self._is_incremental = settings["offset.pointer"] is not None
        self._opener = urllib.request.build_opener(_SameServer)
        self._source_partition = {"url": settings["http.url"]}
        stored = self.context.offset_reader.offset(self._source_partition) or {}
        self._offset: str | int = stored.get("offset", settings["offset.initial"])
        self._validators = _Validators(stored.get("etag"), stored.get("last_modified"))
        self._due_s = time.monotonic()
        self._failures = 0

    def poll(self) -> Sequence[SourceRecord]:
        if not wait_until_due(self._due_s, self._stopped, _WAIT_S):
            return []
        url = self._expanded(self._settings["http.url"], as_url=True)
        try:
            response = self._request(url)
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(url, error)
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            return self._retry(f"{_shown(url)}: {reason or type(error).__name__}", None)
        self._plan_next_request()
        return [] if response is None else self._records(url, *response)

    def _expanded(self, template: str, *, as_url: bool) -> str:
        text = quote(str(self._offset), safe="") if as_url else json.dumps(str(self._offset))[1:-1]
        return template.replace(_OFFSET, text)

    def _request(self, url: str) -> tuple[bytes, _Validators] | None:
        """Return body and validators of a response; None if `stop` was called."""
        body = self._settings["http.body"]
        content = None if body is None else self._expanded(body, as_url=False).encode()
        headers = self._headers | self._validators.headers()
        request = urllib.request.Request(url, content, headers, method=self._settings["http.method"])
        with self._opener.open(request, timeout=self._settings["http.timeout.ms"] / 1000) as response:
            found = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                found += chunk
                if len(found) > self._settings["response.max.bytes"]:
                    raise ConnectError(
                        f"{_shown(url)}: the response is longer than the {self._settings['response.max.bytes']} bytes"
                        " of response.max.bytes"
                    )
                if self._stopped.is_set():
                    return None
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            return bytes(found), _Validators(response.headers.get("ETag"), response.headers.get("Last-Modified"))

    def _refused(self, url: str, error: urllib.error.HTTPError) -> Sequence[SourceRecord]:
        if error.code == HTTPStatus.NOT_MODIFIED:
            self._plan_next_request()
            return []
        first_line = error.read(_CHUNK_BYTES).decode(errors="replace").strip().partition("\n")[0][:_FIRST_LINE]
        reason = f"{_shown(url)}: {error.code} {error.reason}: {first_line}"
        if error.code == HTTPStatus.TOO_MANY_REQUESTS or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return self._retry(reason, _retry_after_s(error.headers.get("Retry-After")))
        raise ConnectError(reason)

    def _plan_next_request(self) -> None:
        """The server has responded without an error."""
        self._failures = 0
        self._due_s = time.monotonic() + self._settings["poll.interval.ms"] / 1000

    def _retry(self, reason: str, wait_s: float | None) -> Sequence[SourceRecord]:
        """Plan the next try. Raises ConnectError if there were enough."""
        if self._failures >= self._settings["retries.max"]:
            raise ConnectError(f"{reason} (after {self._failures} retries)")
        if wait_s is None:
            wait_s = min(self._settings["retry.backoff.ms"] / 1000 * 2**self._failures, _BACKOFF_S_MAX)
        self._failures += 1
        self._due_s = time.monotonic() + wait_s
        _LOG.warning("%s: retried in %.1f s", reason, wait_s)
        return []

    def _records(self, url: str, body: bytes, validators: _Validators) -> list[SourceRecord]:
        try:
            found = resolve(self._settings["response.pointer"], json.loads(body) if body.strip() else None)
        except KeyError as error:
            raise DataError(f"{_shown(url)}: response.pointer is {error.args[0]} in the response") from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{_shown(url)}: the response is not JSON: {error}") from None
        items = found if isinstance(found, list) else [] if found is None else [found]
        if self._is_incremental:
            return [self._incremental(url, item) for item in items]
        self._validators = validators
        last_offset = {"etag": validators.etag, "last_modified": validators.last_modified}
        offsets: list[dict[str, Any]] = [{}] * (len(items) - 1) + [last_offset]
        return [
            SourceRecord(self._source_partition, offset, self._topic, item)
            for item, offset in zip(items, offsets, strict=False)
        ]

    def _incremental(self, url: str, item: Any) -> SourceRecord:
        pointer = self._settings["offset.pointer"]
        try:
            offset = resolve(pointer, item)
        except KeyError as error:
            raise DataError(f"{_shown(url)}: offset.pointer is {error.args[0]} in a record") from None
        if type(offset) not in (int, str):
            raise DataError(f"{_shown(url)}: {pointer} is {offset!r:.100}: expected a string or a whole number")
        self._offset = offset
        return SourceRecord(self._source_partition, {"offset": offset}, self._topic, item)

    def stop(self) -> None:
        self._stopped.set()


def _retry_after_s(value: str | None) -> float | None:
    """Return the seconds that a server asks to wait, by number or date; None if it does not."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value), _RETRY_AFTER_S_MAX)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return min(max(moment.timestamp() - time.time(), 0.0), _RETRY_AFTER_S_MAX)


class HttpSourceConnector(SourceConnector):
    """Polls a URL for JSON records."""

    version = "1.0"
    definition: ClassVar[Definition] = _SETTINGS
    task = HttpSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        _parse(config)
        super().start(config)

    def validate(self, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        return {name: [str(error)] for name, error in _problems(config, _SETTINGS.parse(config)).items()}
