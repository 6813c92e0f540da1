"""A small synchronous client for the tools: sends one request to the right broker and returns its response.

Owns connections, the choice of versions (the newest that both sides support), the choice of brokers (any, the
controller, the coordinator of a group, the leader of a partition) and retries: a retriable error is retried until the
timeout of the call. Must not know what tools print.

It uses the project's own codec because the tools show what client libraries hide: topic ids, offsets of any kind,
responses of single brokers. Not thread-safe.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from base.topic_partition import TopicPartition
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.schema import message_info
from tools.base.command_line import UnreachableError
from tools.client.bootstrap import REACH_TIMEOUT_S, Endpoint, require_reachable
from tools.client.client_security import Security
from tools.client.listener_probe import wrong_listener

if TYPE_CHECKING:
    from broker.network.sasl.clients import SaslClient

T = TypeVar("T")
R = TypeVar("R")


class _HasErrorCode(Protocol):
    error_code: int


Result = TypeVar("Result", bound=_HasErrorCode)

NO_SECURITY = Security()
RETRY_BACKOFF_S = 0.1
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5

_LENGTH = struct.Struct(">i")
_API_VERSIONS_VERSION = 3
_CONSUMER = -1  # the replica id of a client that is not a replica
_NOT_THE_CONTROLLER = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
_NOT_THE_COORDINATOR = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Includes the response while a transaction is being ended."""

_NOT_THE_LEADER = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NETWORK_EXCEPTION}
)
_MAY_BE_WRONG_LISTENER = frozenset(
    {ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE}
)
"""What a client gets that connects with TLS or a login to a listener without it."""
_FIRST_RESPONSE_S = 2.0
"""How long the first response of an address may take before the address is probed."""


class CallTimedOut(Exception):  # noqa: N818 - named as what happened
    """No broker responded within the timeout of the call. The text names the brokers."""


class _WrongListenerError(ConnectionError):
    """An address will never serve this client. The text is one line that says what it expects."""


class AdminClient:
    """A client of one cluster. Use as a context manager."""

    def __init__(
        self,
        bootstrap: Sequence[Endpoint],
        *,
        client_id: str = "milena-tools",
        timeout_ms: int = 60_000,
        request_timeout_ms: int = 30_000,
        security: Security = NO_SECURITY,
        settings_option: str = "--command-config",
    ) -> None:
        """`timeout_ms` limits a whole call with its retries, `request_timeout_ms` one response.

        `settings_option` is the option of the command line whose file says how connections are secured.
        """
        self._settings_option = settings_option
        self._was_served = False
        self._probed: set[Endpoint] = set()
        self._security = security
        self.request_timeout_ms = min(request_timeout_ms, timeout_ms)
        self._bootstrap = list(bootstrap)
        self.client_id = client_id
        self._timeout_s = timeout_ms / 1000
        self._connections: dict[Endpoint, _Connection] = {}
        self._brokers: dict[int, Endpoint] = {}
        self._was_reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def call(self, request: object, response_type: type[T], *, broker_id: int | None = None) -> T:
        """Return the response of one broker, or of any.

        Raises CallTimedOut, UnreachableError if no address accepts connections or those that do expect another
        security.protocol, and KafkaError(UNSUPPORTED_VERSION) if the broker does not support the request; so do all
        methods below.
        """

        def attempt() -> T:
            if broker_id is not None and broker_id not in self._brokers:  # forgotten with a lost connection
                self._read_metadata([])
            return self._send(request, response_type, broker_id)

        return self._until_final(attempt)

    def call_once(self, request: object, response: type[T], *, broker_id: int) -> T:
        """Return the response of one broker, without a retry. Raises OSError, Malformed and KafkaError."""
        return self._send(request, response, broker_id)

    def call_controller(self, request: object, response_type: type[T], codes: Callable[[T], Iterable[int]]) -> T:
        """Return the controller's response. `codes` returns the error codes in it; some mean that it has moved."""

        def attempt() -> T:
            return self._send(request, response_type, self._read_metadata([]).controller_id)

        return self._until_final(attempt, codes, _NOT_THE_CONTROLLER)

    def call_coordinator(
        self,
        key: str,
        request: object,
        response_type: type[T],
        codes: Callable[[T], Iterable[int]],
        key_type: int = GROUP,
    ) -> T:
        """Return the response of a group's or transactional id's coordinator. Raises KafkaError if it has none."""

        def attempt() -> T:
            return self._send(request, response_type, self.coordinator(key, key_type))

        return self._until_final(attempt, codes, _NOT_THE_COORDINATOR)

    def query_coordinator(
        self,
        key: str,
        request: object,
        response_type: type[T],
        results: Callable[[T], Sequence[Result]],
        key_type: int = GROUP,
    ) -> Result:
        """Return the one result in a coordinator's response. Raises KafkaError, also for the error in the result."""
        response = self.call_coordinator(
            key, request, response_type, lambda response: [result.error_code for result in results(response)], key_type
        )
        (result,) = results(response)
        raise_for(result.error_code)
        return result

    def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """Return the id of a group's or transactional id's coordinator. Raises KafkaError if it has none."""
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        response = self._until_final(
            lambda: self._send(request, FindCoordinatorResponse, None).coordinators[0],
            lambda found: [found.error_code],
            _NOT_THE_COORDINATOR,
        )
        raise_for(response.error_code, response.error_message)
        self._brokers[response.node_id] = Endpoint(response.host, response.port)
        return response.node_id

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Return the cluster's brokers and the named topics, or all topics for None. Creates no topic."""
        return self._until_final(lambda: self._read_metadata(topics))

    def endpoint(self, broker_id: int) -> Endpoint:
        """Return the address of a broker that an earlier response named."""
        return self._brokers[broker_id]

    def call_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request: Callable[[list[TopicPartition]], object],
        response_type: type[T],
        results: Callable[[T], Iterable[tuple[TopicPartition, R | KafkaError]]],
    ) -> dict[TopicPartition, R | KafkaError]:
        """Return the result of each partition from its leader.

        `request` builds the request for the partitions of one leader, `results` splits its response. Partitions whose
        leader has moved are retried, and so are those whose leader does not respond: if another one does, they have
        NETWORK_EXCEPTION after the timeout.
        """
        found: dict[TopicPartition, R | KafkaError] = {}

        def attempt() -> dict[TopicPartition, R | KafkaError]:
            open_ones = [partition for partition in partitions if not _is_settled(found.get(partition))]
            leaders: dict[int, list[TopicPartition]] = {}
            for partition, leader in self.leaders(open_ones).items():
                if isinstance(leader, KafkaError):
                    found[partition] = leader
                else:
                    leaders.setdefault(leader, []).append(partition)
            lost: list[OSError] = []
            for leader_id, led in leaders.items():
                try:
                    found.update(results(self._send(request(led), response_type, leader_id)))
                except _WrongListenerError:
                    raise
                except OSError as error:
                    lost.append(error)
                    found.update(dict.fromkeys(led, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))))
            if lost and not any(map(_is_settled, found.values())):
                raise lost[-1]
            return found

        return self._until_final(attempt, _codes, _NOT_THE_LEADER)

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Return for each partition the first offset at or after a timestamp, or LATEST, EARLIEST; -1 for none."""
        return self.call_leaders(
            timestamps,
            lambda led: _list_offsets_request({partition: timestamps[partition] for partition in led}),
            ListOffsetsResponse,
            _listed_offsets,
        )

    def list_offsets_once(
        self, timestamps: Mapping[TopicPartition, int], *, broker_id: int
    ) -> dict[TopicPartition, int | KafkaError]:
        """Return the offsets of partitions that one broker leads, without a retry.

        Raises OSError, Malformed and KafkaError.
        """
        return dict(_listed_offsets(self._send(_list_offsets_request(timestamps), ListOffsetsResponse, broker_id)))

    def leaders(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
        """Ask once. Return the leader of each partition, or the error why it has none."""
        topics = {topic.name: topic for topic in self._read_metadata(sorted({name for name, _ in partitions})).topics}
        leaders: dict[TopicPartition, int | KafkaError] = {}
        for name, index in partitions:
            topic = topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None or not topic.error_code else topic.error_code
            leaders[name, index] = KafkaError(ErrorCode(code))
            for partition in topic.partitions if topic is not None else ():
                if partition.partition_index == index:
                    is_led = partition.leader_id >= 0
                    leaders[name, index] = partition.leader_id if is_led else KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return leaders

    def _read_metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self._send(request, MetadataResponse, None)
        self._brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in response.brokers}
        return response

    def _until_final(
        self,
        attempt: Callable[[], T],
        codes: Callable[[T], Iterable[int]] = lambda response: (),
        not_final: frozenset[ErrorCode] = frozenset(),
    ) -> T:
        """Return the first response without an error code of `not_final`; lost connections are retried too.

        After the timeout, returns the last response unchanged, or raises CallTimedOut without one.
        """
        deadline_s = time.monotonic() + self._timeout_s
        if not self._was_reached:
            require_reachable(self._bootstrap, min(REACH_TIMEOUT_S, self._timeout_s))
            self._was_reached = True
        while True:
            is_last = time.monotonic() + RETRY_BACKOFF_S > deadline_s
            try:
                response = attempt()
            except _WrongListenerError as error:
                raise UnreachableError(str(error)) from error
            except (OSError, Malformed) as error:
                self._brokers = {}
                if is_last:
                    brokers = ",".join(map(str, self._bootstrap))
                    raise CallTimedOut(f"Timed out waiting for a response of {brokers}: {error}") from error
            else:
                if is_last or not_final.isdisjoint(codes(response)):
                    return response
            time.sleep(RETRY_BACKOFF_S)

    def _send(self, request: object, response_type: type[T], broker_id: int | None) -> T:
        """Return the response of one broker, or of the first that responds. Raises the OSError of the last."""
        if broker_id is None:
            # Those with a connection come first: a broker that failed is not asked again before others.
            endpoints = sorted(
                [*self._brokers.values(), *self._bootstrap], key=lambda endpoint: endpoint not in self._connections
            )
        elif broker_id in self._brokers:
            endpoints = [self._brokers[broker_id]]
        else:
            raise ConnectionError(f"broker {broker_id} is not available")
        failure = OSError()
        for endpoint in dict.fromkeys(endpoints):
            try:
                response = self._connection(endpoint).call(request, response_type)
            except OSError as error:
                if (connection := self._connections.pop(endpoint, None)) is not None:
                    connection.close()
                if not isinstance(failure, _WrongListenerError):
                    failure = self._wrong_listener(endpoint) or error
            except KafkaError as error:
                if error.code not in _MAY_BE_WRONG_LISTENER or (wrong := self._wrong_listener(endpoint)) is None:
                    raise
                failure = wrong
            else:
                self._was_served = True
                return response
        raise failure

    def _wrong_listener(self, endpoint: Endpoint) -> _WrongListenerError | None:
        """Probe an address after its first failure, unless the cluster has served this client before."""
        if self._was_served or endpoint in self._probed:
            return None
        self._probed.add(endpoint)
        reason = wrong_listener(endpoint, self._security.protocol, self._settings_option)
        return None if reason is None else _WrongListenerError(reason)

    def _connection(self, endpoint: Endpoint) -> _Connection:
        if endpoint not in self._connections:
            timeout_s = self.request_timeout_ms / 1000
            first_s = timeout_s if self._was_served or endpoint in self._probed else min(timeout_s, _FIRST_RESPONSE_S)
            self._connections[endpoint] = _Connection(
                endpoint, self.client_id, timeout_s, self._security, first_timeout_s=first_s
            )
        return self._connections[endpoint]


def raise_for(code: int, text: str | None = None) -> None:
    """Raise KafkaError for any code but NONE; without `text` its message is the meaning of the code."""
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(code), text)


def _list_offsets_request(timestamps: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in timestamps.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _listed_offsets(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int | KafkaError]]:
    for topic in response.topics:
        for found in topic.partitions:
            code = ErrorCode(found.error_code)
            yield (topic.name, found.partition_index), found.offset if not code else KafkaError(code)


def _is_settled(response: object) -> bool:
    return response is not None and not (isinstance(response, KafkaError) and response.code in _NOT_THE_LEADER)


def _codes(responses: Mapping[TopicPartition, R | KafkaError]) -> Iterator[int]:
    return (response.code for response in responses.values() if isinstance(response, KafkaError))


class _Connection:
    """One connection to one broker. Its methods raise OSError when it is lost, Malformed for invalid bytes."""

    def __init__(
        self, endpoint: Endpoint, client_id: str, timeout_s: float, security: Security, *, first_timeout_s: float
    ) -> None:
        """Raises KafkaError if the broker cannot be trusted, or does not accept the login.

        `first_timeout_s` limits each step up to the first response, `timeout_s` each later response.
        """
        self._client_id = client_id
        self._correlation_id = 0
        plain = socket.create_connection(endpoint, first_timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain
        try:
            self._socket = security.wrapped(plain, endpoint.host)
            self._versions = self._api_versions()
            self._socket.settimeout(timeout_s)
            if security.new_login is not None:
                self._log_in(security.mechanism, security.new_login, endpoint.host)
        except OSError as error:
            self._socket.close()
            plain.close()
            if (reason := security.tls_failure(error)) is not None:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"SSL handshake failed: {reason}") from error
            raise
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def call(self, request: object, response_type: type[T]) -> T:
        return self._exchange(request, response_type, self._version(request))

    def _log_in(self, mechanism: str, new_login: Callable[[str], SaslClient], host: str) -> None:
        """Raises KafkaError."""
        from broker.network.sasl.clients import ServerNotTrusted  # only clients that log in need it

        offered = self.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        raise_for(
            offered.error_code,
            f"Client SASL mechanism '{mechanism}' not enabled in the server, enabled mechanisms are "
            f"{offered.mechanisms}",
        )
        try:
            login = new_login(host)
            token: bytes | None = login.first()
            while token is not None:
                response = self.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
                raise_for(response.error_code, response.error_message)
                token = login.respond(bytes(response.auth_bytes))
        except ServerNotTrusted as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Authentication failed: {error}") from error

    def _version(self, request: object) -> int:
        info = message_info(type(request))
        low, high = self._versions.get(info.api_key, (0, -1))
        newest = min(high, info.versions[-1])
        if newest < max(low, info.versions[0]):
            name = type(request).__name__.removesuffix("Request")
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The broker does not support {name}")
        return newest

    def _api_versions(self) -> Mapping[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="milena", client_software_version="tools")
        response = self._exchange(request, ApiVersionsResponse, _API_VERSIONS_VERSION)
        raise_for(response.error_code)
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _exchange(self, request: object, response_type: type[T], version: int) -> T:
        # The first request imports the messages of all APIs, with `protocol.api`. A help text does without.
        from protocol.headers import read_response_header, request_header

        key = message_info(type(request)).api_key
        self._correlation_id += 1
        body = encode(request, version)
        head = request_header(key, version, self._correlation_id, self._client_id)
        frame = b"".join([head, *body])
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)
        (size,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        response = self._receive(size)
        correlation_id, position = read_response_header(key, version, response)
        if correlation_id != self._correlation_id:
            raise Malformed(f"response {correlation_id} to request {self._correlation_id}")
        return decode(response_type, version, response, position)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)
