"""kafka-delete-records: deletes the records of partitions below the offsets that a JSON file names."""

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tools.base.command_line import CommandLine, run_tool
from tools.base.java_names import exception_text, hash_map_order, topic_partition_hash
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client

logger = logging.getLogger("org.apache.kafka.clients.admin.internals.DeleteRecordsHandler")

_VERSION: Final = 1


class InvalidOffsetsError(Exception):
    """The file is not a valid list of records to delete. The text names the problem."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status. As in Kafka, an error of a partition is printed on stdout and is not a failure."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-delete-records",
        "This tool helps to delete records of the given partitions down to the specified offset.",
    )
    add_admin_options(line)
    line.add_option(
        "--offset-json-file",
        value="Offset json file path",
        help_text="REQUIRED: The JSON file with offset per partition; -1 stands for the high watermark. The format: "
        '{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}',
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server", "--offset-json-file")
    path = options.offset_json_file
    try:
        with open(path, encoding="utf-8") as file:
            offsets = parse_offsets(file.read())
    except OSError as error:
        return _failed(f"{path}: {error.strerror}")
    except (InvalidOffsetsError, UnicodeDecodeError) as error:
        return _failed(f"{path}: {error}")
    try:
        with admin_client(options) as admin:
            print("Executing records delete operation", flush=True)
            results = _delete(admin, offsets)
    except KafkaError as error:
        return _failed(error.message)
    except CallTimedOut as error:
        return _failed(str(error))
    print("Records delete operation completed:")
    for topic, partition in hash_map_order(offsets, hash_code=topic_partition_hash):
        print(f"partition: {topic}-{partition}\t{_outcome(results[topic, partition])}")
    return 0


def _failed(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 1


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offsets by partition of a file's content. Raises InvalidOffsetsError."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidOffsetsError(f"The input string is not a valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise InvalidOffsetsError("The input string is not a valid JSON: expected an object")
    if content.get("version", _VERSION) != _VERSION:
        raise InvalidOffsetsError(f"Not supported version field value {content['version']}")
    partitions = content.get("partitions")
    if not isinstance(partitions, list):
        raise InvalidOffsetsError("Missing partitions field")
    offsets: dict[TopicPartition, int] = {}
    duplicates: dict[str, None] = {}
    for entry in partitions:
        topic, partition, offset = (
            _field(entry, "topic", str),
            _field(entry, "partition", int),
            _field(entry, "offset", int),
        )
        if (topic, partition) in offsets:
            duplicates[f"{topic}-{partition}"] = None
        offsets[topic, partition] = offset
    if duplicates:
        raise InvalidOffsetsError(f"Offset json file contains duplicate topic partitions: {','.join(duplicates)}")
    return offsets


def _field(entry: object, name: str, kind: type) -> Any:
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        what = "a string" if kind is str else "a number"
        raise InvalidOffsetsError(f"expected {what} as {name} in {json.dumps(entry)}")
    return value


def _delete(admin: AdminClient, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
    """Return the new log start offset of each partition, or its error."""

    def request(led: Sequence[TopicPartition]) -> DeleteRecordsRequest:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for topic, partition in led:
            wanted = DeleteRecordsPartition(partition_index=partition, offset=offsets[topic, partition])
            topics.setdefault(topic, []).append(wanted)
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
            timeout_ms=admin.request_timeout_ms,
        )

    results = admin.call_leaders(offsets, request, DeleteRecordsResponse, _low_watermarks)
    for (topic, partition), result in results.items():
        if isinstance(result, KafkaError):
            logger.error(
                "[AdminClient clientId=%s] DeleteRecords request for topic partition %s-%s failed due to an unexpected"
                " error %s",
                admin.client_id,
                topic,
                partition,
                result.code.name,
            )
    return results


def _low_watermarks(response: DeleteRecordsResponse) -> Iterator[tuple[TopicPartition, int | KafkaError]]:
    for topic in response.topics:
        for result in topic.partitions:
            code = ErrorCode(result.error_code)
            yield (topic.name, result.partition_index), KafkaError(code) if code else result.low_watermark


def _outcome(result: int | KafkaError) -> str:
    return f"error: {exception_text(result)}" if isinstance(result, KafkaError) else f"low_watermark: {result}"


if __name__ == "__main__":
    raise SystemExit(main())
