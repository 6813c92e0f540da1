"""Nodes in the metadata store that are damaged or not Kafka's: the broker starts all the same, or says which one stops
it; the rest of the cluster is served.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.environment import environment_of_this_machine
from broker.server import Server, StartupError
from config.broker import BrokerConfig
from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.store.state_store import parent_path
from controller.tree import paths
from controller.tree.registration import ensure_paths
from protocol.errors import KafkaError
from tests.support.in_process_cluster import until

NONSENSE = b"\xff{nonsense"
TOPIC = b'{"partitions":{"0":[1]},"topic_id":"pSEGtdSkRXmCBClYmmbVaw","version":3}'


async def _with(path: str) -> MemoryStore:
    """Return a session with a tree that holds one good topic, and nonsense at `path`."""
    store = MemoryStore(MemoryTree())
    await store.open()
    await ensure_paths(store)
    await store.create(paths.topic_path("good"), TOPIC)
    missing = [path]
    while parent_path(missing[-1]) not in store.tree.entries:
        missing.append(parent_path(missing[-1]))
    for parent in reversed(missing[1:]):
        await store.create(parent)
    if path in store.tree.entries:
        await store.set(path, NONSENSE)
    else:
        await store.create(path, NONSENSE)
    return store


def _server(tree: MemoryTree, folder: Path) -> Server:
    config = BrokerConfig.from_properties(
        {
            "broker.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(folder),
            "zookeeper.connect": "memory",
            "zookeeper.session.timeout.ms": "500",
            "controlled.shutdown.enable": "false",
            "log.cleaner.enable": "false",
        }
    )
    return Server(config, replace(environment_of_this_machine(), new_cluster_store=lambda _: MemoryStore(tree)))


async def _serve_for_a_moment(tree: MemoryTree, folder: Path) -> None:
    """Start a broker, wait until it serves, and stop it."""
    server = _server(tree, folder)
    await server.start()
    try:
        await _until_served(server)
    finally:
        await server.stop()


async def _until_served(server: Server) -> None:
    await until(lambda: server._services.metadata_cache.has_leaders("good", 1))


IGNORED = [
    ("/brokers/ids/9", "ignoring a node that cannot be decoded: /brokers/ids/9"),
    ("/brokers/ids/x", ""),
    ("/brokers/topics/t", "ignoring a node that cannot be decoded: /brokers/topics/t"),
    ("/brokers/topics/good/partitions/zero", ""),
    ("/config/topics/good", "ignoring the overrides of topic good"),
    ("/config/brokers/1", "ignoring stored dynamic settings: /config/brokers/1"),
    ("/config/brokers/<default>", "ignoring stored dynamic settings: /config/brokers/<default>"),
    ("/config/users/alice", "ignoring settings that cannot be decoded: /config/users/alice"),
    ("/config/changes/config_change_0000000000", ""),
    ("/config/changes/foreign", ""),
    ("/config/topics/foreign/below", ""),
    ("/admin/delete_topics/unknown", ""),
    ("/admin/reassign_partitions", "deleting the request /admin/reassign_partitions, which cannot be decoded"),
    (
        "/admin/preferred_replica_election",
        "deleting the request /admin/preferred_replica_election, which cannot be decoded",
    ),
    ("/isr_change_notification/foreign", ""),
    ("/log_dir_event_notification/foreign", ""),
    ("/isr_change_notification/foreign/below", "keeping /isr_change_notification/foreign, "),
    ("/log_dir_event_notification/foreign/below", "keeping /log_dir_event_notification/foreign, "),
    ("/admin/delete_topics/unknown/below", "keeping /admin/delete_topics/unknown, "),
    ("/admin/reassign_partitions/below", "keeping /admin/reassign_partitions, "),
    ("/feature", ""),
    ("/foreign", ""),
]


@pytest.mark.parametrize(("path", "line"), IGNORED)
async def test_broker_starts_and_serves_the_rest(
    path: str, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await _with(path)
    await _serve_for_a_moment(store.tree, tmp_path)
    assert line in caplog.text
    assert "Traceback" not in caplog.text
    await store.create(paths.CONFIG_CHANGE_PREFIX, b"{}", sequential=True)


@pytest.mark.parametrize("path", ["/controller", "/controller_epoch", "/migration"])
async def test_election_waits_until_the_node_is_repaired(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await _with(path)
    server = _server(store.tree, tmp_path)
    await server.start()
    try:
        assert not server._services.controller.is_active
        assert f"resigning because ControllerChanged could not be processed: {path}: " in caplog.text
        assert "Traceback" not in caplog.text
        await store.delete(path)
        await _until_served(server)
    finally:
        await server.stop()


async def test_registration_with_an_unknown_security_protocol_does_not_stop_the_controller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await _with("/brokers/ids/9")
    registration = b'{"version":4,"endpoints":["C://h:1"],"listener_security_protocol_map":{"C":"QUIC"},"host":"h"}'
    await store.set("/brokers/ids/9", registration)
    await _serve_for_a_moment(store.tree, tmp_path)
    assert "ignoring a node that cannot be decoded: /brokers/ids/9: listener C: security protocol" in caplog.text
    assert "Traceback" not in caplog.text


async def test_state_that_cannot_be_decoded_concerns_its_partition_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await _with("/brokers/topics/bad/partitions/0/state")
    await store.set(paths.topic_path("bad"), TOPIC.replace(b"pSEG", b"aSEG"))
    server = _server(store.tree, tmp_path)
    await server.start()
    try:
        await _until_served(server)
        assert "cannot elect a leader for bad-0: it has no readable state" in caplog.text
    finally:
        await server.stop()


async def test_cluster_id_that_cannot_be_decoded_stops_the_start(tmp_path: Path) -> None:
    store = await _with("/cluster/id")
    server = _server(store.tree, tmp_path)
    with pytest.raises(StartupError, match=r"^/cluster/id: "):
        await server.start()
    await server.stop()
    assert (await store.get("/cluster/id")).data == NONSENSE


async def test_damaged_block_of_producer_ids_fails_the_request_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await _with("/latest_producer_id_block")
    server = _server(store.tree, tmp_path)
    await server.start()
    try:
        with pytest.raises(KafkaError):
            await server._services.controller_link.allocate_producer_ids()
        assert server._services.controller.is_active
        assert "no producer id can be allocated: /latest_producer_id_block" in caplog.text
        await store.set("/latest_producer_id_block", None)
        assert await server._services.controller_link.allocate_producer_ids() == range(1000)
    finally:
        await server.stop()
