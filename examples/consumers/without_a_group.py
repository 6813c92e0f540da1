"""Reads all partitions of a topic without a consumer group; keeps its positions in a file.

    python without_a_group.py BOOTSTRAP TOPIC POSITIONS [--idle-exit-s 5]

It prints each value, and continues at the positions of the file when it is started again. The file is replaced after
each batch, so a crash repeats at most one batch. Partitions that are added later are read after the next start. Needs
confluent-kafka.
"""

import argparse
import json
import os
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic"):
        parser.add_argument(name)
    parser.add_argument("positions", type=Path)
    parser.add_argument("--idle-exit-s", type=float)
    flags = parser.parse_args()
    positions = json.loads(flags.positions.read_text()) if flags.positions.exists() else {}
    # librdkafka requires a group id, and does not join the group when partitions are assigned.
    settings = {"group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": flags.bootstrap, **settings})
    partitions = consumer.list_topics(flags.topic, 10).topics[flags.topic].partitions
    consumer.assign(
        [TopicPartition(flags.topic, each, positions.get(str(each), OFFSET_BEGINNING)) for each in partitions]
    )
    last = time.monotonic()
    while flags.idle_exit_s is None or time.monotonic() - last < flags.idle_exit_s:
        messages = [message for message in consumer.consume(500, 0.2) if not message.error()]
        for message in messages:
            print((message.value() or b"").decode(errors="replace"), flush=True)
            positions[str(message.partition())] = message.offset() + 1
        if messages:
            last = time.monotonic()
            new = flags.positions.with_suffix(".new")
            new.write_text(json.dumps(positions))
            os.replace(new, flags.positions)
    consumer.close()


if __name__ == "__main__":
    main()
