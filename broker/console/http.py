"""The console over HTTP: its pages, its JSON, and the checks that every request passes.

Owns what is allowed to reach the console, and the headers of its responses. Must not know any resource.

The checks, in this order: the client's address (`console.clients`), the Host header (a name that was not expected may
be a page of another site that rebinds its name to this address), and where the request comes from (`Sec-Fetch-Site`,
`Origin`), so that no other page can read or change anything through a browser. A request that changes something also
needs a JSON body, which a form of another page cannot send.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import html
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import ETag, web

from base.other_sites import other_site
from base.pause import Pause
from broker.console.bodies import require_type
from broker.console.console import Console
from broker.console.openapi import document
from broker.console.pages import page_files
from broker.console.problem import ProblemError, bad_request, of_kafka_error
from broker.console.records.reads import LONG_READS_MAX, Line
from broker.console.routes import RESOURCES, Resource, parsed
from broker.metrics.http_connections import WRITE_TIMEOUT_S
from broker.network.outgoing import PeerUnavailable
from config import broker_properties as properties
from milena_broker import __version__
from protocol.errors import KafkaError, Malformed

logger = logging.getLogger("milena.console")

MAY_BE_MADE: Final = "the change, or a part of it, may have been made: look before you repeat it"
REQUEST_TIME_MAX_S: Final = 20.0
REQUESTS_MAX: Final = 32
"""Requests for JSON that are served at the same time; further ones wait for their turn."""
BODY_SIZE_ON_LOOP_MAX: Final = 32 << 10
"""Larger bodies are read in a thread."""

CONTENT_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PAGES: Final = ("index.html",)
OPTIONAL_PAGES: Final = b'data-optional=""'
"""The attribute of the page in which its scripts find the names of the pages that settings have switched on."""
CLUSTERS: Final = b'data-clusters=""'
"""The attribute with the consoles of other clusters."""

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": "Milena",
}
NOT_STORED: Final = {"Cache-Control": "no-store"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleHttp:
    """Serves one console."""

    def __init__(self, console: Console) -> None:
        config = console.services.config
        self._console = console
        self._clients = config[properties.CONSOLE_CLIENTS]
        self._hosts = frozenset(each.lower() for each in config[properties.CONSOLE_HOSTS])
        self._requests = asyncio.Semaphore(REQUESTS_MAX)
        self._responses = asyncio.Semaphore(REQUESTS_MAX)
        self._long_reads = 0
        self._resources = [each for each in RESOURCES if each.optional_page in ("", *console.optional_pages)]
        self._document = json.dumps(document(self._resources, __version__)).encode()

    def add_routes(self, application: web.Application) -> None:
        """Add the pages and resources to an application."""
        router = application.router
        optional = b'data-optional="%s"' % " ".join(self._console.optional_pages).encode()
        clusters = ",".join(self._console.services.config[properties.CONSOLE_CLUSTERS])
        others = b'data-clusters="%s"' % html.escape(clusters).encode()
        for name, file in page_files().items():
            content = file.replace(OPTIONAL_PAGES, optional).replace(CLUSTERS, others) if name in PAGES else file
            handler = self._guarded(_static(name, content), is_page=name in PAGES)
            router.add_get(f"/console/{name}", handler)
            if name in PAGES:
                router.add_get("/", handler)
                router.add_get("/console/", handler)
        for resource in self._resources:
            router.add_route(resource.method, f"/api/v1{resource.path}", self._guarded(self._handler(resource)))
        router.add_get("/api/v1/openapi.json", self._guarded(self._openapi))
        router.add_route("*", "/{rest:.*}", self._guarded(_unknown))

    async def _openapi(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._document, content_type="application/json")

    def _guarded(self, handler: Handler, *, is_page: bool = False) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                self._admit(request, is_page=is_page)
                response = await handler(request)
            except ProblemError as problem:
                response = _failure(problem.status, problem.message)
            except KafkaError as error:
                failed = of_kafka_error(error)
                response = _failure(failed.status, failed.message)
            except (PeerUnavailable, Malformed) as error:
                response = _failure(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            except (web.HTTPException, ConnectionError, asyncio.CancelledError):
                raise
            except Exception:
                logger.exception("%s %s failed unexpectedly", request.method, request.path)
                response = _failure(HTTPStatus.INTERNAL_SERVER_ERROR, "the console failed, see the log of the broker")
            if not response.prepared:
                for name, value in SECURITY_HEADERS.items():
                    response.headers.setdefault(name, value)
                response.headers.setdefault("Cache-Control", "no-store")
            return response

        return guarded

    def _admit(self, request: web.Request, *, is_page: bool) -> None:
        """Raises ProblemError for a request that must not reach the console."""
        if self._clients == "none":
            raise ProblemError(HTTPStatus.NOT_FOUND, "the console is switched off by console.clients=none")
        if self._clients == "loopback" and not _is_loopback(request.remote):
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                f"the console serves loopback addresses only, not {request.remote}; set console.clients=any to change "
                "that",
            )
        host = request.headers.get("Host", "")
        if not self._is_expected(host):
            raise ProblemError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"Host {host[:100]!r} is not expected: use an address or localhost, or add the name to console.hosts",
            )
        if (source := other_site(request.headers, is_link_followed=is_page)) is not None:
            raise ProblemError(HTTPStatus.FORBIDDEN, f"a request from {source} is not served")
        if not is_page and request.path.startswith("/api/") and not self._console.is_ready:
            state = self._console.measures.state().name
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, f"the broker is in the state {state}, expected RUNNING")

    def _is_expected(self, host: str) -> bool:
        name = _host_name(host).lower()
        if name == "localhost" or name in self._hosts:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    def _handler(self, resource: Resource) -> Handler:
        if resource.is_stream:
            return lambda request: self._stream(resource, request)
        return lambda request: self._respond(resource, request)

    async def _respond(self, resource: Resource, request: web.Request) -> web.StreamResponse:
        try:
            async with asyncio.timeout(REQUEST_TIME_MAX_S), self._requests:
                body = await self._body(resource, request)
        except TimeoutError:
            raise ProblemError(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"not ready within {REQUEST_TIME_MAX_S:.0f} s: {MAY_BE_MADE if resource.is_write else 'ask for less'}",
            ) from None
        except PeerUnavailable as error:
            hint = f": {MAY_BE_MADE}" if resource.is_write else ""
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}{hint}") from None
        response = web.Response(body=body, content_type="application/json", charset="utf-8")
        response.headers.update({**SECURITY_HEADERS, **NOT_STORED})
        try:
            # A response that is not read keeps its place, so that slow clients hold few of them in memory.
            async with asyncio.timeout(WRITE_TIMEOUT_S), self._responses:
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            _abort(request)
        return response

    async def _body(self, resource: Resource, request: web.Request) -> bytes:
        """Return the JSON of a resource."""
        arguments = parsed(resource, request.match_info, _single(request))
        if resource.is_write and not self._console.is_writing_enabled:
            raise ProblemError(HTTPStatus.FORBIDDEN, "the console is read-only: console.write.enable is false")
        if resource.body is not None:
            arguments["body"] = await self._given(request, resource.body)
        elif resource.is_write and request.headers.get("X-Requested-With") != "milena-console":
            raise bad_request("a request that changes something needs the header X-Requested-With: milena-console")
        result = await resource.serve(self._console, **arguments)
        return await _json_in_steps(result, self._console.pause)

    async def _given(self, request: web.Request, kind: type) -> dict[str, Any]:
        """Return the JSON object in a request, which is of a type. Raises ProblemError."""
        if request.content_type != "application/json":
            raise ProblemError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"content type {request.content_type[:60]!r}, expected application/json",
            )
        data = await request.read()
        if len(data) <= BODY_SIZE_ON_LOOP_MAX:
            return _body_of(data, kind)
        return await self._console.services.cpu_pool.run(partial(_body_of, data, kind))

    async def _stream(self, resource: Resource, request: web.Request) -> web.StreamResponse:
        arguments = parsed(resource, request.match_info, _single(request))
        if self._long_reads >= LONG_READS_MAX:
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS, f"{LONG_READS_MAX} searches and tails run already: end one of them"
            )
        self._long_reads += 1
        try:
            lines = await resource.serve(self._console, **arguments)
            response = web.StreamResponse(
                headers={**SECURITY_HEADERS, **NOT_STORED, "Content-Type": "application/x-ndjson; charset=utf-8"}
            )
            await response.prepare(request)
            async with contextlib.aclosing(lines):
                try:
                    async for line in lines:
                        await asyncio.wait_for(response.write(_encoded(line)), WRITE_TIMEOUT_S)
                except (KafkaError, Malformed, PeerUnavailable) as error:
                    await response.write(_encoded(Line(problem=str(error), done="failed")))
                except ProblemError as problem:
                    await response.write(_encoded(Line(problem=problem.message, done="failed")))
                except TimeoutError:
                    _abort(request)  # its client reads nothing
                except (ConnectionError, asyncio.CancelledError):
                    raise
                except Exception:
                    logger.exception("%s failed unexpectedly", request.path)
                    _abort(request)
                await response.write_eof()
        finally:
            self._long_reads -= 1
        return response


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _encoded(line: Line) -> bytes:
    return _json(line) + b"\n"


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


async def _json_in_steps(result: Mapping[str, object], pause: Pause) -> bytes:
    """Return the JSON of a resource. Its lists may be long, so they are encoded one element at a time."""
    members = []
    for name, value in result.items():
        if isinstance(value, list):
            elements = []
            for each in value:
                await pause()
                elements.append(_json(each))
            encoded = b"[%b]" % b",".join(elements)
        else:
            encoded = _json(value)
        members.append(b"%b:%b" % (_json(name), encoded))
    return b"{%b}" % b",".join(members)


async def _unknown(request: web.Request) -> web.StreamResponse:
    raise ProblemError(
        HTTPStatus.NOT_FOUND, f"no resource {request.method} {request.path[:200]}: see / and /api/v1/openapi.json"
    )


def _failure(status: HTTPStatus, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)


def _single(request: web.Request) -> dict[str, str]:
    """Return the parameters of a query, each of which may be named once. Raises ProblemError."""
    query: dict[str, str] = {}
    for name, value in request.query.items():
        if name in query:
            raise bad_request(f"the parameter {name[:40]!r} is named twice")
        query[name] = value
    return query


def _body_of(data: bytes, kind: type) -> dict[str, Any]:
    """Return the JSON object in a body, which is of a type. Raises ProblemError."""
    try:
        parsed_body = json.loads(data)
        json.dumps(parsed_body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise bad_request("the body has characters that are not Unicode") from None
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is no JSON: {error}") from error
    if not isinstance(parsed_body, dict):
        raise bad_request("the body is no JSON object")
    require_type(parsed_body, kind)
    return parsed_body


def _is_loopback(address: str | None) -> bool:
    try:
        parsed_address = ip_address((address or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed_address, "ipv4_mapped", None)
    return (mapped or parsed_address).is_loopback


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port and without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _static(name: str, content: bytes) -> Handler:
    content_type = CONTENT_TYPES[name[name.rindex(".") :]]
    tag = ETag(hashlib.sha256(content).hexdigest()[:16])
    compressed = gzip.compress(content, mtime=0)

    async def serve(request: web.Request) -> web.StreamResponse:
        if tag in (request.if_none_match or ()):
            response = web.Response(status=HTTPStatus.NOT_MODIFIED)
        else:
            accepts = "gzip" in request.headers.get("Accept-Encoding", "")
            response = web.Response(body=compressed if accepts else content, content_type=content_type, charset="utf-8")
            if accepts:
                response.headers["Content-Encoding"] = "gzip"
        response.etag = tag
        response.headers.update({"Cache-Control": "no-cache", "Vary": "Accept-Encoding"})
        return response

    return serve
