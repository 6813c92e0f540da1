"""The contents of a broker whose files are dumped: every codec, several segments, committed offsets of a group."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# With these the records below roll several segments and put many entries into every index.
TOPIC_CONFIGS = {"segment.bytes": "16384", "index.interval.bytes": "1024", "retention.ms": "-1"}
RECORDS_PER_CODEC = 300
TOPIC = "dumped"
GROUP = "dumpers"
TIMEOUT_S = 30
FIRST_TIMESTAMP = 1_700_000_000_000


def fill(bootstrap: str) -> None:
    """Fill the broker. `TOPIC` must exist, with `TOPIC_CONFIGS`."""
    produce(bootstrap)
    commit_in_a_group(bootstrap)


def values() -> list[tuple[str, str]]:
    """Codec and value of every record, in the order of their offsets. Digits compress little, so that segments roll."""
    return [
        (codec, f"{codec}-{index}-" + "".join(str((index * 7919 + step * 104729) % 9973) for step in range(20)))
        for codec in CODECS
        for index in range(RECORDS_PER_CODEC)
    ]


def produce(bootstrap: str) -> None:
    """Produce small batches, with one millisecond between records."""
    producers = {codec: producer(bootstrap, codec) for codec in CODECS}
    for offset, (codec, value) in enumerate(values()):
        producers[codec].produce(TOPIC, value.encode(), key=codec.encode(), timestamp=FIRST_TIMESTAMP + offset)
        if (offset + 1) % RECORDS_PER_CODEC == 0:
            assert producers[codec].flush(TIMEOUT_S) == 0


def producer(bootstrap: str, codec: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.codec": codec,
            "batch.num.messages": 10,
        }
    )


def commit_in_a_group(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    messages = consumer.consume(1, TIMEOUT_S)
    assert len(messages) == 1
    consumer.commit(asynchronous=False)
    consumer.close()
