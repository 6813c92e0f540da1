"""From a frame to a response: header, decoding, handler, encoding, and the one place where exceptions become responses.

Owns: the routes, one for each API and version, made from the table in `broker.requests.routes`. ApiVersions reads the
same table, so that exactly the served APIs are advertised. Must not know: sockets, or what any request means.

Three kinds of failure (protocol/errors): `Malformed` closes the connection. `KafkaError` becomes the error code of the
response. Any other exception is a bug of ours: it is logged and counted, the response carries UNKNOWN_SERVER_ERROR, and
the broker continues to serve.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import CoroutineType, MappingProxyType, ModuleType
from typing import Any, cast

from base.dataclass import dataclass
from broker.handlers.declaration import Declaration
from broker.handlers.guard import guarded
from broker.handlers.metric_names import BESIDE_API
from broker.handlers.partial_service import Handle
from broker.handlers.request_context import CloseConnection, RequestContext
from broker.loop.driver import GoingOn, Running, going_on, start
from broker.loop.promise import Promise
from broker.network.channel import Authentication, Channel
from broker.network.connection import Buffers, Outcome, Response
from broker.requests.budget import (
    ELEMENTS_AT_ONCE_MAX,
    ELEMENTS_ON_LOOP_MAX,
    LARGE_REQUESTS_MAX,
    REQUESTS_IN_TURN_MAX,
    RESPONSE_SIZE_MAX,
    SIZE_IN_STEPS_MAX,
    elements_max,
)
from broker.requests.error_counts import CODE_FIELDS, NONE, error_counts
from broker.requests.request_log import described, described_response
from broker.requests.request_metrics import RequestMetrics, ServedRequest
from broker.requests.routes import TABLE
from broker.requests.services import Services
from broker.requests.throttling import limited, record, with_throttle
from controller.store.state_store import StoreUnavailable
from protocol.api import APIS, Api
from protocol.api_key import ApiKey
from protocol.codec import Decoder, Encoder, decoder, encode, encoder, scanner
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.frame import LENGTH, kept
from protocol.headers import RequestHeader, UnsupportedApi, response_header, scan_request_header
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.reader import ELEMENTS_UNLIMITED, TooManyElements
from protocol.row_writer import RowResponse
from protocol.schema import Struct

logger = logging.getLogger("kafka.server.KafkaApis")

PENDING = Authentication.PENDING

RESPONSE_STARTS: Mapping[int, struct.Struct] = MappingProxyType({4: struct.Struct(">ii"), 5: struct.Struct(">iix")})
"""Size, correlation id, and in flexible versions an empty section of tagged fields; by the size of the header."""

# In characters; a string travels with at most 32767 bytes.
ERROR_MESSAGE_MAX = 1000


@dataclass(frozen=True, slots=True)
class Route:
    """The functions and constants that serve one version of one API."""

    api: Api
    declaration: Declaration
    handle: Callable[[Services, Any, RequestContext], Any]
    decode: Decoder[Any]
    encode: Encoder
    header_size: int
    """The size of the header of a response."""
    pack_start: Callable[[int, int], bytes]
    """Returns what precedes the message in a response: its size and its header with the correlation id."""
    metrics: RequestMetrics
    metrics_of: Callable[[Any], RequestMetrics] | None
    """Returns the metrics of a request whose name depends on its content; None if `metrics` counts every request."""
    own_error_count: int
    """How many error codes a `RowResponse` has in addition to those of its rows."""


class RequestDispatcher:
    """Serves frames with the handlers of `TABLE`."""

    def __init__(self, services: Services, table: Mapping[int, ModuleType] = TABLE) -> None:
        self._services = services
        self._monotonic_s = services.clock.monotonic_s
        self._table = table
        self._routes: dict[tuple[int, int], Route] = {}
        self._large_requests = asyncio.Semaphore(LARGE_REQUESTS_MAX)
        self._long_requests = asyncio.Semaphore(1)
        self._requests_in_turn = asyncio.Semaphore(REQUESTS_IN_TURN_MAX)
        self.unexpected_error_count = 0
        self.waiting_count = 0
        """Requests that wait to be decoded: they are large, or arrived after the slice of their turn was over."""
        self._served = {key: api for key, api in sorted(services.served_apis.items()) if key in table}
        names = [api.name for api in self._served.values()]
        for key, beside in BESIDE_API.items():
            names += beside if key in self._served else ()
        self.metrics = {name: RequestMetrics(services.random.random) for name in names}
        """By request name: the names of the served APIs, and those beside them."""
        services.enforced_quotas.activity.subscribe(self._quotas_changed)
        self._quotas_changed()

    def _quotas_changed(self) -> None:
        """Put quotas before and behind the handlers if there are any, so that they cost nothing otherwise."""
        self._routes.clear()
        for name, replacement in (("_framed", self._framed_by_quota), ("_completed", self._completed_by_quota)):
            vars(self).pop(name, None)
            if self._services.enforced_quotas.is_active:
                vars(self)[name] = replacement

    def serve_with(self, table: Mapping[int, ModuleType]) -> None:
        """Serve requests from now on with the handlers of `table`, which has the same APIs as the one before."""
        self._table = table
        self._routes.clear()

    def _framed_by_quota(self, route: Route, context: ServedRequest, response: object, elements_left: int) -> Buffers:
        """Do the same as `_framed`, after the request was recorded."""
        self._record(context)
        stated = with_throttle(context, response)
        return RequestDispatcher._framed(self, route, context, stated, elements_left)

    def _completed_by_quota(self, context: ServedRequest, buffers: Buffers | None) -> Buffers | Outcome | None:
        """Do the same as `_completed`; a request without a response was not recorded before."""
        if buffers is None:
            self._record(context)
        return RequestDispatcher._completed(self, context, buffers)

    def _record(self, context: ServedRequest) -> None:
        if context.is_recorded:
            return
        context.is_recorded = True
        now_s = self._monotonic_s()
        context.end_wait(now_s)  # its client is not charged for the time that others took
        record(self._services.enforced_quotas, self._table[context.api_key].API, context, now_s)

    def dispatch(self, frame: memoryview, channel: Channel) -> Response:
        """Serve one frame; see `broker.network.connection.Dispatcher`."""
        received_s = self._monotonic_s()
        try:
            api_key, api_version, correlation_id, client_id, position = scan_request_header(frame)
        except UnsupportedApi as unsupported:
            return unsupported_version(unsupported, APIS[ApiKey.API_VERSIONS].versions)
        route = self._routes.get((api_key, api_version)) or self._new_route(
            RequestHeader(api_key, api_version, correlation_id, client_id)
        )
        size = len(frame)
        if size > SIZE_IN_STEPS_MAX or channel.authentication is PENDING:
            _check_admission(route, RequestHeader(api_key, api_version, correlation_id, client_id), size, channel)
        context = ServedRequest(
            api_key, api_version, correlation_id, client_id, channel, route.metrics, size, received_s
        )
        is_long = (
            size > SIZE_IN_STEPS_MAX and not route.declaration.has_records
        )  # then its first list is too much already
        try:
            request = route.decode(frame, position, 0 if is_long else ELEMENTS_AT_ONCE_MAX)
        except TooManyElements:
            has_time = not is_long and self._services.sliced_work.has_time()
            request = self._decoded_if_few(route, frame, position, context) if has_time else None
            if request is None:
                context.is_frame_kept = True
                serve = self._serve_long if is_long else self._serve_large if has_time else self._serve_in_turn
                serving = serve(route, kept(frame), position, context)
                # A producer that expects no response may close its connection as soon as it has sent its last request.
                return going_on(serving) if route.declaration.has_records else start(serving)
        except Malformed as error:
            raise Malformed(f"{_named(route.api, context)}: {error}") from error
        if context.extras is not None:
            context.extras.details = described(context, frame, position)
        try:
            if route.metrics_of is not None:
                context.metrics = route.metrics_of(request)
            response = route.handle(self._services, request, context)
            kind = type(response)
            if kind is CoroutineType:
                response = self._services.sliced_work.start(response)
                kind = type(response)
        except Malformed:
            raise
        except Exception as error:
            response = self._failure(route, request, context, error)
            kind = type(response)
        if kind is RowResponse or kind is route.api.response:
            try:
                buffers = self._framed(route, context, response, ELEMENTS_ON_LOOP_MAX)
            except TooManyElements:
                return start(self._framed_in_thread(route, context, response))
            return self._completed(context, buffers)
        if response is None:
            return self._completed(context, None)
        return self._promised(route, request, context, response)

    def _begin_wait(self, route: Route, context: ServedRequest, response: Promise[Any]) -> None:
        if route.declaration.waits_for and response.is_waiting:
            context.begin_wait(route.declaration.waits_for, self._monotonic_s())

    def _completed(self, context: ServedRequest, buffers: Buffers | None) -> Buffers | Outcome | None:
        """Record the end of a request whose response is encoded, or that expects none, and return its outcome."""
        now_s = context.completed_s = self._monotonic_s()
        extras = context.extras
        if extras is not None:
            extras.end_wait(now_s)
            if extras.is_logged and buffers is not None:
                extras.response_details = described_response(context, buffers)
        channel = context.channel
        if channel.is_closed:
            context.sent(now_s, None)
        else:
            channel.completed.append(context)
        return buffers if extras is None or not extras.mute_ms else Outcome(buffers, extras.mute_ms)

    async def _serve_in_turn(
        self, route: Route, frame: memoryview, position: int, context: ServedRequest
    ) -> Buffers | Outcome | None:
        """Serve a request that arrived after this turn's slice for new work was over."""
        try:
            return await self._serve_later(
                route, frame, position, context, self._requests_in_turn, self._decoded_in_turn
            )
        except TooManyElements:
            return await self._serve_large(route, frame, position, context)

    async def _serve_large(
        self, route: Route, frame: memoryview, position: int, context: ServedRequest
    ) -> Buffers | Outcome | None:
        """Serve a request that has too many elements to be decoded on the event loop."""
        return await self._serve_later(route, frame, position, context, self._large_requests, self._decoded_in_thread)

    async def _serve_long(
        self, route: Route, frame: memoryview, position: int, context: ServedRequest
    ) -> Buffers | Outcome | None:
        """Serve a request of more than `SIZE_IN_STEPS_MAX` bytes, and no other large one at the same time."""
        async with AsyncExitStack() as stack:
            # The last place is acquired below. Only one long request at a time acquires several places.
            await stack.enter_async_context(self._admitted(self._long_requests))
            for _ in range(LARGE_REQUESTS_MAX - 1):
                await stack.enter_async_context(self._admitted(self._large_requests))
            return await self._serve_large(route, frame, position, context)

    async def _serve_later(
        self,
        route: Route,
        frame: memoryview,
        position: int,
        context: ServedRequest,
        served: asyncio.Semaphore,
        decode: Callable[[Route, memoryview, int, ServedRequest], Awaitable[object]],
    ) -> Buffers | Outcome | None:
        """Serve a request of many elements: every step that depends on their number runs in threads or in slices.

        `served` bounds how many such requests are decoded and served at a time.
        """
        services = self._services
        request: object = None
        try:
            async with self._admitted(served):
                request = await decode(route, frame, position, context)
                if route.metrics_of is not None:
                    context.metrics = route.metrics_of(request)
                response = route.handle(services, request, context)
                if type(response) is CoroutineType:
                    response = services.sliced_work.start(response)
                if isinstance(response, Running | GoingOn):
                    await response.computed()
            if isinstance(response, Promise):
                self._begin_wait(route, context, response)
                response = await response
        except Malformed:
            raise
        except Exception as error:
            failure = error
            response = await services.cpu_pool.run(lambda: self._failure(route, request, context, failure))
        if response is None:
            return self._completed(context, None)
        return await self._framed_in_thread(route, context, response)

    @asynccontextmanager
    async def _admitted(self, served: asyncio.Semaphore) -> AsyncIterator[None]:
        self.waiting_count += 1
        try:
            await served.acquire()
        finally:
            self.waiting_count -= 1
        try:
            yield
        finally:
            served.release()

    def _decoded_if_few(self, route: Route, frame: memoryview, position: int, context: RequestContext) -> object | None:
        """Return the request, or None if it has too many elements to be decoded on the event loop."""
        try:
            return self._decoded_on_loop(route, frame, position, context)
        except TooManyElements:
            return None

    async def _decoded_in_turn(self, route: Route, frame: memoryview, position: int, context: ServedRequest) -> object:
        """Wait for a turn in the queue of `SlicedWork` and return the request. Raises TooManyElements."""
        await self._services.sliced_work.turn()
        context.with_extras().queue_s = self._monotonic_s() - context.received_s
        return self._decoded_on_loop(route, frame, position, context)

    def _decoded_on_loop(self, route: Route, frame: memoryview, position: int, context: RequestContext) -> object:
        """Return the request. Raises TooManyElements."""
        try:
            return cast(object, route.decode(frame, position, ELEMENTS_ON_LOOP_MAX))
        except TooManyElements:
            raise
        except Malformed as error:
            raise Malformed(f"{_named(route.api, context)}: {error}") from error

    async def _decoded_in_thread(
        self, route: Route, frame: memoryview, position: int, context: ServedRequest
    ) -> object:
        context.with_extras().queue_s = self._monotonic_s() - context.received_s
        limit = elements_max(route.declaration.elements, len(frame))
        try:
            return await self._services.cpu_pool.run(lambda: route.decode(frame, position, limit))
        except Malformed as error:
            raise Malformed(f"{_named(route.api, context)}: {error}") from error

    def _promised(
        self, route: Route, request: object, context: ServedRequest, response: Promise[object]
    ) -> Promise[Buffers | Outcome | None]:
        """Return a promise of the framed response, which is completed synchronously with `response`."""
        self._begin_wait(route, context, response)
        framed: Promise[Buffers | Outcome | None] = Promise()

        def frame_it(response: Promise[object]) -> None:
            if response.cancelled():
                framed.set_cancelled()
                return
            try:
                error = response.exception()
                if isinstance(error, Malformed):
                    raise error
                outcome = response.result() if error is None else self._failure(route, request, context, error)
                buffers = None if outcome is None else self._framed(route, context, outcome, ELEMENTS_ON_LOOP_MAX)
                framed.set_result(self._completed(context, buffers))
            except TooManyElements:
                framed.follow(start(self._framed_in_thread(route, context, outcome)))
            except Exception as failure:
                framed.set_exception(failure)

        framed.on_cancel(response.cancel)
        response.add_done_callback(frame_it)
        return framed

    async def _framed_in_thread(
        self, route: Route, context: ServedRequest, response: object
    ) -> Buffers | Outcome | None:
        """Run `_framed` in a thread, for a response of many elements."""
        context.end_wait(self._monotonic_s())
        if self._services.enforced_quotas.is_active:
            self._record(context)  # not in the thread: quotas belong to the event loop
        unsent, size = self._services.unsent_responses, 0 if context.extras is None else context.extras.records_size
        unsent.reserve(size)
        try:
            buffers = await self._services.cpu_pool.run(
                lambda: self._framed(route, context, response, ELEMENTS_UNLIMITED)
            )
        finally:
            unsent.release(size)
        return self._completed(context, buffers)

    def _framed(self, route: Route, context: ServedRequest, response: object, elements_left: int) -> Buffers:
        """Return a response as framed buffers. Raises TooManyElements and CloseConnection."""
        try:
            if type(response) is RowResponse:
                row_count, write, codes = response
                if row_count > elements_left:
                    raise TooManyElements(f"{row_count} rows")
                buffers = write()
                context.success_count = row_count + route.own_error_count
                if codes:
                    context.success_count -= sum(codes.values())
                    context.with_extras().other_codes = codes
            else:
                buffers = _encoded(route.encode, response, elements_left)
                counts = error_counts(response, context.api_version)
                context.success_count = counts.pop(NONE, 0)
                if counts:
                    context.with_extras().other_codes = counts
        except TooManyElements:
            raise
        except Exception as error:
            # A response that its version cannot encode is a bug of ours. Closing the connection is the only way left to
            # signal it to this client.
            self._report(route, context, error)
            raise CloseConnection(
                f"no response could be encoded for {route.api.name} v{context.api_version}"
            ) from error
        first = buffers[0]
        size = route.header_size + (len(first) if len(buffers) == 1 else sum(map(len, buffers)))
        buffers[0] = route.pack_start(size, context.correlation_id) + first
        if size > RESPONSE_SIZE_MAX:
            raise CloseConnection(
                f"{_named(route.api, context)}: a response of {size} bytes, expected at most {RESPONSE_SIZE_MAX}"
            )
        return buffers

    def _new_route(self, header: RequestHeader) -> Route:
        api = self._served.get(header.api_key)
        if api is None or header.api_version not in api.versions:
            raise UnsupportedApi(header, APIS[header.api_key])
        return self._route(api, header.api_version)

    def _route(self, api: Api, version: int) -> Route:
        module, authorizer, quotas = self._table[api.key], self._services.authorizer, self._services.enforced_quotas
        handle: Handle = module.handle
        if quotas.is_active:
            handle = limited(module, api, handle, quotas)
        if authorizer.is_active:
            handle = guarded(module, api, handle, authorizer)
        if version in api.deprecated:
            handle = _counted(handle, self.metrics[api.name])
        header_size = len(response_header(api.key, version, 0))
        route = Route(
            api,
            module.API,
            handle,
            request_decoder(module, api, version),
            encoder(api.response, version),
            header_size,
            RESPONSE_STARTS[header_size].pack,
            self.metrics[api.name],
            self._metrics_of(module),
            sum(field.name in CODE_FIELDS and field.is_in(version) for field in api.response.__fields__),
        )
        self._routes[api.key, version] = route
        return route

    def _metrics_of(self, module: ModuleType) -> Callable[[Any], RequestMetrics] | None:
        """Return a function from a request to its metrics if the handler module has a `metric_name`, else None."""
        metric_name = getattr(module, "metric_name", None)
        return None if metric_name is None else lambda request: self.metrics[metric_name(request)]

    def _failure(self, route: Route, request: object, context: RequestContext, error: Exception) -> object:
        """Return the response to a request that failed as a whole."""
        if isinstance(error, KafkaError):
            code = error.code
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(error, StoreUnavailable):
                logger.warning(
                    "%s v%d from client %r failed: the metadata store is not available: %s",
                    route.api.name,
                    context.api_version,
                    context.client_id,
                    error,
                )
            else:
                self._report(route, context, error)
        return failure_response(self._table[route.api.key], route.api, request, context, code)

    def _report(self, route: Route, context: RequestContext, error: Exception) -> None:
        """Count a bug of ours, and log it with the request that met it."""
        self.unexpected_error_count += 1
        logger.error(
            "%s v%d from client %r (correlation id %d) failed unexpectedly",
            route.api.name,
            context.api_version,
            context.client_id,
            context.correlation_id,
            exc_info=error,
        )


def _check_admission(route: Route, header: RequestHeader, size: int, channel: Channel) -> None:
    """Reject a request that is too large, or comes before the client has authenticated itself. Raises Malformed."""
    declared = route.declaration
    if size > SIZE_IN_STEPS_MAX and not declared.has_records and not declared.may_be_long:
        raise Malformed(f"{_named(route.api, header)}: {size} bytes, expected at most {SIZE_IN_STEPS_MAX}")
    if channel.authentication is PENDING and not declared.is_served_before_login:
        raise CloseConnection(f"{_named(route.api, header)}: the client has not authenticated itself")


def _counted(handle: Handle, metrics: RequestMetrics) -> Handle:
    """Return the handler of a deprecated version, which counts its requests."""

    def count_and_handle(services: Services, request: Any, context: RequestContext) -> Any:
        metrics.count_deprecated(context)
        return handle(services, request, context)

    return count_and_handle


def unsupported_version(unsupported: UnsupportedApi, versions: range) -> Buffers:
    """Return the response to an unsupported version of ApiVersions, in the layout of version 0 (KIP-35).

    `versions` are those of ApiVersions that are supported. Raises UnsupportedApi for every other API.
    """
    if not unsupported.is_api_versions:
        raise unsupported
    itself = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=versions.start, max_version=versions.stop - 1)
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[itself])
    header = response_header(ApiKey.API_VERSIONS, 0, unsupported.header.correlation_id)
    payload = header + b"".join(encode(response, 0))
    return [LENGTH.pack(len(payload)) + payload]


def request_decoder(module: ModuleType, api: Api, version: int) -> Decoder[Any]:
    """Return the decoder of requests for a handler module: the scanner if the module has a `SCANNED` class."""
    scanned = getattr(module, "SCANNED", None)
    return decoder(api.request, version) if scanned is None else scanner(api.request, scanned, version)


def failure_response(module: ModuleType, api: Api, request: object, context: RequestContext, code: ErrorCode) -> object:
    """Return the response to a request that failed as a whole: from the module's `failed` if it has one."""
    failed = getattr(module, "failed", None)
    return failed(request, context, code) if failed is not None else api.response(error_code=code)


def _encoded(encode: Encoder, response: object, elements_left: int) -> Buffers:
    """Return the buffers of a message. Raises TooManyElements."""
    buffers: Buffers = []
    try:
        encode(response, buffers, elements_left)
    except (ValueError, struct.error):
        # An error message that repeats a name of the request may exceed the length of a protocol string.
        if not _shorten_messages(response):
            raise
        buffers = []
        encode(response, buffers, elements_left)
    return buffers


def _shorten_messages(response: object) -> bool:
    """Cut every error message in a response, at any depth, to `ERROR_MESSAGE_MAX`; return whether any was longer."""
    shortened = False
    for field in response.__fields__ if isinstance(response, Struct) else ():
        value = getattr(response, field.name)
        if field.name == "error_message" and value is not None and len(value) > ERROR_MESSAGE_MAX:
            setattr(response, field.name, value[:ERROR_MESSAGE_MAX])
            shortened = True
        elif field.struct is not None and value is not None:
            for inner in value if field.is_array else [value]:
                shortened |= _shorten_messages(inner)
    return shortened


def _named(api: Api, header: RequestHeader | RequestContext) -> str:
    return f"{api.name} v{header.api_version} of client {header.client_id!r}, correlation id {header.correlation_id}"
