"""The lines that kafka-dump-log prints for a `.log` file: one per batch, and if requested one per record.

Owns the lines. Must not know options, or the meaning of keys and values (`record_parsers`).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from protocol.errors import Malformed
from protocol.records.batch import NO_SEQUENCE, BatchHeader, Record, TimestampType, records
from protocol.records.compression import PLAIN_SIZE_MAX, RESIDENT_SIZE_MAX
from protocol.records.control import read_marker
from protocol.records.legacy import (
    MessageHeader,
    message_crc_is_valid,
    message_records,
    messages,
    read_message_header,
    wrapped_messages,
)
from storage.batches.stored_batch import StoredBatch
from tools.files.segment_files import DumpError, LogFile, base_offset_of
from tools.records.kraft_records import control_record_text
from tools.records.record_parsers import Parser, UnreadableRecord

_INDENT: Final = "|"
_SEQUENCE_MAX: Final = (1 << 31) - 1
_TIMESTAMP_TYPES: Final = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
_NO_TIMESTAMP_TYPE: Final = "NoTimestampType"
_LEADER_CHANGE: Final = 2
_BOOTSTRAP: Final = "bootstrap.checkpoint"
_KRAFT_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


@dataclass(frozen=True, slots=True)
class LogDump:
    """Prints logs. Without a parser it omits keys and values."""

    opens_batches: bool = False
    parser: Parser | None = None
    has_record_metadata: bool = True
    size_max: int | None = None

    def lines(self, path: str, gaps: list[tuple[int, int]]) -> Iterator[str]:
        """Yield the lines of one file. If batches are opened, adds non-consecutive offsets to `gaps`.

        Raises DumpError at the first unreadable batch.
        """
        yield _beginning(path)
        log = LogFile(path, self.size_max)
        end = 0
        last_offset = -1
        for batch in log.batches():
            yield batch_line(batch)
            for record, details in self._records(path, batch):
                if last_offset not in (-1, record.offset - 1):
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
                yield self._record_line(path, batch, record, details)
            end = batch.extent.end
        if end < log.size and self.size_max is None:
            yield f"Found {log.size - end} invalid bytes at the end of {os.path.basename(path)}"

    def _records(self, path: str, batch: StoredBatch) -> Iterator[tuple[Record, str]]:
        if self.opens_batches:
            try:
                yield from _records_with_details(batch)
            except Malformed as error:
                raise DumpError(f"{path}: batch at position {batch.extent.position}: {error}") from None

    def _record_line(self, path: str, batch: StoredBatch, record: Record, details: str) -> str:
        is_control = batch.header is not None and batch.header.is_control
        line = ""
        if self.has_record_metadata:
            line = (
                f"{_INDENT} offset: {record.offset} {_timestamp_type(batch)}: {record.timestamp} "
                f"keySize: {_size(record.key)} valueSize: {_size(record.value)} {details}"
            )
            if is_control:
                line += f" {_control(path, record)}"
        if self.parser is not None and not is_control:
            try:
                parsed = self.parser(record)
            except UnreadableRecord as error:
                raise DumpError(f"{path}: {error}") from None
            if parsed.key is not None:
                line += f"{'' if line else _INDENT} key: {parsed.key}"
            if parsed.payload is not None:
                line += f" payload: {parsed.payload}"
        return line


def _beginning(path: str) -> str:
    """Return the line about a file's content, from its name. Raises DumpError."""
    name = os.path.basename(path)
    if name == _BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    if match := _KRAFT_SNAPSHOT.fullmatch(name):
        return f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}"
    return f"Log starting offset: {base_offset_of(path)}"


def batch_line(batch: StoredBatch) -> str:
    """Return the line of a batch, or of a message of an old format."""
    header = batch.header
    if header is None:
        message = read_message_header(batch.view)
        return f"offset: {message.offset} {_header_end(batch, message)}"
    delete_horizon_ms = header.delete_horizon_ms
    horizon = "OptionalLong.empty" if delete_horizon_ms is None else f"OptionalLong[{delete_horizon_ms}]"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.records_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} isTransactional: {_boolean(header.is_transactional)} "
        f"isControl: {_boolean(header.is_control)} deleteHorizonMs: {horizon} {_header_end(batch, header)}"
    )


def _header_end(batch: StoredBatch, header: BatchHeader | MessageHeader) -> str:
    """Return the part of the line that all formats share."""
    return (
        f"position: {batch.extent.position} {_timestamp_type(batch)}: {batch.max_timestamp_ms} "
        f"size: {batch.extent.size} magic: {header.magic} compresscodec: {_codec(header)} "
        f"crc: {header.crc} isvalid: {_boolean(batch.is_crc_valid)}"
    )


def _codec(header: BatchHeader | MessageHeader) -> str:
    try:
        return header.compression.name.lower()
    except Malformed:
        return "unknown"


def _records_with_details(batch: StoredBatch) -> Iterator[tuple[Record, str]]:
    """Yield the records of a batch, each with the details of its format. Raises Malformed."""
    header = batch.header
    if header is None:
        yield from _messages_with_details(batch.view)
        return
    for record in records(batch.view, size_max=PLAIN_SIZE_MAX, window_size_max=RESIDENT_SIZE_MAX):
        keys = ",".join(_header_key(key) for key, _ in record.headers)
        yield record, f"sequence: {_sequence(header, record)} headerKeys: [{keys}]"


def _messages_with_details(view: memoryview) -> Iterator[tuple[Record, str]]:
    plain = wrapped_messages(view, size_max=PLAIN_SIZE_MAX)
    opened = message_records(view, size_max=PLAIN_SIZE_MAX)
    for record, (position, header) in zip(opened, messages(plain), strict=True):
        is_valid = _boolean(message_crc_is_valid(plain, position, header))
        yield record, f"isValid: {is_valid} crc: {header.crc}}}"  # Kafka prints this brace too


def _sequence(header: BatchHeader, record: Record) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (header.base_sequence + record.offset - header.base_offset) & _SEQUENCE_MAX


def _header_key(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode(errors="replace")


def _control(path: str, record: Record) -> str:
    try:
        marker = read_marker(record)
        if marker is not None:
            return f"endTxnMarker: {marker.control_type.name} coordinatorEpoch: {marker.coordinator_epoch}"
        control_type = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
        text = control_record_text(control_type, record.value)
    except Malformed as error:
        raise DumpError(f"{path}: offset {record.offset}: {error}") from None
    if text is not None:
        return text
    return f"controlType: {'LEADER_CHANGE' if control_type == _LEADER_CHANGE else 'UNKNOWN'}({control_type})"


def _timestamp_type(batch: StoredBatch) -> str:
    if batch.extent.magic == 0:
        return _NO_TIMESTAMP_TYPE
    header = batch.header or read_message_header(batch.view)
    return _TIMESTAMP_TYPES[header.timestamp_type]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _boolean(value: bool) -> str:
    return "true" if value else "false"
