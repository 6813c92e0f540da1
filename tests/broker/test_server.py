"""What keeps a broker from starting is said in one line that names it."""

import re
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from broker.environment import environment_of_this_machine
from broker.network.channel import Channel
from broker.server import Server, StartupError
from broker.settings.config_changes import Alteration, KeyChange, Operation, ResourceType
from config.broker import BrokerConfig
from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.embedded.sqlite_store import METADATA_FILE
from controller.zookeeper.settings import ZooKeeperSettings
from protocol.messages.metadata import MetadataRequest
from tests.support.in_process import reason_not_to_start, running_broker
from tests.support.processes import closed_port


def settings(folder: Path, **overrides: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "broker.id": "0",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(folder),
            **{key.replace("_", "."): value for key, value in overrides.items()},
        }
    )


async def test_damaged_metadata_store_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / METADATA_FILE).write_bytes(b"this is no database" * 100)
    assert METADATA_FILE in await reason_not_to_start(settings(tmp_path))


async def test_connection_limit_for_an_unknown_host_stops_the_start(tmp_path: Path) -> None:
    config = settings(tmp_path, max_connections_per_ip_overrides="no-such-host.invalid:5")
    reason = await reason_not_to_start(config)
    assert "max.connections.per.ip.overrides" in reason
    assert "no-such-host.invalid" in reason


@pytest.mark.parametrize(
    ("protocol", "key"),
    [("SSL", "ssl.keystore.location"), ("SASL_SSL", "sasl.jaas.config"), ("SASL_PLAINTEXT", "GSSAPI")],
)
async def test_listener_without_the_settings_of_its_protection_stops_the_start(
    tmp_path: Path, protocol: str, key: str
) -> None:
    config = settings(tmp_path, listeners=f"{protocol}://127.0.0.1:0", security_inter_broker_protocol=protocol)
    reason = await reason_not_to_start(config)
    assert protocol in reason
    assert key in reason


async def test_control_plane_with_another_protocol_stops_the_start(tmp_path: Path) -> None:
    config = settings(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        sasl_enabled_mechanisms="SCRAM-SHA-256",
        control_plane_listener_name="SASL_PLAINTEXT",
    )
    assert "control.plane.listener.name" in await reason_not_to_start(config)


async def test_unsupported_group_protocol_stops_the_start(tmp_path: Path) -> None:
    reason = await reason_not_to_start(settings(tmp_path, group_coordinator_rebalance_protocols="consumer"))
    assert "group.coordinator.rebalance.protocols" in reason


async def test_metrics_address_in_use_stops_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reason = await reason_not_to_start(settings(tmp_path / "data", metrics_http_listener=f"127.0.0.1:{port}"))
    assert f"metrics.http.listener cannot listen on 127.0.0.1:{port}" in reason
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("key", ["zookeeper.set.acl"])
async def test_acls_of_nodes_without_an_identity_stop_the_start(tmp_path: Path, key: str) -> None:
    reason = await reason_not_to_start(
        settings(tmp_path, zookeeper_connect="127.0.0.1:1", **{key.replace(".", "_"): "true"})
    )
    assert f"Invalid value true for configuration {key}" in reason


async def test_zookeeper_that_does_not_respond_stops_the_start(tmp_path: Path) -> None:
    with closed_port() as port:
        connect = f"127.0.0.1:{port}"
        config = settings(tmp_path, zookeeper_connect=connect, zookeeper_connection_timeout_ms="200")
        reason = await reason_not_to_start(config)
    assert f"no connection to ZooKeeper at {connect} (zookeeper.connect) within 200 ms" in reason


async def test_broker_without_a_clusters_store_refuses_zookeeper_connect(tmp_path: Path) -> None:
    environment = replace(environment_of_this_machine(), new_cluster_store=None)
    server = Server(settings(tmp_path, zookeeper_connect="127.0.0.1:2181"), environment)
    with pytest.raises(StartupError, match=r"zookeeper\.connect"):
        await server.start()
    await server.stop()


async def test_broker_with_zookeeper_connect_registers_in_the_store_of_its_cluster(tmp_path: Path) -> None:
    tree = MemoryTree()
    asked: list[ZooKeeperSettings] = []

    def new_cluster_store(zookeeper: ZooKeeperSettings) -> MemoryStore:
        asked.append(zookeeper)
        return MemoryStore(tree)

    environment = replace(environment_of_this_machine(), new_cluster_store=new_cluster_store)
    server = Server(settings(tmp_path, zookeeper_connect="a:1,b:2/milena"), environment)
    await server.start()
    try:
        assert "/brokers/ids/0" in tree.entries
        assert not (tmp_path / METADATA_FILE).exists()
    finally:
        await server.stop()
    assert [one.connect for one in asked] == ["a:1,b:2/milena"]
    assert "/brokers/ids/0" not in tree.entries


async def test_second_broker_on_the_same_directory_does_not_start(tmp_path: Path) -> None:
    first = Server(settings(tmp_path), environment_of_this_machine())
    await first.start()
    try:
        assert str(tmp_path) in await reason_not_to_start(settings(tmp_path))
    finally:
        await first.stop()


async def test_data_without_its_metadata_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=7ym0r3ycTc-XAnwnQmXzjg\n")
    for _ in range(2):
        reason = await reason_not_to_start(settings(tmp_path))
        assert "7ym0r3ycTc-XAnwnQmXzjg" in reason
        assert "metadata-copy" in reason


@pytest.mark.parametrize("content", ["version=0\nbroker.id=0\n", "version=0\n"])
async def test_meta_properties_of_an_early_release_are_completed(tmp_path: Path, content: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    server = Server(settings(tmp_path), environment_of_this_machine())
    await server.start()
    await server.stop()
    assert re.fullmatch(r"version=0\nbroker.id=0\ncluster.id=[\w-]{22}\n", (tmp_path / "meta.properties").read_text())


async def test_data_of_an_early_release_without_its_metadata_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=0\n")
    (tmp_path / "t-0").mkdir()
    assert "cluster (without cluster.id)" in await reason_not_to_start(settings(tmp_path))


async def test_data_of_another_broker_stops_the_start(tmp_path: Path) -> None:
    first = Server(settings(tmp_path), environment_of_this_machine())
    await first.start()
    await first.stop()
    config = BrokerConfig.from_properties(
        {"broker.id": "5", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    )
    reason = await reason_not_to_start(config)
    assert "broker.id" in reason
    assert "5" in reason


async def test_control_plane_is_registered_and_hidden_from_other_listeners(tmp_path: Path) -> None:
    listeners = {
        "listeners": "CONTROL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "advertised.listeners": "CONTROL://127.0.0.1:7001,PLAINTEXT://127.0.0.1:7002",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
    }
    async with running_broker(tmp_path, listeners) as broker:
        for listener, port in (("PLAINTEXT", 7002), ("CONTROL", 7001)):
            broker.channel = Channel("127.0.0.1", 50_000, listener)
            response = await broker.ask(MetadataRequest(topics=[]))
            assert [(node.host, node.port) for node in response.brokers] == [("127.0.0.1", port)]
        # What the controller read from this broker's registration.
        assert broker.services.metadata_cache.brokers[0].endpoints == {
            "CONTROL": ("127.0.0.1", 7001),
            "PLAINTEXT": ("127.0.0.1", 7002),
        }


async def test_sizes_of_the_thread_pools_change_at_run_time(tmp_path: Path) -> None:
    server = Server(settings(tmp_path, num_io_threads="2", background_threads="3"), environment_of_this_machine())
    await server.start()
    try:
        changes = server._services.config_changes
        sizes = {"num.io.threads": "4", "background.threads": "5"}
        alteration = Alteration(
            ResourceType.BROKER, "", [KeyChange(key, Operation.SET, size) for key, size in sizes.items()]
        )
        assert await changes.alter([alteration], validate_only=False) == [None]
        for pool, size in ((server._blocking, 4), (server._background, 5)):
            together = threading.Barrier(size)
            results = [pool.submit(together.wait, 10) for _ in range(size)]
            assert sorted(result.result() for result in results) == list(range(size))
    finally:
        await server.stop()


@pytest.mark.parametrize("is_enabled", ["true", "false"])
async def test_broker_without_a_cleaner_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_enabled: str
) -> None:
    server = Server(settings(tmp_path, log_cleaner_enable=is_enabled), environment_of_this_machine())
    await server.start()
    await server.stop()
    assert ("compacted topics, __consumer_offsets among them, only grow" in caplog.text) is (is_enabled == "false")
