"""metadata-copy between a real ZooKeeper and the embedded store: copied nodes, excluded nodes, rejected targets."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from controller.embedded.sqlite_store import METADATA_FILE, SqliteStore
from controller.tree import paths
from controller.tree.registration import ensure_cluster_id
from tests.support.manual_clock import ManualClock
from tests.support.parts import skip_when_unavailable
from tests.support.processes import closed_port
from tests.support.zookeeper import ZooKeeperProcess
from tests.tools.conftest import Outcome, RunTool
from tools.launch.coordination_thread import CoordinationThread
from tools.zookeeper import metadata_copy

CLUSTER = b'{"version":"1","id":"7ym0r3ycTc-XAnwnQmXzjg"}'
TOPIC = b'{"partitions":{"0":[0]},"topic_id":"pSEGtdSkRXmCBClYmmbVaw","version":3}'
# The nodes of a Kafka cluster, parents first.
NODES: Mapping[str, bytes | None] = {
    "/admin": None,
    "/brokers": None,
    "/brokers/ids": None,
    "/brokers/seqid": None,
    "/brokers/topics": None,
    "/brokers/topics/t": TOPIC,
    "/cluster": None,
    "/cluster/id": CLUSTER,
    "/config": None,
    "/config/changes": None,
    "/config/topics": None,
    "/config/topics/t": b'{"version":1,"config":{}}',
    "/config/users": b"",
    "/controller_epoch": b"4",
    "/feature_levels": b'{"features":{"transaction.version":{"max_version_level":1}},"version":2,"status":1}',
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process


@pytest.fixture
def client(server: ZooKeeperProcess) -> Iterator[KazooClient]:
    """A client of an empty ZooKeeper."""
    client = KazooClient(server.connect)
    client.start()
    for name in client.get_children("/"):
        if name != "zookeeper":
            client.delete(f"/{name}", recursive=True)
    yield client
    client.stop()
    client.close()


def put(client: KazooClient, nodes: Mapping[str, bytes | None], below: str = "") -> None:
    if below:
        client.create(below, None)
    for path, data in nodes.items():
        client.create(below + path, data)


def zookeeper_tree(client: KazooClient, path: str = "/") -> dict[str, bytes | None]:
    """Return all nodes except ZooKeeper's own."""
    found: dict[str, bytes | None] = {}
    for name in sorted(client.get_children(path)):
        child = f"{path.rstrip('/')}/{name}"
        if child != "/zookeeper":
            found[child] = client.get(child)[0]
            found |= zookeeper_tree(client, child)
    return found


def embedded_tree(*folders: Path) -> dict[str, bytes | None]:
    async def read() -> dict[str, bytes | None]:
        store = SqliteStore([folder / METADATA_FILE for folder in folders], ManualClock())
        await store.open()
        found: dict[str, bytes | None] = {}
        pending = ["/"]
        while pending:
            path = pending.pop()
            found[path] = (await store.get(path)).data
            pending += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
        await store.close()
        return found

    return {path: data for path, data in asyncio.run(read()).items() if path != "/"}


def make_cluster(*folders: Path) -> str:
    async def make() -> str:
        store = SqliteStore([folder / METADATA_FILE for folder in folders], ManualClock())
        await store.open()
        cluster_id = await ensure_cluster_id(store, Random(1))
        await store.close()
        return cluster_id

    return asyncio.run(make())


def test_metadata_survives_a_copy_in_both_directions(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path
) -> None:
    put(client, NODES)
    to_folder = ("--from-zookeeper", server.connect, "--to-log-dir", str(tmp_path))
    copied = run(metadata_copy.main, *to_folder)
    assert copied.status == 0, copied.stderr
    assert copied.stdout.startswith("Copied 1 topics of cluster 7ym0r3ycTc-XAnwnQmXzjg from ZooKeeper 127.0.0.1:")
    assert embedded_tree(tmp_path) == NODES
    to_chroot = ("--from-log-dir", str(tmp_path), "--to-zookeeper", f"{server.connect}/a/chroot")
    assert run(metadata_copy.main, *to_chroot).status == 0
    assert zookeeper_tree(client, "/a/chroot") == {f"/a/chroot{path}": data for path, data in NODES.items()}


def test_metadata_of_a_cluster_on_one_machine_moves_to_an_ensemble_and_back(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path
) -> None:
    put(client, NODES)
    cluster = tmp_path / "cluster"
    to_cluster = run(metadata_copy.main, "--from-zookeeper", server.connect, "--to-cluster", str(cluster))
    assert to_cluster.status == 0, to_cluster.stderr
    assert run(metadata_copy.main, "--from-cluster", str(cluster), "--to-log-dir", str(tmp_path)).status == 0
    assert embedded_tree(tmp_path) == NODES
    back = run(metadata_copy.main, "--from-cluster", str(cluster), "--to-zookeeper", f"{server.connect}/back")
    assert back.stdout.startswith("Copied 1 topics of cluster 7ym0r3ycTc-XAnwnQmXzjg from ")
    assert zookeeper_tree(client, "/back") == {f"/back{path}": data for path, data in NODES.items()}


def test_cluster_that_runs_or_does_not_exist_is_not_copied(run: RunTool, tmp_path: Path) -> None:
    missing = run(metadata_copy.main, "--from-cluster", str(tmp_path), "--to-log-dir", str(tmp_path / "to"))
    file = tmp_path / "coordination" / "coordination.sqlite"
    assert missing == Outcome(
        1, "", f"Error: {file} does not exist, expected the folder of a cluster of kafka-cluster-start\n"
    )
    running = CoordinationThread(file.parent, "127.0.0.1", 0)
    running.spawn()
    refused = run(metadata_copy.main, "--from-cluster", str(tmp_path), "--to-log-dir", str(tmp_path / "to"))
    running.stop()
    assert refused == Outcome(
        1,
        "",
        f"Error: {file} cannot be used: database is locked. If kafka-cluster-start runs on it, stop it first\n",
    )


def test_the_target_becomes_equal_to_the_source(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path
) -> None:
    put(client, NODES)
    arguments = ("--from-zookeeper", server.connect, "--to-log-dir", str(tmp_path))
    assert run(metadata_copy.main, *arguments).status == 0
    client.delete("/brokers/topics/t")
    client.create("/brokers/topics/u", TOPIC)
    client.set("/controller_epoch", b"9")
    for _ in range(2):
        assert run(metadata_copy.main, *arguments).status == 0
        assert embedded_tree(tmp_path) == zookeeper_tree(client)


def test_copy_exceeds_one_batch_of_operations(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path
) -> None:
    large = {f"/consumers/{number}": bytes(100_000) for number in range(12)}
    put(client, {**NODES, "/consumers": None, **large}, "/one")
    many = {f"/one/config/topics/t{number}": b"{}" for number in range(450)}
    transaction = client.transaction()
    for path, data in many.items():
        transaction.create(path, data)
    transaction.commit()
    to_folder = ("--from-zookeeper", f"{server.connect}/one", "--to-log-dir", str(tmp_path))
    assert run(metadata_copy.main, *to_folder).status == 0
    back = run(metadata_copy.main, "--from-log-dir", str(tmp_path), "--to-zookeeper", f"{server.connect}/two")
    assert back.status == 0, back.stderr
    moved = {path.replace("/two", "/one", 1): data for path, data in zookeeper_tree(client, "/two").items()}
    assert moved == zookeeper_tree(client, "/one")


def test_ephemeral_nodes_and_notifications_are_not_copied(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path
) -> None:
    """Ephemeral nodes, notifications, and nodes of other systems, which stay unchanged in the target."""
    put(client, NODES)
    client.create("/controller", b"{}", ephemeral=True)
    client.create(paths.CONFIG_CHANGE_PREFIX, b"{}", sequence=True)
    client.create("/hbase", b"of another system")
    to_folder = ("--from-zookeeper", server.connect, "--to-log-dir", str(tmp_path))
    assert run(metadata_copy.main, *to_folder).status == 0
    assert embedded_tree(tmp_path) == NODES
    before = zookeeper_tree(client)
    back = ("--from-log-dir", str(tmp_path), "--to-zookeeper", server.connect)
    assert run(metadata_copy.main, *back).status == 0
    assert zookeeper_tree(client) == before


def test_generated_broker_ids_are_not_reused(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path
) -> None:
    put(client, NODES)
    for _ in range(3):
        client.set(paths.BROKER_SEQUENCE_ID, b"")
    to_folder = ("--from-zookeeper", server.connect, "--to-log-dir", str(tmp_path))
    assert run(metadata_copy.main, *to_folder).status == 0
    back = ("--from-log-dir", str(tmp_path), "--to-zookeeper", f"{server.connect}/back")
    assert run(metadata_copy.main, *back).status == 0
    assert client.get(f"/back{paths.BROKER_SEQUENCE_ID}")[1].version == 3


def test_another_clusters_metadata_is_not_overwritten(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path
) -> None:
    put(client, NODES)
    cluster_id = make_cluster(tmp_path)
    before = embedded_tree(tmp_path)
    refused = run(metadata_copy.main, "--from-zookeeper", server.connect, "--to-log-dir", str(tmp_path))
    assert refused.status == 1
    assert cluster_id in refused.stderr
    assert "7ym0r3ycTc-XAnwnQmXzjg" in refused.stderr
    assert embedded_tree(tmp_path) == before


@pytest.mark.parametrize("place", ["source", "target"])
def test_running_brokers_prevent_a_copy(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path, place: str
) -> None:
    put(client, NODES)
    to_folder = ("--from-zookeeper", server.connect, "--to-log-dir", str(tmp_path))
    back = ("--from-log-dir", str(tmp_path), "--to-zookeeper", server.connect)
    assert run(metadata_copy.main, *to_folder).status == 0
    client.create("/brokers/ids/3", b"{}", ephemeral=True)
    refused = run(metadata_copy.main, *(to_folder if place == "source" else back))
    assert refused.status == 1
    assert "brokers 3 are registered" in refused.stderr


def test_a_source_that_cannot_be_read_whole_is_not_copied(
    run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path
) -> None:
    """A node without permission to read it is not missing: the copy would delete it in the target."""
    put(client, NODES)
    to_folder = ("--from-zookeeper", server.connect, "--to-log-dir", str(tmp_path))
    assert run(metadata_copy.main, *to_folder).status == 0
    client.set_acls("/config/users", [make_acl("world", "anyone", write=True, admin=True)])
    try:
        refused = run(metadata_copy.main, *to_folder)
    finally:
        client.set_acls("/config/users", OPEN_ACL_UNSAFE)
    assert refused == (1, "", "Error: Insufficient permission : /config/users\n")
    assert embedded_tree(tmp_path) == NODES


def test_an_ensemble_that_is_not_there_is_named(run: RunTool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tools.zookeeper.znode_trees.REACH_TIMEOUT_S", 0.2)
    make_cluster(tmp_path)
    with closed_port() as port:
        refused = run(metadata_copy.main, "--from-log-dir", str(tmp_path), "--to-zookeeper", f"127.0.0.1:{port}/a")
    assert (refused.status, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"Error: Unable to connect to ZooKeeper 127.0.0.1:{port} within 0.2 s")


def test_a_locked_store_is_reported(run: RunTool, tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / METADATA_FILE)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    refused = run(metadata_copy.main, "--from-log-dir", str(tmp_path), "--to-log-dir", str(tmp_path / "other"))
    holder.close()
    assert refused.status == 1
    assert "in use by another process" in refused.stderr


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in "abcd"]
    for folder in found:
        folder.mkdir()
    return found


def test_all_copies_of_the_target_are_written(run: RunTool, folders: list[Path]) -> None:
    a, b, c, d = folders
    cluster_id = make_cluster(a, b)
    copied = run(metadata_copy.main, "--from-log-dir", f"{a},{b}", "--to-log-dir", f"{c},{d}")
    assert copied.status == 0, copied.stderr
    assert f"of cluster {cluster_id} from {a / METADATA_FILE}, {b / METADATA_FILE} to {c / METADATA_FILE}, {d}" in (
        copied.stdout
    )
    trees = [embedded_tree(folder) for folder in folders]
    assert trees[0] == trees[1] == trees[2] == trees[3] != {}


def test_reading_an_older_copy_does_not_give_it_precedence(run: RunTool, folders: list[Path]) -> None:
    a, b, c, _ = folders
    make_cluster(a, b)

    async def write_to_one() -> None:
        store = SqliteStore([a / METADATA_FILE], ManualClock())
        await store.open()
        await store.create("/newer")
        await store.close()

    asyncio.run(write_to_one())
    assert run(metadata_copy.main, "--from-log-dir", str(b), "--to-log-dir", str(c)).status == 0
    assert "/newer" in embedded_tree(a, b)
    assert not list(b.glob("*.1"))


def test_empty_source_is_reported(run: RunTool, server: ZooKeeperProcess, client: KazooClient, tmp_path: Path) -> None:
    for source in (("--from-zookeeper", server.connect), ("--from-log-dir", str(tmp_path / "nowhere"))):
        refused = run(metadata_copy.main, *source, "--to-log-dir", str(tmp_path))
        assert refused.status == 1
        assert refused.stderr.startswith("Error: ")
        assert source[1] in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--from-log-dir", "a"), "Please specify either --to-zookeeper, --to-log-dir, --to-cluster or --to-kraft"),
        (
            ("--to-log-dir", "a"),
            "Please specify either --from-zookeeper, --from-log-dir, --from-cluster or --from-kraft",
        ),
        (
            ("--from-log-dir", "a", "--from-zookeeper", "b", "--to-log-dir", "c"),
            'Option "[from-zookeeper]" can\'t be used with option "[from-log-dir]"',
        ),
    ],
)
def test_invalid_options_are_usage_errors(run: RunTool, arguments: tuple[str, ...], complaint: str) -> None:
    outcome = run(metadata_copy.main, *arguments)
    assert outcome.status == 1
    assert complaint in outcome.stderr
