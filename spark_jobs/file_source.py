"""Sends the lines of a text file to a topic, and the lines that are appended later: FileStreamSource of Connect.

One record per line, without its end; empty lines are records too. A last line without an end waits until its end is
written. `--checkpoint` is a folder of this machine; it holds the byte offset that the broker has acknowledged, and
the job continues there. Lines have no key: their order is kept by a topic with one partition, as --create-topics makes
it.

The file may be a log that is rotated, and be missing for a time. A file that is shorter than before, or whose first
1024 bytes differ, is read from its start. A running job reads a replaced file until nothing was appended to it for five
seconds, because its writer may not know of the rotation yet; with --once it does not wait. A job that was stopped knows
the new file only.

It is a program on the machine of the file and starts no Spark.

Delivery: at-least-once, from the stored byte offset on. The header `record-id` is `FILE/ROTATION/BYTE OFFSET`, where
the number of rotations is one that the job has counted, so that readers can drop duplicates (U).
"""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from io import FileIO
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from base.replaced_file import replace_file
from spark_jobs.skeleton.clients import producer_settings
from spark_jobs.skeleton.delivery import RECORD_ID
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.followed_file import QUIET_S, FollowedFile
from spark_jobs.skeleton.parameters import client_parser
from spark_jobs.skeleton.programs import prepare_topics, run_program, stop_request
from spark_jobs.skeleton.topics import TopicSpec

_LOG = logging.getLogger(__name__)
_BATCH_BYTES = 1 << 20
_BEGINNING_BYTES = 1024  # by which a file is recognised
_POLL_INTERVAL_S = 0.2
_FLUSH_TIMEOUT_S = 60


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class Place:
    """How far a file was read, and which one of the files that had its name."""

    offset: int = 0
    rotation: int = 0
    beginning: str = _digest(b"")  # of the bytes up to the offset, at most the first 1024


class Position:
    """The place in a file that is stored in a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "position"
        folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> Place:
        return Place(**json.loads(self._path.read_text())) if self._path.exists() else Place()

    def store(self, place: Place) -> None:
        replace_file(self._path, json.dumps(asdict(place)))


class Tail:
    """Reads the lines of a file that grows, from the stored place on; follows its name to other files."""

    def __init__(self, file: Path, position: Position, quiet_s: float = QUIET_S) -> None:
        """`quiet_s` is how long a replaced file has to be quiet before its successor is read."""
        self.file = file
        self._position = position
        self._place = position.load()
        self._content = FollowedFile(file, quiet_s)
        self._beginning = b""  # what the digest of the place is of

    def read(self) -> tuple[Place, bytes]:
        """Return complete lines, none if there are no new ones, and the place where they begin."""
        part = self._content.read(self._read_part)
        return self._place, part

    def has_stored(self, part: bytes) -> None:
        """Store that the broker has the lines that `read` returned."""
        self._beginning = (self._beginning + part)[:_BEGINNING_BYTES]
        offset = self._place.offset + len(part)
        self._place = replace(self._place, offset=offset, beginning=_digest(self._beginning))
        self._position.store(self._place)

    def close(self) -> None:
        self._content.close()

    def _read_part(self, content: FileIO) -> bytes:
        content.seek(0)
        self._beginning = content.read(min(self._place.offset, _BEGINNING_BYTES))
        is_shorter = os.fstat(content.fileno()).st_size < self._place.offset
        if is_shorter or _digest(self._beginning) != self._place.beginning:
            _LOG.warning("%s is another file than before: it is read from its start", self.file)
            # This is stored before a line is sent: lines that are sent again must have the same ids.
            self._place, self._beginning = Place(rotation=self._place.rotation + 1), b""
            self._position.store(self._place)
        content.seek(self._place.offset)
        part = content.read(_BATCH_BYTES)
        while b"\n" not in part and (more := content.read(_BATCH_BYTES)):
            part += more
        return part[: part.rfind(b"\n") + 1]


def lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield offset and text of each line in `content`, which ends with the end of a line."""
    start = 0
    while (end := content.find(b"\n", start)) >= 0:
        yield start, content[start:end].removesuffix(b"\r")
        start = end + 1


def send_new_lines(tail: Tail, topic: str, producer: Producer) -> int:
    """Send the next part of the file; return the number of lines. Raises JobError if one is not acknowledged."""
    place, part = tail.read()
    failures: list[str] = []
    count = 0
    for start, line in lines(part):
        record_id = f"{tail.file.name}/{place.rotation}/{place.offset + start}".encode()
        try:
            producer.produce(
                topic,
                line,
                headers=[(RECORD_ID, record_id)],
                on_delivery=lambda error, _: failures.append(error.str()) if error else None,
            )
        except KafkaException as error:
            reason = error.args[0].str()
            raise JobError(
                f"{tail.file}: the line of {len(line)} bytes at byte {place.offset + start}: {reason}"
            ) from error
        count += 1
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if failures or unsent:
        reason = (failures or ["no response"])[0]
        raise JobError(f"{tail.file}: {len(failures) + unsent} lines were not stored: {reason}")
    if count:
        tail.has_stored(part)
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    parser = client_parser("file_source", __doc__)
    add = parser.add_argument
    add("--file", type=Path, required=True, help="text file to read")
    add("--output", required=True, metavar="TOPIC", help="topic to write")
    add("--checkpoint", type=Path, required=True, metavar="DIR", help="local folder for the position")
    add("--once", action="store_true", help="end at the end of the file")
    parser.set_defaults(partitions=1)
    flags = parser.parse_args(arguments)

    def prepare() -> tuple[Producer, Tail]:
        flags.file.stat()
        prepare_topics(flags, [TopicSpec(flags.output, flags.partitions, flags.replication_factor)])
        settings = producer_settings(flags.bootstrap_servers, flags.kafka_option)
        producer = Producer({"enable.idempotence": True, **settings, "queue.buffering.max.messages": 10_000_000})
        return producer, Tail(flags.file, Position(flags.checkpoint), 0 if flags.once else QUIET_S)

    def work(prepared: tuple[Producer, Tail]) -> None:
        producer, tail = prepared
        stop_requested = stop_request()
        with closing(tail):
            while not stop_requested.is_set():
                if count := send_new_lines(tail, flags.output, producer):
                    _LOG.info("%d lines of %s are in %s", count, flags.file, flags.output)
                elif flags.once:
                    break
                else:
                    stop_requested.wait(_POLL_INTERVAL_S)

    return run_program("file_source", prepare, work)


if __name__ == "__main__":
    sys.exit(main())
