"""Small text files that survive a crash: a directory's offset checkpoints, a partition's leader epochs and metadata.

Owns reading and writing their formats. Line 1 is the version (0), line 2 the number of entries; each further line is
one entry, with a space between fields. `partition.metadata` has two `name: value` lines. A file is replaced as a whole,
so a reader finds the old or the new content. A malformed file raises an error with its path and line; it never counts
as empty. Must not know what the offsets mean.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from base.topic_partition import TopicPartition
from protocol.ids import id_text, parse_id
from storage.disk.files import Files

_VERSION: Final = "0"
_DIGITS_MAX: Final = 19  # of an int64


class MalformedCheckpointError(Exception):
    """A checkpoint file is malformed. The message contains its path, the line, and the expected content."""


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    files.replace(path, _encode(lines), durable=True)


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Return the offsets; none if the file does not exist or is empty. Raises MalformedCheckpointError."""
    offsets = {}
    for number, line in _read_lines(files, path) or []:
        entry = _offset_in(line)
        if entry is None:
            raise MalformedCheckpointError(f'{path} line {number}: "{line}", expected "<topic> <partition> <offset>"')
        offsets[entry[0]] = entry[1]
    return offsets


def read_whole_offsets(files: Files, path: str, on_damage: Callable[[str], None]) -> dict[TopicPartition, int]:
    """Return the offsets of the lines that can be read; call `on_damage` if there are others.

    One damaged line must not make all logs of a directory forget their offsets. Raises MalformedCheckpointError if no
    line or not the head of the file can be read.
    """
    try:
        return read_offsets(files, path)
    except MalformedCheckpointError as error:
        lines = files.read_whole(path).decode("utf-8", "replace").split("\n")[:-1]
        found = [entry for line in lines[2:] if (entry := _offset_in(line)) is not None]
        if not found or lines[0] != _VERSION or not _is_number(lines[1]):
            raise
        on_damage(f"{error}; the {len(found)} lines that can be read are used")
        return dict(found)


def _offset_in(line: str) -> tuple[TopicPartition, int] | None:
    fields = line.split(" ")
    if len(fields) != 3 or not _is_number(fields[1]) or not _is_number(fields[2]):
        return None
    return (fields[0], int(fields[1])), int(fields[2])


def write_leader_epochs(files: Files, path: str, entries: Sequence[EpochStart]) -> None:
    """Write the file without waiting for the disk.

    `LogDurability.flush` syncs it before the recovery point passes the batches that it describes. Raises OSError.
    """
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in entries]
    files.replace(path, _encode(lines), durable=False)


def read_leader_epochs(files: Files, path: str) -> list[EpochStart] | None:
    """Return the entries, None if the file does not exist or is empty. Raises MalformedCheckpointError."""
    lines = _read_lines(files, path)
    if lines is None:
        return None
    entries: list[EpochStart] = []
    for number, line in lines:
        fields = line.split(" ")
        if len(fields) != 2 or not _is_number(fields[0]) or not _is_number(fields[1]):
            raise MalformedCheckpointError(f'{path} line {number}: "{line}", expected "<epoch> <start offset>"')
        entry = EpochStart(int(fields[0]), int(fields[1]))
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset <= entries[-1].start_offset):
            raise MalformedCheckpointError(f'{path} line {number}: "{line}" after {entries[-1]}, expected both to rise')
        entries.append(entry)
    return entries


def write_partition_metadata(files: Files, path: str, topic_id: UUID) -> None:
    files.replace(path, f"version: 0\ntopic_id: {id_text(topic_id)}".encode(), durable=False)


def read_partition_metadata(files: Files, path: str) -> UUID | None:
    """Return the topic id, None if the file does not exist or is empty. Raises MalformedCheckpointError."""
    text = _read(files, path)
    if not text:
        return None
    lines = text.splitlines()
    if len(lines) != 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        raise MalformedCheckpointError(f'{path}: "{text}", expected the lines "version: 0" and "topic_id: <id>"')
    try:
        return parse_id(lines[1].removeprefix("topic_id: "))
    except ValueError as error:
        raise MalformedCheckpointError(f"{path} line 2: {error}") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def _encode(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in [_VERSION, str(len(lines)), *lines]).encode()


def _read(files: Files, path: str) -> str:
    """Return the text of a file, which is empty if the file does not exist."""
    try:
        return files.read_whole(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _read_lines(files: Files, path: str) -> Iterable[tuple[int, str]] | None:
    """Return the numbered lines of the entries, None if the file does not exist or is empty."""
    text = _read(files, path)
    if not text:
        return None
    lines = text.splitlines()
    if not text.endswith("\n"):  # a power cut may have torn a number
        raise MalformedCheckpointError(f'{path} line {len(lines)}: "{lines[-1]}", expected a line end behind it')
    if lines[0] != _VERSION:
        raise MalformedCheckpointError(f'{path} line 1: "{lines[0]}", expected version {_VERSION}')
    if len(lines) < 2 or not _is_number(lines[1]) or int(lines[1]) != len(lines) - 2:
        second = lines[1] if len(lines) > 1 else ""
        raise MalformedCheckpointError(f'{path} line 2: "{second}", expected the number of entries, {len(lines) - 2}')
    return enumerate(lines[2:], start=3)
