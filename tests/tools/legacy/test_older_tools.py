"""Tools of 0.8 that kafka-run-class still knows: offsets in ZooKeeper, and merged state-change logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import ZooKeeperProcess
from tests.tools.conftest import RunTool
from tools.admin import consumer_groups
from tools.launch import run_class
from tools.zookeeper import zookeeper_shell
from tools.zookeeper.legacy_zookeeper import DEPRECATED

TIMEOUT_S = 20
HEADER = "Group           Topic                          Pid Offset          logSize         Lag             Owner\n"


class OldCluster:
    """A broker with ZooKeeper, and a topic with five records in each of two partitions."""

    def __init__(self, zookeeper: str, bootstrap: str) -> None:
        self.zookeeper, self.bootstrap = zookeeper, bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("clicks", 2, 1)])["clicks"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(10):
            producer.produce("clicks", b"x", partition=number % 2)
        assert producer.flush(TIMEOUT_S) == 0


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldCluster]:
    folder = tmp_path_factory.mktemp("older")
    with skip_when_unavailable(), ZooKeeperProcess(folder / "zookeeper") as server:
        address = f"{server.connect}/kafka"
        with BrokerProcess(folder / "broker", {"zookeeper.connect": address}) as broker:
            yield OldCluster(address, broker.bootstrap)


def test_offsets_go_into_zookeeper_and_back(run: RunTool, old: OldCluster, tmp_path: Path) -> None:
    lines = "/consumers/readers/offsets/clicks/0:2\n/consumers/readers/offsets/clicks/1:5\n"
    given, exported = tmp_path / "given", tmp_path / "exported"
    given.write_text(lines)
    arguments = ["--zkconnect", old.zookeeper]
    imported = run(run_class.main, "kafka.tools.ImportZkOffsets", *arguments, "--input-file", str(given))
    assert (imported.status, imported.stdout, imported.stderr) == (0, "", "")
    done = run(run_class.main, "kafka.tools.ExportZkOffsets", *arguments, "--output-file", str(exported))
    assert done.status == 0
    assert exported.read_text() == lines
    checked = run(run_class.main, "kafka.tools.ConsumerOffsetChecker", *arguments, "--group", "readers")
    assert checked.status == 0
    start, size = "readers         clicks                         ", "5               "
    assert checked.stdout == HEADER + "".join(
        f"{start}{number}   {offset:<15} {size}{5 - offset:<15} none\n" for number, offset in ((0, 2), (1, 5))
    )
    settings = tmp_path / "consumer.properties"
    settings.write_text(f"group.id=readers\nzookeeper.connect={old.zookeeper}\n")
    updated = run(run_class.main, "kafka.tools.UpdateOffsetsInZK", "latest", str(settings), "clicks")
    assert updated.stdout == (
        "updating partition 0 with new offset: 5\nupdating partition 1 with new offset: 5\n"
        "updated the offset for 2 partitions\n"
    )


OLDER = "{:<30} {:<30} {:<10} {:<15} {:<15} {:<15} {}"
COLUMNS = OLDER.format("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "OWNER")


class TestGroupsInZooKeeper:
    """kafka-consumer-groups --zookeeper: groups of consumers that keep their offsets in ZooKeeper."""

    @pytest.fixture(autouse=True)
    def groups(self, run: RunTool, old: OldCluster) -> Iterator[None]:
        """A group that runs, with a partition without an owner, and a stopped one."""
        self.at = ["--zookeeper", old.zookeeper]
        self._run = run
        shell = (zookeeper_shell.main, old.zookeeper)
        for path, data in {
            "/consumers/running": "", "/consumers/running/ids": "", "/consumers/running/ids/running_host-1-ab": "{}",
            "/consumers/running/owners": "", "/consumers/running/owners/clicks": "",
            "/consumers/running/owners/clicks/0": "running_host-1-ab-0",
            "/consumers/running/offsets": "", "/consumers/running/offsets/clicks": "",
            "/consumers/running/offsets/clicks/0": "3",
            "/consumers/stopped": "", "/consumers/stopped/offsets": "",
            "/consumers/stopped/offsets/clicks": "", "/consumers/stopped/offsets/clicks/1": "5",
            "/consumers/stopped/offsets/gone": "", "/consumers/stopped/offsets/gone/0": "1",
        }.items():  # fmt: skip
            run(*shell, "create", path, data)
        yield
        for group in ("running", "stopped"):
            run(*shell, "deleteall", f"/consumers/{group}")

    def groups_tool(self, *arguments: str) -> tuple[int, str]:
        outcome = self._run(consumer_groups.main, *self.at, *arguments)
        assert outcome.stderr == f"WARNING: {DEPRECATED}\n"
        return outcome.status, outcome.stdout

    def test_each_partition_must_have_an_owner_that_runs(self, run: RunTool, old: OldCluster) -> None:
        verify = ("kafka.tools.VerifyConsumerRebalance", "--zookeeper.connect", old.zookeeper, "--group", "running")
        assert run(run_class.main, *verify) == (
            1,
            "Rebalance operation failed !\n",
            "No owner for partition [clicks,1]\n",
        )
        owner = (zookeeper_shell.main, old.zookeeper, "create", "/consumers/running/owners/clicks/1")
        run(*owner, "gone_host-1-ab-0")
        assert run(run_class.main, *verify).stderr == (
            "Owner gone_host-1-ab-0 for partition [clicks,1] is not a valid member of consumer group running\n"
        )
        run(zookeeper_shell.main, old.zookeeper, "set", "/consumers/running/owners/clicks/1", "running_host-1-ab-1")
        assert run(run_class.main, *verify) == (0, "Rebalance operation successful !\n", "")

    def test_they_are_listed_with_those_of_the_brokers(self) -> None:
        status, text = self.groups_tool("--list")
        assert status == 0
        assert {"running", "stopped"} <= set(text.split())

    def test_a_description_ends_with_the_owner(self) -> None:
        status, text = self.groups_tool("--describe", "--group", "running")
        assert (status, text.splitlines()) == (
            0,
            [
                COLUMNS,
                OLDER.format("running", "clicks", 0, 3, 5, 2, "running_host-1-ab-0"),
                OLDER.format("running", "clicks", 1, "unknown", 5, "unknown", "none"),
            ],
        )

    def test_a_deleted_topic_is_named(self) -> None:
        _, text = self.groups_tool("--describe", "--group", "stopped")
        assert "No broker for topic gone: This server does not host this topic-partition." in text

    def test_a_group_is_deleted_unless_its_consumers_run(self) -> None:
        assert self.groups_tool("--delete", "--group", "running") == (
            0,
            "Delete for group running failed because its consumers are still active.\n",
        )
        assert self.groups_tool("--delete", "--group", "running", "--strict-exit")[0] == 1
        assert self.groups_tool("--delete", "--group", "stopped") == (
            0,
            "Deleted all consumer group information for group stopped in zookeeper.\n",
        )
        assert "stopped" not in self.groups_tool("--list")[1].split()

    def test_a_topic_is_deleted_from_a_group_and_with_the_last_one_the_group(self) -> None:
        for topic in ("gone", "clicks"):
            assert "stopped" in self.groups_tool("--list")[1].split()
            assert self.groups_tool("--delete", "--group", "stopped", "--topic", topic) == (
                0,
                f"Deleted consumer group information for group stopped topic {topic} in zookeeper.\n",
            )
        assert self.groups_tool("--delete", "--group", "stopped", "--topic", "clicks") == (
            0,
            "Delete for group stopped topic clicks failed because group does not exist.\n",
        )

    def test_a_topic_is_deleted_from_all_inactive_groups(self) -> None:
        assert self.groups_tool("--delete", "--topic", "clicks") == (
            0,
            "Deleted consumer group information for all inactive consumer groups for topic clicks in zookeeper.\n",
        )
        assert "clicks" in self.groups_tool("--describe", "--group", "running")[1]
        assert "clicks" not in self.groups_tool("--describe", "--group", "stopped")[1]


def test_offsets_of_a_broker_are_checked_and_exported_too(run: RunTool, old: OldCluster, tmp_path: Path) -> None:
    consumer = Consumer({"bootstrap.servers": old.bootstrap, "group.id": "modern"})
    consumer.commit(offsets=[TopicPartition("clicks", 0, 3)], asynchronous=False)
    consumer.close()
    arguments = ["--zkconnect", old.zookeeper, "--group", "modern", "--topic", "clicks"]
    checked = run(run_class.main, "kafka.tools.ConsumerOffsetChecker", *arguments)
    assert checked.stdout.splitlines()[1].split() == ["modern", "clicks", "0", "3", "5", "2", "none"]
    exported = tmp_path / "exported"
    arguments = ["--bootstrap-server", old.bootstrap, "--group", "modern", "--output-file", str(exported)]
    assert run(run_class.main, "kafka.tools.ExportZkOffsets", *arguments).status == 0
    assert exported.read_text() == "/consumers/modern/offsets/clicks/0:3\n"
    arguments = ["--bootstrap-server", old.bootstrap, "--output-file", str(exported)]
    assert run(run_class.main, "kafka.tools.ExportZkOffsets", *arguments).status == 0
    assert "/consumers/modern/offsets/clicks/0:3\n" in exported.read_text()


def test_a_rebalance_of_a_group_of_the_brokers_is_verified(run: RunTool, old: OldCluster) -> None:
    verify = ("kafka.tools.VerifyConsumerRebalance", "--bootstrap-server", old.bootstrap, "--group", "verified")
    nobody = run(run_class.main, *verify)
    assert nobody == (1, "Rebalance operation failed !\n", "No owners for any partitions of group verified\n")
    consumer = Consumer({"bootstrap.servers": old.bootstrap, "group.id": "verified", "auto.offset.reset": "earliest"})
    consumer.subscribe(["clicks"])
    assert consumer.poll(TIMEOUT_S) is not None
    assert run(run_class.main, *verify) == (0, "Rebalance operation successful !\n", "")
    consumer.close()


SHELL = "kafka.tools.SimpleConsumerShell"
SHELL_DEPRECATED = (
    "WARNING: SimpleConsumerShell is deprecated. Use kafka-console-consumer --partition --offset instead.\n"
)


def test_a_partition_is_printed_to_its_end(run: RunTool, old: OldCluster) -> None:
    at = (SHELL, "--broker-list", old.bootstrap, "--topic", "clicks", "--no-wait-at-logend")
    end = "Terminating. Reached the end of partition (clicks, 1) at offset 5\n"
    printed = run(run_class.main, *at, "--partition", "1", "--offset", "3", "--print-offsets")
    assert printed == (0, f"next offset = 4\nx\nnext offset = 5\nx\n{end}", SHELL_DEPRECATED)
    assert run(run_class.main, *at, "--partition", "1", "--offset", "-1").stdout == end
    assert run(run_class.main, *at, "--max-messages", "2").stdout == "x\nx\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--topic", "nosuch"), "Error: no valid topic metadata for topic: nosuch"),
        (("--topic", "clicks", "--partition", "9"), "Error: partition 9 does not exist for topic clicks"),
        (("--topic", "clicks", "--replica", "1"), "Error: --replica 1: only the leader is read"),
        (("--topic", "clicks", "--offset", "-3"), "Error: Invalid starting offset: -3"),
    ],
)
def test_a_partition_that_cannot_be_read_is_named(
    run: RunTool, old: OldCluster, arguments: tuple[str, ...], error: str
) -> None:
    outcome = run(run_class.main, SHELL, "--broker-list", old.bootstrap, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert error in outcome.stderr


def test_an_invalid_line_stops_an_import_before_it_begins(run: RunTool, old: OldCluster, tmp_path: Path) -> None:
    given, exported = tmp_path / "given", tmp_path / "exported"
    given.write_text("/consumers/other/offsets/clicks/0:2\n/brokers/topics/clicks:1\n")
    at = ["--zkconnect", old.zookeeper]
    outcome = run(run_class.main, "kafka.tools.ImportZkOffsets", *at, "--input-file", str(given))
    assert outcome.status == 1
    assert outcome.stderr.startswith(f"{given}, line 2: '/brokers/topics/clicks:1', expected /consumers/GROUP/")
    done = run(run_class.main, "kafka.tools.ExportZkOffsets", *at, "--group", "other", "--output-file", str(exported))
    assert done.status == 0
    assert exported.read_text() == ""


def test_state_change_logs_are_merged_by_time(run: RunTool, tmp_path: Path) -> None:
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    first.write_text(
        "[2026-01-01 00:00:01,000] INFO became leader for t-0 (state.change.logger)\n"
        "[2026-01-01 00:00:03,000] ERROR about t-1 (state.change.logger)\n  with a second line\n"
    )
    second.write_text(
        "[2026-01-01 00:00:02,000] INFO became follower for t-0 (state.change.logger)\n"
        "[2026-01-01 00:00:04,000] INFO became leader for u-0 (state.change.logger)\n"
    )
    name, logs = "kafka.tools.StateChangeLogMerger", f"{first},{second}"
    merged = run(run_class.main, name, "--logs", logs)
    assert [line[18:20] for line in merged.stdout.splitlines() if line.startswith("[")] == ["01", "02", "03", "04"]
    assert "  with a second line\n" in merged.stdout
    only = run(run_class.main, name, "--logs-regex", f"{tmp_path}/*.log", "--topic", "t", "--partitions", "0")
    assert [line[18:20] for line in only.stdout.splitlines()] == ["01", "02"]
    times = ["--start-time", "2026-01-01 00:00:02,000", "--end-time", "2026-01-01 00:00:02,500"]
    between = run(run_class.main, name, "--logs", logs, *times)
    assert [line[18:20] for line in between.stdout.splitlines()] == ["02"]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("StateChangeLogMerger", ["--topic", "t"], "Provide arguments to exactly one of the two options"),
        ("StateChangeLogMerger", ["--logs", "/nowhere"], "Cannot read /nowhere: No such file or directory"),
        ("StateChangeLogMerger", ["--logs", "x", "--start-time", "now"], "Invalid time now, expected yyyy-MM-dd"),
        ("StateChangeLogMerger", ["--logs", "x", "--topic", "t", "--partitions", "a"], "Invalid partitions a"),
        ("ConsumerOffsetChecker", ["--zkconnect", "h:1"], 'Missing required argument "[group]"'),
        ("ExportZkOffsets", ["--zkconnect", "h:1"], 'Missing required argument "[output-file]"'),
        ("ExportZkOffsets", ["--output-file", "x"], 'Missing required argument "[zkconnect]"'),
        ("ImportZkOffsets", ["--zkconnect", "h:1", "--input-file", "/nowhere"], "Cannot read /nowhere: No such file"),
        ("UpdateOffsetsInZK", ["now", "file", "t"], "USAGE: kafka.tools.UpdateOffsetsInZK [earliest | latest]"),
    ],
)
def test_bad_command_lines_name_what_is_wrong(run: RunTool, name: str, arguments: list[str], error: str) -> None:
    outcome = run(run_class.main, f"kafka.tools.{name}", *arguments)
    assert outcome.status == 1
    assert outcome.stderr.startswith(error)
