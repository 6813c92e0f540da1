"""The topic that all workers read, on a broker: what has been read when a refresh returns."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.stores.topic_log import TopicLog
from tests.support.broker import BrokerProcess

TOPIC = "offsets"


def transaction(client: dict[str, str], name: str) -> Producer:
    """Return a producer whose open transaction has one record, with its name as the key."""
    producer = Producer({**client, "transactional.id": name})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(TOPIC, name, name)
    assert producer.flush(10) == 0
    return producer


def test_a_refresh_waits_for_what_was_committed_behind_an_open_transaction(tmp_path: Path) -> None:
    seen: list[bytes | None] = []
    with BrokerProcess(tmp_path, {"transaction.state.log.num.partitions": "1"}) as broker:
        client = {"bootstrap.servers": broker.bootstrap}
        log = TopicLog(
            TOPIC,
            client=client,
            consumer={**client, "isolation.level": "read_committed"},
            producer=client,
            partitions=1,
            replication_factor=1,
            config={},
            on_record=lambda key, _value, _offset: seen.append(key),
        )
        log.start()
        slow = transaction(client, "slow")
        transaction(client, "fast").commit_transaction(10)
        with pytest.raises(ConnectError, match=r"not read to its end within 0\.5 s"):
            log.read_to_end(timeout_s=0.5)
        slow.commit_transaction(10)
        log.read_to_end()
        assert seen == [b"slow", b"fast"]
        log.stop()
