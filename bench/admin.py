"""Topics for the benchmark: created and deleted over the protocol, outside measured sections.

Owns the requests before and after a measurement. Must not know what is measured.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import TypeVar

from bench.client import connect, receive_frame
from bench.frames import PRODUCE_VERSION, SIZE_FIELD, Batch, request_frame
from protocol.api import APIS
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.headers import read_response_header
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.schema import message_info

Response = TypeVar("Response")

BUFFER_SIZE = 1024 * 1024
TOPIC_RESOURCE = 2
SET = 0
LATEST = -1
CONSUMER = -1
TIMEOUT_MS = 30_000
LEADER_TIMEOUT_S = 30.0
ASK_AGAIN_AFTER_S = 0.01


def ask(port: int, request: object, version: int, response_type: type[Response]) -> Response:
    """Send one request on its own connection; return the response."""
    api_key = message_info(type(request)).api_key
    assert APIS[api_key].response is response_type
    buffer = memoryview(bytearray(BUFFER_SIZE))
    with connect(port) as connection:
        connection.sendall(request_frame(request, version))
        size = receive_frame(connection, buffer)
    response = buffer[SIZE_FIELD:size]
    _, position = read_response_header(api_key, version, response)
    return decode(response_type, version, response, position)


def create_topic(port: int, name: str, partitions: int = 1) -> None:
    """Return when every partition has a leader that serves it."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    response = ask(port, CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 5, CreateTopicsResponse)
    _expect_success(response.topics[0].error_code, f"CreateTopics {name}: {response.topics[0].error_message}")
    deadline = time.monotonic() + LEADER_TIMEOUT_S
    while not (_has_leaders(port, name, partitions) and _are_served(port, name, partitions)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"topic {name} has no leaders after {LEADER_TIMEOUT_S} s")
        time.sleep(ASK_AGAIN_AFTER_S)


def alter_topic(port: int, name: str, settings: Mapping[str, str]) -> None:
    configs = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in settings.items()]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = ask(port, request, 1, IncrementalAlterConfigsResponse)
    _expect_success(response.responses[0].error_code, f"IncrementalAlterConfigs {name}")


def delete_topic(port: int, name: str) -> None:
    response = ask(port, DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5, DeleteTopicsResponse)
    _expect_success(response.responses[0].error_code, f"DeleteTopics {name}")


def end_offset(port: int, topic: str) -> int:
    """Return the end of partition 0; 0 if the topic does not exist."""
    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    request = ListOffsetsRequest(replica_id=CONSUMER, topics=[wanted])
    partition = ask(port, request, 5, ListOffsetsResponse).topics[0].partitions[0]
    if partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return 0
    _expect_success(partition.error_code, f"ListOffsets {topic}")
    return partition.offset


def produce_to_each(port: int, topic: str, partitions: int, batch: Batch) -> None:
    """Produce the batch once to every partition, in one request."""
    data = [PartitionProduceData(index=partition, records=batch.data) for partition in range(partitions)]
    request = ProduceRequest(
        acks=1, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    for partition in ask(port, request, PRODUCE_VERSION, ProduceResponse).responses[0].partition_responses:
        _expect_success(partition.error_code, f"Produce to {topic}-{partition.index}")


def _has_leaders(port: int, name: str, partitions: int) -> bool:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    topic = ask(port, request, 9, MetadataResponse).topics[0]
    leaders = [partition for partition in topic.partitions if partition.error_code == 0 and partition.leader_id >= 0]
    return topic.error_code == 0 and len(leaders) == partitions


def _are_served(port: int, name: str, partitions: int) -> bool:
    """Return whether the broker leads all partitions; one of Kafka 4 names itself as a leader before it is one."""
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(partitions)]
    request = ListOffsetsRequest(replica_id=CONSUMER, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
    (topic,) = ask(port, request, 5, ListOffsetsResponse).topics
    return not any(partition.error_code for partition in topic.partitions)


def greeting() -> bytes:
    """Return the first request that clients send on every connection."""
    return bytes(request_frame(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3))


def check_greeting(response: memoryview) -> None:
    (error,) = struct.unpack_from(">h", response, SIZE_FIELD + 4)
    _expect_success(error, "ApiVersions")


def _expect_success(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: {ErrorCode(code).name}")
