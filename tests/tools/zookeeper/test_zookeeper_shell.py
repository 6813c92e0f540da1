"""zookeeper-shell with a real ZooKeeper, compared with ZooKeeper's own client, and with the embedded store."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.embedded.sqlite_store import METADATA_FILE, SqliteStore
from tests.support.java import SHORT_LIVED, java_command, pyspark_jars
from tests.support.manual_clock import ManualClock
from tests.support.parts import skip_when_unavailable
from tests.support.processes import closed_port
from tests.support.zookeeper import ZooKeeperProcess
from tests.tools.conftest import RunTool, run_module
from tools.admin import configs
from tools.zookeeper import znode_trees, zookeeper_shell
from tools.zookeeper.zookeeper_shell import parse_acl, words_of

CLIENT_TIMEOUT_S = 60
SCRIPT = (
    "create /a b",
    "create /a again",
    "create /empty",
    "get /empty",
    "create -s /a/x 1",
    "create -s /a/x 2",
    "create -e /a/e '3 4'",
    "create /a/e/below 1",
    "create -c /a/c",
    "create -c /a/c",
    "get -s /a/c",
    "create -c -s /a/c2",
    "create /no/parent 1",
    "ls /",
    "ls -R /",
    "ls -s /a",
    "get /a",
    "get -s /a/e",
    "get /nope",
    "stat /a",
    "stat /nope",
    'set /a {"json":[1,2]}',
    "get /a",
    "set -s -v 1 /a new",
    "set -v 1 /a old",
    "set /nope 1",
    "delete -v 9 /empty",
    "delete /empty",
    "delete /empty",
    "delete /a",
    "deleteall /a",
    "deleteall /a",
    "ls /",
    "create /acl data world:anyone:cr",
    "getAcl /acl",
    "getAcl -s /acl",
    "getAcl /nope",
    "set /acl new",
    "setAcl /acl world:anyone:cdrwa",
    "create /o",
    "create /o/below",
    "addauth digest bob:secret",
    "setAcl -R /o auth::cdrwa",
    "getAcl /o/below",
    "setAcl -v 9 /o world:anyone:r",
    "setAcl -s /o auth::cdrwa",
    "getAcl /o",
    "setAcl /o nonsense:me:r",
    "setAcl /nope world:anyone:r",
    "setAcl -R /o world:anyone:cdrwa",
    "sync /",
    "sync /nope",
    "ls relative",
    "ls /end/",
    "ls //double",
)
# Ids and times differ.
MASKED = re.compile(r"0x[0-9a-f]+|(?<=time = ).*")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def chroots(zookeeper: ZooKeeperProcess) -> tuple[str, str]:
    """Addresses of two empty trees."""
    client = KazooClient(zookeeper.connect)
    client.start()
    for name in ("one", "other"):
        client.delete(f"/{name}", recursive=True)
        client.create(f"/{name}", None)
    client.stop()
    client.close()
    return f"{zookeeper.connect}/one", f"{zookeeper.connect}/other"


def zookeepers_own_client(address: str, commands: Sequence[str]) -> tuple[str, str]:
    """Return what ZooKeeper's client prints on stdout and stderr, without the lines between commands."""
    command = java_command(
        [pyspark_jars() / "*"],
        "org.apache.zookeeper.ZooKeeperMain",
        ["-server", address],
        options=["-Dlog4j2.level=OFF", *SHORT_LIVED],
    )
    done = subprocess.run(
        command,
        input="\n".join((*commands, "quit", "")),
        # On a terminal that is named dumb, the client prints no prompts.
        env={name: value for name, value in os.environ.items() if name != "TERM"},
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        check=False,
    )
    lines = done.stdout.partition("[zk:")[2].partition("quit\n")[0].splitlines()
    return "\n".join(line for line in lines[1:] if not line.startswith("[zk: ")), done.stderr.strip()


def test_commands_print_what_zookeepers_own_client_prints(chroots: tuple[str, str]) -> None:
    ours, theirs = chroots
    outcome = run_module("zookeeper.zookeeper_shell", ours, stdin="\n".join(SCRIPT).encode())
    stdout, stderr = zookeepers_own_client(theirs, SCRIPT)
    assert MASKED.sub("*", outcome.stdout.strip()) == MASKED.sub("*", stdout.strip())
    assert MASKED.sub("*", outcome.stderr.removeprefix(f"Connecting to {ours}\n").strip()) == MASKED.sub("*", stderr)


def test_one_command_on_the_command_line_sets_the_exit_status(run: RunTool, chroots: tuple[str, str]) -> None:
    address, _ = chroots
    assert run(zookeeper_shell.main, address, "create", "/a", "b c").status == 0
    assert run(zookeeper_shell.main, address, "get", "/a").stdout == "b c\n"
    missing = run(zookeeper_shell.main, address, "get", "/nope")
    assert (missing.status, missing.stdout) == (1, "")
    assert missing.stderr.endswith("Node does not exist: /nope\n")


def test_unknown_command_lists_the_commands(run: RunTool, chroots: tuple[str, str]) -> None:
    outcome = run(zookeeper_shell.main, chroots[0], "frobnicate")
    assert outcome.status == 127
    assert "\tdeleteall path\n" in outcome.stderr
    assert outcome.stderr.endswith("Command not found: Command not found frobnicate\n")


@pytest.mark.parametrize("arguments", [("set", "/a"), ("set", "-v", "x", "/a", "1"), ("set", "-q", "/a", "1")])
def test_invalid_arguments_print_the_usage(run: RunTool, chroots: tuple[str, str], arguments: tuple[str, ...]) -> None:
    outcome = run(zookeeper_shell.main, chroots[0], *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.endswith("set [-s] [-v version] path data\n")


def test_names_of_older_versions_work(run: RunTool, chroots: tuple[str, str]) -> None:
    address, _ = chroots
    run(zookeeper_shell.main, address, "create", "/a")
    assert run(zookeeper_shell.main, address, "ls2", "/").stdout.startswith("[a]\ncZxid = ")
    assert run(zookeeper_shell.main, address, "rmr", "/a").status == 0
    assert run(zookeeper_shell.main, address, "ls", "/").stdout == "[]\n"


def test_last_command_of_standard_input_sets_the_exit_status(chroots: tuple[str, str]) -> None:
    assert run_module("zookeeper.zookeeper_shell", chroots[0], stdin=b"get /nope\nls /\n").status == 0
    assert run_module("zookeeper.zookeeper_shell", chroots[0], stdin=b"ls /\nget /nope\nquit\nls /\n").status == 1


def test_embedded_store_has_no_containers(run: RunTool, embedded: Path) -> None:
    outcome = run(zookeeper_shell.main, f"sqlite:{embedded}", "--write", "create", "-c", "/c")
    assert outcome == (1, "", "The embedded store has no containers: Kafka uses none\n")


def test_history_numbers_the_last_commands(embedded: Path) -> None:
    lines = "\n".join((*(f"get /{number}" for number in range(11)), "history", "quit"))
    outcome = run_module("zookeeper.zookeeper_shell", f"sqlite:{embedded}", stdin=lines.encode())
    assert outcome.status == 0
    assert outcome.stdout == "".join(f"{number} - get /{number}\n" for number in range(1, 11)) + "11 - history\n"


@pytest.mark.parametrize("command", ["history", "quit"])
def test_commands_of_a_conversation_do_nothing_alone(run: RunTool, embedded: Path, command: str) -> None:
    assert run(zookeeper_shell.main, f"sqlite:{embedded}", command) == (0, "", "")


def test_unreachable_server_is_named(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(znode_trees, "REACH_TIMEOUT_S", 0.2)
    with closed_port() as port:
        outcome = run(zookeeper_shell.main, f"127.0.0.1:{port}", "ls", "/")
    assert outcome.status == 1
    assert f"Unable to connect to ZooKeeper 127.0.0.1:{port} within 0.2 s" in outcome.stderr


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """A log directory whose store has two nodes."""

    async def fill() -> None:
        store = SqliteStore([tmp_path / METADATA_FILE], ManualClock())
        await store.open()
        await store.create("/a", b"text")
        await store.create("/a/b", None)
        await store.close()

    asyncio.run(fill())
    return tmp_path


@pytest.mark.parametrize("name", ["", METADATA_FILE])
def test_embedded_store_is_read(run: RunTool, embedded: Path, name: str) -> None:
    address = f"sqlite:{embedded / name}"
    assert run(zookeeper_shell.main, address, "ls", "-R", "/") == (0, "/\n/a\n/a/b\n", "")
    assert run(zookeeper_shell.main, address, "get", "/a/b").stdout == "null\n"
    stat = run(zookeeper_shell.main, address, "get", "-s", "/a").stdout
    assert stat.startswith("text\ncZxid = 0x")
    assert stat.endswith("dataVersion = 0\nephemeralOwner = 0x0\ndataLength = 4\nnumChildren = 1\n")
    assert run(zookeeper_shell.main, address, "get", "/x") == (1, "", "Node does not exist: /x\n")


def test_embedded_store_is_changed_on_request_alone(run: RunTool, embedded: Path) -> None:
    address = f"sqlite:{embedded}"
    before = (embedded / METADATA_FILE).read_bytes()
    refused = run(zookeeper_shell.main, address, "set", "/a", "new")
    assert refused == (1, "", "The embedded store is open for reading: --write allows changes\n")
    assert (embedded / METADATA_FILE).read_bytes() == before
    assert run(zookeeper_shell.main, address, "--write", "set", "/a", "new").status == 0
    assert run(zookeeper_shell.main, address, "get", "/a").stdout == "new\n"
    assert run(zookeeper_shell.main, address, "--write", "delete", "/a").stderr == "Node not empty: /a\n"
    assert run(zookeeper_shell.main, address, "--write", "deleteall", "/a").status == 0
    assert run(zookeeper_shell.main, address, "ls", "/").stdout == "[]\n"


def test_store_of_a_running_broker_is_not_opened(run: RunTool, embedded: Path) -> None:
    holder = SqliteStore([embedded / METADATA_FILE], ManualClock())
    with asyncio.Runner() as runner:
        runner.run(holder.open())
        outcome = run(zookeeper_shell.main, f"sqlite:{embedded}", "ls", "/")
        runner.run(holder.close())
    assert (outcome.status, outcome.stdout) == (1, "")
    assert METADATA_FILE in outcome.stderr


def test_missing_store_is_not_created(run: RunTool, tmp_path: Path) -> None:
    outcome = run(zookeeper_shell.main, f"sqlite:{tmp_path}", "ls", "/")
    assert outcome.status == 1
    assert "does not exist, expected a broker's log directory" in outcome.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tool", [(zookeeper_shell.main,), (configs.main, "--zookeeper")], ids=["shell", "configs"])
def test_address_without_a_directory_is_refused(run: RunTool, tool: tuple[Any, ...]) -> None:
    main, *options = tool
    outcome = run(main, *options, "sqlite: ,", "--describe", "--entity-type", "topics")
    assert outcome.status == 1
    assert "' ,' names no log directory, expected a broker's log.dirs" in outcome.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls /a", ["ls", "/a"]),
        ("  set /a 'b c' ", ["set", "/a", "b c"]),
        ('set /a {"b":"c"}', ["set", "/a", '{"b":"c"}']),
        ('set /a "" x', ["set", "/a", "", "x"]),
        ("", []),
    ],
)
def test_quotes_around_a_word_are_removed(line: str, words: list[str]) -> None:
    assert words_of(line) == words


def test_usage_without_an_address(run: RunTool) -> None:
    outcome = run(zookeeper_shell.main, "--unknown")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("unknown is not a recognized option\nUSAGE: zookeeper-shell")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("world:anyone", "world:anyone does not have the form scheme:id:perm"),
        ("", " does not have the form scheme:id:perm"),
        ("world:anyone:cdx", "Unknown perm type: x"),
    ],
)
def test_malformed_access_list_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(znode_trees.TreeError) as caught:
        parse_acl(text)
    assert str(caught.value) == problem


def test_access_list_with_colons_in_the_id() -> None:
    (entry,) = parse_acl("digest:bob:hash=:ra")
    assert entry == ("digest", "bob:hash=", 17)


@pytest.mark.parametrize(
    "command",
    [("getAcl", "/a"), ("setAcl", "/a", "world:anyone:r"), ("addauth", "digest", "a:b"), ("create", "/c", "", "a:b:r")],
)
def test_embedded_store_has_no_access_lists(run: RunTool, embedded: Path, command: tuple[str, ...]) -> None:
    outcome = run(zookeeper_shell.main, f"sqlite:{embedded}", *command)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("The embedded store has no access lists")


def test_settings_that_cannot_be_read_are_named(run: RunTool, tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    outcome = run(zookeeper_shell.main, "127.0.0.1:1", "-zk-tls-config-file", str(file), "ls", "/")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert f"Cannot read {file}" in outcome.stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["-server", "host:1/chroot", "ls", "/"], ["host:1/chroot", "ls", "/"]),
        (["ls", "/"], ["localhost:2181", "ls", "/"]),
        (["-server"], []),
        (["--version"], ["--version"]),
    ],
)
def test_arguments_of_the_java_class_name_the_server(
    monkeypatch: pytest.MonkeyPatch, given: list[str], expected: list[str]
) -> None:
    received: list[str] = []

    def main(arguments: Sequence[str]) -> int:
        received.extend(arguments)
        return 0

    monkeypatch.setattr(zookeeper_shell, "main", main)
    assert zookeeper_shell.main_of_class(given) == 0
    assert received == expected
