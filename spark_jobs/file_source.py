"""Sends the lines of a text file to a topic, and the lines that are appended later: FileStreamSource of Connect.

One record per line, without its end; empty lines are records too. A last line without an end waits until its end is
written. `--checkpoint` is a folder of this machine; it holds the byte offset that the broker has acknowledged, and
the job continues there. A file that has become shorter is read from its start. While a log is rotated, its file may be
missing for a time. Lines have no key: their order is kept by a topic with one partition, as --create-topics makes it.

It is a program on the machine of the file and starts no Spark.

Delivery: at-least-once, from the stored byte offset on. The header `record-id` is `FILE/BYTE OFFSET`, so that readers
can drop duplicates (U).
"""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import Producer

from spark_jobs.skeleton.clients import producer_settings
from spark_jobs.skeleton.delivery import RECORD_ID
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.parameters import client_parser
from spark_jobs.skeleton.programs import prepare_topics, run_program, stop_request
from spark_jobs.skeleton.topics import TopicSpec

_LOG = logging.getLogger(__name__)
_BATCH_BYTES = 1 << 20
_POLL_INTERVAL_S = 0.2
_FLUSH_TIMEOUT_S = 60


class Position:
    """The byte offset in a file that is stored in a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "position"
        folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> int:
        return int(self._path.read_text()) if self._path.exists() else 0

    def store(self, offset: int) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(str(offset))
        os.replace(partial, self._path)


def lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield offset and text of each complete line in `content`."""
    start = 0
    while (end := content.find(b"\n", start)) >= 0:
        yield start, content[start:end].removesuffix(b"\r")
        start = end + 1


def send_new_lines(file: Path, topic: str, position: Position, producer: Producer) -> int:
    """Send the next part of the file; return the number of lines. Raises JobError if one is not acknowledged."""
    offset = position.load()
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return 0
    if size < offset:
        _LOG.warning("%s is shorter than %d bytes: it is read from its start", file, offset)
        offset = 0
    with file.open("rb") as content:
        content.seek(offset)
        part = content.read(_BATCH_BYTES)
        while b"\n" not in part and (more := content.read(_BATCH_BYTES)):
            part += more
    failures: list[str] = []
    count = 0
    for start, line in lines(part):
        record_id = f"{file.name}/{offset + start}".encode()
        producer.produce(
            topic,
            line,
            headers=[(RECORD_ID, record_id)],
            on_delivery=lambda error, _: failures.append(error.str()) if error else None,
        )
        count += 1
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if failures or unsent:
        raise JobError(f"{file}: {len(failures) + unsent} lines were not stored: {(failures or ['no response'])[0]}")
    if count:
        position.store(offset + part.rindex(b"\n") + 1)
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

    def prepare() -> tuple[Producer, Position]:
        flags.file.stat()
        prepare_topics(flags, [TopicSpec(flags.output, flags.partitions, flags.replication_factor)])
        settings = producer_settings(flags.bootstrap_servers, flags.kafka_option)
        producer = Producer({"enable.idempotence": True, **settings, "queue.buffering.max.messages": 10_000_000})
        return producer, Position(flags.checkpoint)

    def work(prepared: tuple[Producer, Position]) -> None:
        producer, position = prepared
        stop_requested = stop_request()
        while not stop_requested.is_set():
            if count := send_new_lines(flags.file, flags.output, position, producer):
                _LOG.info("%d lines of %s are in %s", count, flags.file, flags.output)
            elif flags.once:
                break
            else:
                stop_requested.wait(_POLL_INTERVAL_S)

    return run_program("file_source", prepare, work)


if __name__ == "__main__":
    sys.exit(main())
