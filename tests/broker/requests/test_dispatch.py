"""From frames to responses with scripted handlers: three kinds of failure, waiting handlers, and ApiVersions."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from broker.handlers.declaration import Declaration
from broker.handlers.request_context import CloseConnection, RequestContext
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork
from broker.loop.subscribers import Subscribers
from broker.network.channel import Authentication, Channel
from broker.network.connection import Buffers, Outcome
from broker.requests.dispatch import ERROR_MESSAGE_MAX, SIZE_IN_STEPS_MAX, RequestDispatcher, failure_response
from broker.requests.routes import TABLE
from broker.requests.services import Services
from broker.security.authorizer import Authorizer
from controller.store.state_store import SessionExpired
from protocol.api import APIS
from protocol.api_key import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.headers import read_response_header, request_header
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.row_writer import RowResponse
from tests.support.manual_clock import ManualClock

HEARTBEAT = 12
CREATE_TOPICS = 19
CHANNEL = Channel("127.0.0.1", 5, "TEST")
Handler = Callable[[Services, HeartbeatRequest, RequestContext], Any]


def dispatcher_with(handle: Handler) -> RequestDispatcher:
    return dispatcher_of({HEARTBEAT: handle})


def table_of(handlers: Mapping[int, Callable[..., Any]]) -> Mapping[int, ModuleType]:
    table = {}
    for key, handle in handlers.items():
        table[key] = module = ModuleType("scripted")
        module.API = Declaration(ApiKey(key))
        module.handle = handle  # type: ignore[attr-defined]
    return table


def dispatcher_of(handlers: Mapping[int, Callable[..., Any]]) -> RequestDispatcher:
    clock = ManualClock()
    services = SimpleNamespace(
        sliced_work=SlicedWork(clock.monotonic_ms),
        served_apis=APIS,
        clock=clock,
        random=Random(1),
        authorizer=Authorizer(is_active=False),
        enforced_quotas=SimpleNamespace(is_active=False, activity=Subscribers()),
    )
    return RequestDispatcher(cast(Services, services), table_of(handlers))


def heartbeat(version: int = 4) -> memoryview:
    body = encode(HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), version)
    return memoryview(bytearray(request_header(HEARTBEAT, version, 77, "client") + b"".join(body)))


def response_in(buffers: Buffers, version: int = 4) -> HeartbeatResponse:
    """Return the response in a frame, after checking its length and correlation id."""
    data = b"".join(buffers)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    correlation_id, position = read_response_header(HEARTBEAT, version, data[4:])
    assert correlation_id == 77
    return decode(HeartbeatResponse, version, data[4:], position)


def immediate_response(dispatcher: RequestDispatcher, version: int = 4) -> HeartbeatResponse:
    response = dispatcher.dispatch(heartbeat(version), CHANNEL)
    assert isinstance(response, list)
    return response_in(response, version)


@pytest.mark.parametrize("version", list(APIS[HEARTBEAT].versions))
def test_handler_gets_request_and_context_and_its_response_is_sent(version: int) -> None:
    seen: list[tuple[HeartbeatRequest, RequestContext]] = []

    def handle(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        seen.append((request, context))
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)

    response = immediate_response(dispatcher_with(handle), version)
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    ((request, context),) = seen
    assert (request.group_id, request.generation_id) == ("g", 3)
    assert (context.api_key, context.api_version, context.client_id) == (HEARTBEAT, version, "client")


def raising(error: Exception) -> Handler:
    def handle(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        raise error

    return handle


def test_kafka_error_of_a_handler_is_returned() -> None:
    dispatcher = dispatcher_with(raising(KafkaError(ErrorCode.NOT_COORDINATOR)))
    assert immediate_response(dispatcher).error_code == ErrorCode.NOT_COORDINATOR
    assert dispatcher.unexpected_error_count == 0


def test_bug_is_counted_logged_and_returned_as_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = dispatcher_with(raising(ZeroDivisionError("of ours")))
    assert immediate_response(dispatcher).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert dispatcher.unexpected_error_count == 1
    assert "Heartbeat v4 from client 'client' (correlation id 77)" in caplog.text
    assert "ZeroDivisionError: of ours" in caplog.text


def test_lost_session_with_the_metadata_store_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    """The client receives the code that Kafka returns."""
    dispatcher = dispatcher_with(raising(SessionExpired("the session has expired")))
    assert immediate_response(dispatcher).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert dispatcher.unexpected_error_count == 0
    (record,) = caplog.records
    assert record.getMessage() == (
        "Heartbeat v4 from client 'client' failed: the metadata store is not available: the session has expired"
    )
    assert record.levelname == "WARNING"
    assert record.exc_info is None


def test_handler_can_close_the_connection() -> None:
    with pytest.raises(CloseConnection):
        dispatcher_with(raising(CloseConnection("acks=0 failed"))).dispatch(heartbeat(), CHANNEL)


def test_response_of_a_coroutine_that_does_not_wait_is_sent_at_once() -> None:
    async def respond() -> HeartbeatResponse:
        return HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)

    dispatcher = dispatcher_with(lambda *_: respond())
    assert immediate_response(dispatcher).error_code == ErrorCode.ILLEGAL_GENERATION


def test_error_of_a_coroutine_that_does_not_wait_is_sent_at_once() -> None:
    async def fail() -> HeartbeatResponse:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    assert immediate_response(dispatcher_with(lambda *_: fail())).error_code == ErrorCode.NOT_COORDINATOR


def test_coroutine_of_a_client_that_leaves_ends_and_is_not_resumed() -> None:
    promise: Promise[None] = Promise()
    seen: list[str] = []

    async def wait() -> HeartbeatResponse:
        try:
            await promise
            seen.append("resumed")
        finally:
            seen.append("ended")
        return HeartbeatResponse()

    response = dispatcher_with(lambda *_: wait()).dispatch(heartbeat(), CHANNEL)
    assert isinstance(response, Promise)
    response.cancel()
    promise.set_result(None)
    assert seen == ["ended"]


async def test_work_that_is_cancelled_by_others_cancels_the_response() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> HeartbeatResponse:
        await future
        return HeartbeatResponse()

    response = dispatcher_with(lambda *_: wait()).dispatch(heartbeat(), CHANNEL)
    assert isinstance(response, Promise)
    future.cancel()
    await asyncio.sleep(0)
    assert response.cancelled()


async def test_response_of_a_waiting_handler_is_sent_later() -> None:
    async def wait() -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)

    response = dispatcher_with(lambda *_: wait()).dispatch(heartbeat(), CHANNEL)
    assert response is not None
    assert not isinstance(response, list)
    assert response_in(await response or []).error_code == ErrorCode.ILLEGAL_GENERATION


async def test_error_of_a_waiting_handler_is_returned() -> None:
    async def fail() -> HeartbeatResponse:
        await asyncio.sleep(0)
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    response = dispatcher_with(lambda *_: fail()).dispatch(heartbeat(), CHANNEL)
    assert response is not None
    assert not isinstance(response, list)
    assert response_in(await response or []).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    "frame",
    [
        request_header(HEARTBEAT, 4, 1, "c"),
        request_header(HEARTBEAT, 4, 1, "c") + b"\xff" * 20,
        b"\x00\x63\x00\x00\x00\x00\x00\x01\xff\xff",
        request_header(0, 3, 1, "c"),
        b"\x00\x0c\x00\x63\x00\x00\x00\x01\xff\xff",
        b"",
    ],
    ids=["no body", "garbage", "unknown key", "not served here", "unknown version", "empty"],
)
def test_invalid_frames_are_malformed(frame: bytes) -> None:
    dispatcher = dispatcher_with(lambda *_: HeartbeatResponse())
    with pytest.raises(Malformed):
        dispatcher.dispatch(memoryview(bytearray(frame)), CHANNEL)


def test_request_that_is_served_in_one_step_has_a_lower_size_limit() -> None:
    dispatcher = dispatcher_with(lambda *_: HeartbeatResponse())
    with pytest.raises(Malformed, match="expected at most"):
        dispatcher.dispatch(memoryview(bytearray(bytes(heartbeat()) + bytes(SIZE_IN_STEPS_MAX))), CHANNEL)


def test_unknown_version_of_api_versions_gets_a_response_of_version_0() -> None:
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x09\xff\xff"
    buffers = dispatcher_with(lambda *_: None).dispatch(memoryview(bytearray(frame)), CHANNEL)
    assert isinstance(buffers, list)
    response = decode(ApiVersionsResponse, 0, b"".join(buffers), 8)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (itself,) = response.api_keys
    assert (itself.api_key, itself.min_version, itself.max_version) == (18, 0, 4)


def test_every_served_api_has_an_error_response() -> None:
    """A request with empty lists fails as a whole in every version without a failure of its own."""
    context = RequestContext(0, 0, 0, None, CHANNEL)
    for key, module in TABLE.items():
        api = APIS[key]
        request = _empty(api.request)
        response = failure_response(module, api, request, context, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert type(response) in (api.response, RowResponse), api.name


def _empty(request: type) -> object:
    """A request whose required fields are empty or one: acks of a Produce request, which has no response with zero."""
    values: dict[str, object] = {}
    for field in request.__fields__:  # type: ignore[attr-defined]
        if field.is_array:
            values[field.name] = []
        elif field.wire is not None and field.wire.name == "string":
            values[field.name] = ""
        elif field.wire is not None:
            values[field.name] = 1
    return request(**values)


@pytest.mark.parametrize("version", list(APIS[CREATE_TOPICS].versions)[1:])
def test_error_message_longer_than_a_string_is_truncated(version: int) -> None:
    """It repeats what the request says, so it is no bug of ours."""

    def handle(services: Services, request: object, context: RequestContext) -> CreateTopicsResponse:
        result = CreatableTopicResult(name="x" * 32767, error_code=17, error_message="é" * 32767)
        return CreateTopicsResponse(topics=[result])

    dispatcher = dispatcher_of({CREATE_TOPICS: handle})
    body = encode(CreateTopicsRequest(topics=[]), version)
    response = dispatcher.dispatch(
        memoryview(bytearray(request_header(CREATE_TOPICS, version, 77, "client") + b"".join(body))), CHANNEL
    )
    assert isinstance(response, list)
    data = b"".join(response)[4:]
    _, position = read_response_header(CREATE_TOPICS, version, data)
    (topic,) = decode(CreateTopicsResponse, version, data, position).topics
    assert (topic.name, topic.error_message) == ("x" * 32767, "é" * ERROR_MESSAGE_MAX)
    assert dispatcher.unexpected_error_count == 0


def test_unauthenticated_client_is_not_served() -> None:
    dispatcher = dispatcher_with(lambda *_: HeartbeatResponse(error_code=0))
    channel = Channel("127.0.0.1", 5, "TEST")
    channel.authentication = Authentication.PENDING
    with pytest.raises(CloseConnection, match="has not authenticated itself"):
        dispatcher.dispatch(heartbeat(), channel)
    channel.authentication = Authentication.COMPLETE
    assert isinstance(dispatcher.dispatch(heartbeat(), channel), list)


def test_a_request_over_a_quota_mutes_its_connection() -> None:
    def over_quota(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        context.mute_ms = 70
        return HeartbeatResponse(error_code=0, throttle_time_ms=70)

    outcome = dispatcher_with(over_quota).dispatch(heartbeat(), Channel("127.0.0.1", 5, "TEST"))
    assert isinstance(outcome, Outcome)
    assert outcome.buffers is not None
    assert (outcome.mute_ms, response_in(outcome.buffers).throttle_time_ms) == (70, 70)


def test_another_table_serves_the_next_requests() -> None:
    def fails(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    dispatcher = dispatcher_with(lambda *_: HeartbeatResponse())
    assert immediate_response(dispatcher).error_code == 0
    dispatcher.serve_with(table_of({HEARTBEAT: fails}))
    assert immediate_response(dispatcher).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
