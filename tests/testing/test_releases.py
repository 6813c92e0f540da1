"""Clients that meet an earlier release of Kafka."""

from __future__ import annotations

import socket

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from milena_broker.testing import Broker, BrokerError
from protocol.api import APIS
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.headers import request_header
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.releases import RELEASES, newest_versions, release_named

PATIENCE_MS = 20_000
API_VERSIONS = 18
BY_DEFAULT = {"0.8.2", "0.9", "0.10.0", "0.11", "2.8", "3.9"}
SWEEP = [
    pytest.param(release, marks=[] if release in BY_DEFAULT else [pytest.mark.soak], id=release) for release in RELEASES
]


@pytest.mark.parametrize("release", RELEASES)
def test_the_table_is_that_of_kafka_python(release: str) -> None:
    theirs = BROKER_API_VERSIONS[tuple(map(int, release.split(".")))]
    expected = {key: newest for key, (_, newest) in theirs.items() if key in APIS}
    assert newest_versions(release) == expected


def test_the_newest_release_has_every_version() -> None:
    served = newest_versions(RELEASES[-1])
    assert {key: APIS[key].with_zookeeper[-1] for key in served} == served


def test_patch_versions_name_their_release() -> None:
    named = {
        "2.8.1": "2.8",
        "0.10": "0.10.0",
        "0.10.2.1": "0.10.2",
        "0.11.0.0": "0.11",
        "3.9.1": "3.9",
        "0.8.2": "0.8.2",
    }
    assert {text: release_named(text) for text in named} == named
    assert [release_named(text) for text in ("4.0", "0.7", "", "2.80", "x")] == [None] * 5


def test_an_unknown_release_stops_the_start() -> None:
    with pytest.raises(BrokerError, match=r"Invalid value 5.0 for configuration advertised\.kafka\.version"):
        Broker(as_version="5.0").start()


@pytest.mark.parametrize("release", ["0.8.2", "0.9"])
def test_before_0_10_api_versions_closes_the_connection(release: str) -> None:
    with Broker(as_version=release) as broker, connected(broker) as connection:
        connection.sendall(framed(request_header(API_VERSIONS, 0, 5, "c")))
        assert connection.recv(1) == b""


@pytest.mark.parametrize(("release", "newest"), [("0.10.0", 0), ("2.8", 3)])
def test_later_versions_of_api_versions_get_the_newest_one_of_the_release(release: str, newest: int) -> None:
    with Broker(as_version=release) as broker, connected(broker) as connection:
        connection.sendall(framed(request_header(API_VERSIONS, 4, 5, "c")))
        size = int.from_bytes(connection.recv(4))
        response = decode(ApiVersionsResponse, 0, connection.recv(size, socket.MSG_WAITALL), 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.max_version) for api in response.api_keys] == [(API_VERSIONS, newest)]


@pytest.mark.parametrize("release", SWEEP)
def test_kafka_python_works_with_the_release_that_it_detects(release: str) -> None:
    """Detect the release as from Kafka, produce, read back, and consume in a group where the release has groups.

    Releases before 0.10 have to be named to the client, as with Kafka.
    """
    version = tuple(map(int, release.split(".")))
    named = {"api_version": version} if version < (0, 10) else {}
    has_groups = version >= (0, 9)
    with Broker(as_version=release, topics={"orders": 2}) as broker:
        settings = {"bootstrap_servers": broker.bootstrap_servers, **named}
        producer = KafkaProducer(**settings)
        for number in range(10):
            producer.send("orders", key=b"%d" % number, value=b"value %d" % number).get(PATIENCE_MS / 1000)
        producer.close()
        consumer = KafkaConsumer(
            "orders",
            group_id="readers" if has_groups else None,
            auto_offset_reset="earliest",
            consumer_timeout_ms=PATIENCE_MS,
            **settings,
        )
        assert {next(consumer).value for _ in range(10)} == {b"value %d" % number for number in range(10)}
        if has_groups:
            consumer.commit()
        consumer.close()
        assert consumer.config["api_version"] == version
        if version >= (0, 10, 1):
            admin = KafkaAdminClient(**settings)
            assert "orders" in admin.list_topics()
            admin.close()


def connected(broker: Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_MS / 1000)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4) + payload
