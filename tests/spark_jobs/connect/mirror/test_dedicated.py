"""A dedicated MirrorMaker between two brokers: its processes, and what they share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.cli import running as running_of_workers
from spark_jobs.connect.cli.mirror_maker import MirrorMakerProcess as MirrorMaker
from spark_jobs.connect.cli.mirror_maker import with_file_first
from spark_jobs.connect.mirror.formats import Heartbeat
from spark_jobs.connect.mirror.settings import MirrorMakerSettings
from tests.spark_jobs.connect.mirror.dedicated import (
    MirrorMakerProcess,
    latest,
    run,
    two_clusters,
    workers,
    write,
)
from tests.spark_jobs.connect.mirror.flows import (
    commit,
    committed,
    create_topic,
    partition_counts,
    produce,
    stored,
    until,
)
from tests.support.broker import BrokerProcess
from tools.client.admin_client import AdminClient
from tools.client.bootstrap import parse_bootstrap

CONNECTOR = "MirrorSourceConnector"
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


class Running:
    """Two processes with one file, between two clusters."""

    def __init__(self, folder: Path, source: str, target: str) -> None:
        self.folder, self.source, self.target = folder, source, target
        self.file = folder / "mm2.properties"

    def process(self, name: str) -> MirrorMakerProcess:
        return MirrorMakerProcess(self.file, self.folder / f"{name}.log")


@pytest.fixture(scope="module")
def running(
    source: BrokerProcess, target: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A first process runs during all tests; it copies exactly once, and finds one address through a provider."""
    folder = tmp_path_factory.mktemp("dedicated")
    (folder / "secrets").write_text(f"brokers={source.bootstrap}\n")
    found = Running(folder, source.bootstrap, target.bootstrap)
    settings = two_clusters(
        f"${{file:{folder}/secrets:brokers}}",
        target.bootstrap,
        B_exactly_once_source_support="enabled",
        dedicated_mode_enable_internal_rest="true",
        listeners="http://127.0.0.1:0",
        config_providers="file",
        config_providers_file_class=FILE_PROVIDER,
        sync_group_offsets_enabled="true",
        tasks_max=2,
    )
    write(found.file, {**settings, "A->B.topics": "dedicated.*", "A->B.groups": "dedicated.*"})
    create_topic(source.bootstrap, "dedicated", 2)
    with found.process("first"):
        yield found


def test_topics_positions_and_heartbeats_are_mirrored(running: Running) -> None:
    produce(running.source, "dedicated", [b"0", b"1"], partition=1)
    commit(running.source, "dedicated-group", {("dedicated", 1): 2})
    until(lambda: committed(running.target, "dedicated-group", "A.dedicated", 1) == 2, "the position is committed")
    assert [copy.value() for copy in stored(running.target, "A.dedicated", 1)] == [b"0", b"1"]
    # Those that the flow B->A sends, although it mirrors nothing.
    until(lambda: "A.heartbeats" in partition_counts(running.target), "heartbeats are mirrored")
    until(lambda: stored(running.target, "A.heartbeats"), "a heartbeat is mirrored")
    beat = stored(running.target, "A.heartbeats")[0]
    assert Heartbeat.from_record(beat.key(), beat.value())[:2] == ("B", "A")


def test_a_flow_has_the_group_and_the_topics_of_kafkas_mirror(running: Running) -> None:
    until(lambda: workers(running.target), "the flow runs")
    topics = partition_counts(running.target)
    assert {"mm2-configs.A.internal", "mm2-offsets.A.internal", "mm2-status.A.internal"} <= topics.keys()
    assert topics["mm2-configs.A.internal"] == 1
    with AdminClient(parse_bootstrap(running.target)) as admin:
        groups = admin.call(ListGroupsRequest(), ListGroupsResponse).groups
    assert ("A-mm2", "connect") in {(group.group_id, group.protocol_type) for group in groups}
    assert not {"mm2-configs.A.internal"} & partition_counts(running.source).keys()


def test_values_of_providers_are_used_and_not_stored(running: Running) -> None:
    until(lambda: workers(running.target), "the flow runs")
    configs = latest(running.target, "mm2-configs.A.internal")
    reference = f"${{file:{running.folder}/secrets:brokers}}"
    for key in (f"connector-{CONNECTOR}", f"task-{CONNECTOR}-0"):
        assert configs[key]["properties"]["source.cluster.bootstrap.servers"] == reference
    assert running.source not in str(configs)
    task_class = configs[f"task-{CONNECTOR}-0"]["properties"]["task.class"]
    assert task_class == "org.apache.kafka.connect.mirror.MirrorSourceTask"


def test_processes_share_tasks_and_the_leader_gives_new_ones_until_one_leaves(running: Running) -> None:
    with running.process("second") as second:
        until(lambda: len(workers(running.target)) == 2, "both run tasks")
        create_topic(running.source, "dedicated-later", 2)
        produce(running.source, "dedicated-later", [b"x"], partition=0)
        produce(running.source, "dedicated-later", [b"y"], partition=1)

        def is_copied() -> bool:
            if partition_counts(running.target).get("A.dedicated-later") != 2:
                return False
            return all(stored(running.target, "A.dedicated-later", index) for index in range(2))

        until(is_copied, "tasks of both copy the new topic")
        assert second.stop() == 0
    until(lambda: len(workers(running.target)) == 1, "one process runs all tasks")
    produce(running.source, "dedicated-later", [b"x2"], partition=0)
    produce(running.source, "dedicated-later", [b"y2"], partition=1)
    until(lambda: len(stored(running.target, "A.dedicated-later", 0)) >= 2, "the rest is copied")
    until(lambda: len(stored(running.target, "A.dedicated-later", 1)) >= 2, "the rest is copied")
    copies = [[copy.value() for copy in stored(running.target, "A.dedicated-later", index)] for index in range(2)]
    assert copies == [[b"x", b"x2"], [b"y", b"y2"]]


def test_a_file_that_has_changed_configures_the_connectors_anew(
    source: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "mm2.properties"
    settings = two_clusters(source.bootstrap, target.bootstrap, emit_heartbeats_enabled="false")
    settings = {key.replace("A", "near").replace("B", "far"): value for key, value in settings.items()}
    settings |= {"clusters": "near,far", "near->far.topics": "changed-one"}
    create_topic(source.bootstrap, "changed-one")
    create_topic(source.bootstrap, "changed-two")
    log = tmp_path / "log"

    def is_mirrored(topic: str) -> bool:
        return f"near.{topic}" in partition_counts(target.bootstrap)

    for topic in ("changed-one", "changed-two"):
        write(file, {**settings, "near->far.topics": topic})
        with MirrorMakerProcess(file, log, "--clusters", "far") as process:
            until(partial(is_mirrored, topic), f"{topic} is mirrored")
            assert process.stop() == 0
    assert not process.logged("is up to date")
    with MirrorMakerProcess(file, log, "--clusters", "far") as process:
        until(lambda: process.logged("MirrorCheckpointConnector of near->far is up to date"), "nothing changes")
    configs = latest(target.bootstrap, "mm2-configs.near.internal")
    assert configs[f"connector-{CONNECTOR}"]["properties"]["topics"] == "changed-two"


def test_a_command_that_cannot_start_fails_with_the_reason(tmp_path: Path) -> None:
    file = write(tmp_path / "mm2.properties", two_clusters("127.0.0.1:1", "127.0.0.1:1"))
    assert run("--clusters", "C", str(file)) == (1, "connect-mirror-maker: C is not one of clusters: A, B\n")
    status, errors = run()
    assert (status, "mm2.properties [--clusters CLUSTER ...]" in errors) == (1, True)


def new_process(given: dict[str, str]) -> MirrorMaker:
    mirror = MirrorMakerSettings(given)
    return MirrorMaker(mirror, mirror.flows_to(["B"]))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"A->B.offset.lag.max": "many"}, "A->B, MirrorSourceConnector: Invalid value many for configuration offset"),
        ({"B.session.timeout.ms": "soon"}, "A->B: Invalid value soon for configuration session.timeout.ms"),
        ({"A->B.transforms": "t"}, "A->B, MirrorSourceConnector: .*transforms.t.type"),
        ({"A.bootstrap.servers": "${env:NONE}"}, r"A->B, MirrorSourceConnector: Invalid value \$\{env:NONE\} for"),
    ],
)
def test_invalid_settings_are_named_with_their_flow_before_anything_starts(settings: dict[str, str], text: str) -> None:
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    providers = {"config.providers": "env", "config.providers.env.class": provider}
    given = {**two_clusters("127.0.0.1:1", "127.0.0.1:1"), **providers, **settings}
    with pytest.raises(ConfigError, match=f"(?s){text}"):
        new_process(given)


def test_a_target_that_is_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_of_workers, "REACH_TIMEOUT_MS", 100)
    with pytest.raises(ConnectError, match=r"cluster B is not reached: No broker at 127\.0\.0\.1:1"):
        new_process(two_clusters("127.0.0.1:1", "127.0.0.1:1"))


def test_the_file_may_be_before_or_behind_the_clusters() -> None:
    assert with_file_first(["--clusters", "A", "B", "file"]) == ["file", "--clusters", "A", "B"]
    assert with_file_first(["file", "--clusters", "A"]) == ["file", "--clusters", "A"]
    assert with_file_first(["--clusters", "A"]) == ["--clusters", "A"]
