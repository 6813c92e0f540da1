"""Stores each record once in a database: its place (topic, partition, offset) is the primary key.

    python exactly_once_by_place.py BOOTSTRAP GROUP TOPIC DATABASE [--idle-exit-s 5]

Rows and offsets are not committed together. A crash between both repeats records, and the key rejects the repeated
rows. DATABASE is a file of SQLite. Needs confluent-kafka.
"""

import argparse
import sqlite3
import time

from confluent_kafka import Consumer

TABLE = "CREATE TABLE IF NOT EXISTS records (topic, part, place, value, PRIMARY KEY (topic, part, place))"


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "topic", "database"):
        parser.add_argument(name)
    parser.add_argument("--idle-exit-s", type=float)
    flags = parser.parse_args()
    database = sqlite3.connect(flags.database)
    database.execute(TABLE)
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": flags.bootstrap, "group.id": flags.group, **settings})
    consumer.subscribe([flags.topic])
    last = time.monotonic()
    while flags.idle_exit_s is None or time.monotonic() - last < flags.idle_exit_s:
        messages = [message for message in consumer.consume(500, 0.2) if not message.error()]
        if not messages:
            continue
        last = time.monotonic()
        rows = [(each.topic(), each.partition(), each.offset(), each.value()) for each in messages]
        with database:
            database.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)", rows)
        consumer.commit(asynchronous=False)
    consumer.close()
    database.close()


if __name__ == "__main__":
    main()
