"""kazoo's recipes and Apache ZooKeeper's Java client work with the server."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.recipe.party import Party
from kazoo.security import make_digest_acl

from tests.support.coordination import RunningCoordination, coordination_in_memory
from tests.support.ivy import CACHE
from tests.support.java import compiled, java_command, pyspark_jars
from tests.support.parts import skip_when_unavailable
from tests.support.waiting import wait_until

TIMEOUT_S = 20.0
NewClient = Callable[[], KazooClient]


@pytest.fixture
def new_client(coordination_server: RunningCoordination, request: pytest.FixtureRequest) -> Iterator[NewClient]:
    """Return a function that connects below a node of this test."""
    clients: list[KazooClient] = []
    root = f"/{request.node.name}"

    def connect() -> KazooClient:
        client = KazooClient(coordination_server.connect)
        client.start(TIMEOUT_S)
        client.ensure_path(root)
        client.chroot = root
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.stop()
        client.close()


def test_lock_passes_from_holder_to_waiter_and_from_the_dead(new_client: NewClient) -> None:
    one, two = new_client(), new_client()
    lock, waiting = one.Lock("/lock", "one"), two.Lock("/lock", "two")
    assert lock.acquire(timeout=TIMEOUT_S)
    assert not waiting.acquire(blocking=False)
    acquired = threading.Thread(target=waiting.acquire, kwargs={"timeout": TIMEOUT_S})
    acquired.start()
    one.stop()  # its ephemeral node goes with its session
    acquired.join(TIMEOUT_S)
    assert waiting.is_acquired
    assert waiting.contenders() == ["two"]
    waiting.release()


def test_election_has_one_leader_at_a_time(new_client: NewClient) -> None:
    led: list[str] = []
    threads = [
        threading.Thread(target=new_client().Election("/election", name).run, args=(led.append, name))
        for name in ("one", "two", "three")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert sorted(led) == ["one", "three", "two"]


def test_party_knows_who_is_present(new_client: NewClient) -> None:
    one, two = new_client(), new_client()
    parties: list[Party] = [one.Party("/party", "one"), two.Party("/party", "two")]
    for party in parties:
        party.join()
    assert sorted(parties[0]) == ["one", "two"]
    parties[1].leave()
    assert list(parties[0]) == ["one"]


def test_watchers_see_data_and_children(new_client: NewClient) -> None:
    watching, writing = new_client(), new_client()
    data: list[bytes | None] = []
    children: list[list[str]] = []
    seen = threading.Event()

    @watching.DataWatch("/node")
    def _(value: bytes | None, stat: object) -> None:
        data.append(value)
        if value == b"last":
            seen.set()

    writing.create("/node", b"first")
    watching.ChildrenWatch("/node")(lambda names: children.append(sorted(names)))
    writing.create("/node/a")
    writing.set("/node", b"last")
    assert seen.wait(TIMEOUT_S)
    # The recipe asks for the children again, and calls back, in a thread of its own.
    wait_until(lambda: children[-1] == ["a"], "the child is seen", timeout_s=TIMEOUT_S)
    assert data[0] is None
    assert children[0] == []


def test_access_lists_protect_nodes_from_others(new_client: NewClient) -> None:
    owner, other = new_client(), new_client()
    owner.add_auth("digest", "user:secret")
    owner.create("/private", b"x", acl=[make_digest_acl("user", "secret", all=True)])
    assert owner.get("/private")[0] == b"x"
    with pytest.raises(NoAuthError):
        other.get("/private")
    owner.set("/private", b"y")


JAVA = Path(__file__).with_name("JavaClient.java")


def test_java_client_works_and_continues_its_session() -> None:
    with skip_when_unavailable():
        jars = pyspark_jars()
    classes = compiled(JAVA, jars, CACHE / "classes")
    with coordination_in_memory() as server:
        # Without the other jars, among them that of a logger, the program starts much sooner.
        needed = [path for pattern in ("zookeeper-*", "slf4j-api-*", "netty-*") for path in jars.glob(f"{pattern}.jar")]
        command = java_command([classes, *needed], "JavaClient", [server.connect], options=["-XX:TieredStopAtLevel=1"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as java:
            assert java.stdout is not None
            watched = java.stdout.readline().strip()
            assert watched.startswith("/java-0000000000/"), watched
            server.stop()
            server.start()
            other = KazooClient(server.connect)
            other.start(TIMEOUT_S)
            other.set(watched, b"changed")
            other.stop()
            other.close()
            output, errors = java.communicate(timeout=TIMEOUT_S)
            assert output == "done\n", output + errors[-3000:]
