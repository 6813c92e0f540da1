"""The client of the tools: choice of broker and version, retries and timeouts."""

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.broker import BrokerProcess
from tests.support.processes import closed_port
from tests.tools.scripted_broker import ScriptedBroker
from tools.base.command_line import UnreachableError
from tools.client.admin_client import EARLIEST, LATEST, AdminClient, CallTimedOut, raise_for
from tools.client.bootstrap import Endpoint

DELETE = DeleteTopicsRequest(topic_names=["a"], topics=[], timeout_ms=1)


def client(port: int, timeout_ms: int = 5000) -> AdminClient:
    return AdminClient([Endpoint("127.0.0.1", port)], timeout_ms=timeout_ms)


def metadata(port: int, *, controller_id: int = 1) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)]
    return MetadataResponse(brokers=brokers, controller_id=controller_id, topics=[])


def deleted(code: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[DeletableTopicResult(name="a", error_code=code)])


def codes(response: DeleteTopicsResponse) -> list[int]:
    return [result.error_code for result in response.responses]


def test_calls_reach_a_real_broker(broker: BrokerProcess) -> None:
    with client(broker.port) as admin:
        cluster = admin.metadata([])
        assert [(node.node_id, node.port) for node in cluster.brokers] == [(0, broker.port)]
        assert cluster.controller_id == 0
        assert admin.coordinator("some-group") == 0
        assert admin.endpoint(0) == Endpoint("127.0.0.1", broker.port)
        assert admin.call(ListGroupsRequest(), ListGroupsResponse, broker_id=0).error_code == 0
        offsets = admin.list_offsets({("nosuch", 0): LATEST})
        assert isinstance(offsets["nosuch", 0], KafkaError)


def test_next_bootstrap_broker_is_used_when_the_first_is_down(broker: BrokerProcess) -> None:
    with closed_port() as port:
        endpoints = [Endpoint("127.0.0.1", port), Endpoint("127.0.0.1", broker.port)]
        with AdminClient(endpoints, timeout_ms=5000) as admin:
            assert admin.metadata([]).controller_id == 0


def test_timeout_names_the_bootstrap_brokers() -> None:
    with (
        closed_port() as port,
        client(port, timeout_ms=300) as admin,
        pytest.raises(UnreachableError, match=rf"No broker at 127\.0\.0\.1:{port}: Connection refused"),
    ):
        admin.metadata([])


def test_request_is_retried_at_the_new_controller() -> None:
    responses = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def respond(request: object) -> object:
        return metadata(broker.port) if isinstance(request, MetadataRequest) else deleted(responses.pop(0))

    with ScriptedBroker(respond) as broker, client(broker.port) as admin:
        assert codes(admin.call_controller(DELETE, DeleteTopicsResponse, codes)) == [ErrorCode.NONE]
    assert responses == []


def test_errors_that_are_not_retriable_are_returned() -> None:
    def respond(request: object) -> object:
        return metadata(broker.port) if isinstance(request, MetadataRequest) else deleted(ErrorCode.REQUEST_TIMED_OUT)

    with ScriptedBroker(respond) as broker, client(broker.port) as admin:
        assert codes(admin.call_controller(DELETE, DeleteTopicsResponse, codes)) == [ErrorCode.REQUEST_TIMED_OUT]
    assert sum(isinstance(request, DeleteTopicsRequest) for request in broker.requests) == 1


def test_last_response_is_returned_after_the_timeout() -> None:
    def respond(request: object) -> object:
        return metadata(broker.port) if isinstance(request, MetadataRequest) else deleted(ErrorCode.NOT_CONTROLLER)

    with ScriptedBroker(respond) as broker, client(broker.port, timeout_ms=250) as admin:
        assert codes(admin.call_controller(DELETE, DeleteTopicsResponse, codes)) == [ErrorCode.NOT_CONTROLLER]


def test_missing_coordinator_raises_its_error() -> None:
    def respond(request: object) -> object:
        missing = Coordinator(
            key="g", node_id=-1, host="", port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=None
        )
        return FindCoordinatorResponse(coordinators=[missing])

    with ScriptedBroker(respond) as broker, client(broker.port, timeout_ms=250) as admin:
        with pytest.raises(KafkaError, match="The coordinator is not available"):
            admin.coordinator("g")
        assert len(broker.requests) > 1


def test_lost_connection_is_reopened() -> None:
    with (
        ScriptedBroker(lambda request: None, lambda request: metadata(broker.port)) as broker,
        client(broker.port) as admin,
    ):
        assert admin.metadata([]).controller_id == 1


@pytest.mark.parametrize("junk", [b"", b"\0\0\0\1", b"\0\0\0\2" + b"\xff" * 20, b"\xff" * 40])
def test_malformed_response_is_retried_until_the_timeout(junk: bytes) -> None:
    with (
        ScriptedBroker(lambda request: junk) as broker,
        client(broker.port, timeout_ms=250) as admin,
        pytest.raises(CallTimedOut),
    ):
        admin.metadata([])


def test_offsets_are_requested_from_leaders() -> None:
    def respond(request: object) -> object:
        if not isinstance(request, MetadataRequest):
            return ListOffsetsResponse(topics=[])
        leaderless = MetadataResponsePartition(partition_index=1, leader_id=-1, replica_nodes=[], isr_nodes=[])
        topic = MetadataResponseTopic(name="t", partitions=[leaderless])
        brokers = metadata(broker.port).brokers
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[topic])

    with ScriptedBroker(respond) as broker, client(broker.port) as admin:
        found = admin.list_offsets({("t", 1): LATEST, ("t", 9): EARLIEST})
    assert {partition: error.code for partition, error in found.items() if isinstance(error, KafkaError)} == {
        ("t", 1): ErrorCode.LEADER_NOT_AVAILABLE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert len(broker.requests) == 1


def test_raise_for_raises_the_error_of_a_code() -> None:
    raise_for(0)
    with pytest.raises(KafkaError, match="why") as failure:
        raise_for(ErrorCode.INVALID_CONFIG, "why")
    assert failure.value.code is ErrorCode.INVALID_CONFIG


def test_one_broker_is_found_again_after_a_lost_connection() -> None:
    lost = iter([True])

    def respond(request: object) -> object:
        if isinstance(request, MetadataRequest):
            return metadata(broker.port)
        return None if next(lost, False) else ListGroupsResponse(error_code=0, groups=[])

    with ScriptedBroker(respond) as broker, client(broker.port) as admin:
        admin.metadata([])
        assert admin.call(ListGroupsRequest(), ListGroupsResponse, broker_id=1).error_code == 0


def test_leaders_are_asked_although_another_one_does_not_respond() -> None:
    def respond(request: object) -> object:
        if not isinstance(request, MetadataRequest):
            listed = ListOffsetsPartitionResponse(partition_index=1, error_code=0, offset=7)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[listed])])
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=[], isr_nodes=[])
            for index, leader in enumerate((2, 1))
        ]
        dead = MetadataResponseBroker(node_id=2, host="127.0.0.1", port=dead_port)
        brokers = [*metadata(broker.port).brokers, dead]
        topic = MetadataResponseTopic(name="t", partitions=partitions)
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[topic])

    with (
        closed_port() as dead_port,
        ScriptedBroker(respond) as broker,
        client(broker.port, timeout_ms=300) as admin,
    ):
        found = admin.list_offsets({("t", 0): LATEST, ("t", 1): LATEST})
    lost = found["t", 0]
    assert isinstance(lost, KafkaError)
    assert (lost.code, found["t", 1]) == (ErrorCode.NETWORK_EXCEPTION, 7)
