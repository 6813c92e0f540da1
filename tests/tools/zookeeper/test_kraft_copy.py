"""metadata-copy to KRaft and back, on directories made by hand: what is written, refused, and rehearsed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from controller.embedded.sqlite_store import METADATA_FILE
from controller.store.state_store import Create, Delete, SetData
from storage.disk import checkpoints
from storage.disk.files import OsFiles
from storage.disk.names import KRAFT_METADATA
from tests.tools.conftest import Outcome, RunTool
from tests.tools.kraft.folders import SEGMENTS, make_folder, write_tree
from tests.tools.kraft.metadata import CLUSTER_ID, WITHOUT_ID, tree
from tools.kraft import metadata_records, node_folders
from tools.kraft.metadata_log import SnapshotId, VersionedRecord, snapshot
from tools.zookeeper import kraft_copy, metadata_copy
from tools.zookeeper.znode_trees import Change, EmbeddedTree

TOPIC = b'{"partitions":{"0":[1]},"topic_id":"pSEGtdSkRXmCBClYmmabVw","version":3}'
STATE = "/brokers/topics/t/partitions/0/state"
SNAPSHOT = "__cluster_metadata-0/00000000000000000007-0000000006.checkpoint"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker with the topics `old`, which has no id, and `t`."""
    folder = make_folder(tmp_path / "data", "t-0", "old-0")
    nodes = tree({"old": WITHOUT_ID, "t": TOPIC})
    write_tree(folder, {path: node.data for path, node in nodes.items()})
    return folder


@pytest.fixture
def to_kraft(run: RunTool, data: Path) -> Callable[..., Outcome]:
    def convert(*options: str, folders: str = str(data)) -> Outcome:
        return run(metadata_copy.main, "--from-log-dir", str(data), "--to-kraft", folders, *options)

    return convert


@pytest.fixture
def from_kraft(run: RunTool, data: Path) -> Callable[..., Outcome]:
    def convert(*options: str, folders: str = str(data), to: str = str(data)) -> Outcome:
        return run(metadata_copy.main, "--from-kraft", folders, "--to-log-dir", to, *options)

    return convert


@pytest.fixture
def pair(run: RunTool, tmp_path: Path) -> tuple[Path, Path]:
    """The folders of two nodes with the same metadata log. The first one is a broker's again, with the tree."""
    a, b = (make_folder(tmp_path / name, "t-0", broker_id=number) for name, number in (("a", 1), ("b", 2)))
    nodes = tree({"t": TOPIC.replace(b"[1]", b"[1,2]")})
    write_tree(a, {path: node.data for path, node in nodes.items()})
    assert run(metadata_copy.main, "--from-log-dir", str(a), "--to-kraft", f"{a},{b}").status == 0
    shutil.copytree(a / KRAFT_METADATA, b / KRAFT_METADATA)
    assert run(metadata_copy.main, "--from-kraft", str(a), "--to-log-dir", str(a)).status == 0
    return a, b


def _registration(broker_id: int) -> metadata_records.RegisterBrokerRecord:
    return metadata_records.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=1),
        broker_epoch=0,
        end_points=[],
        features=[],
        rack=None,
        fenced=True,
    )


def change_tree(folder: Path, changes: Sequence[Change]) -> None:
    with closing(EmbeddedTree([folder / METADATA_FILE], is_writable=True)) as target:
        target.apply(changes)


def tree_of(folder: Path) -> dict[str, bytes | None]:
    with closing(EmbeddedTree([folder / METADATA_FILE], is_writable=False)) as source:
        return {path: node.data for path, node in metadata_copy._read(source).items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_the_folder_becomes_that_of_a_node(to_kraft: Callable[..., Outcome], data: Path) -> None:
    before = contents(data)
    done = to_kraft()
    assert done.status == 0, done
    assert done.stdout.splitlines()[0].startswith("2 topics with 2 partitions")
    assert "Topic old had no id and gets one" in done.stdout
    after = contents(data)
    assert after.keys() - before.keys() == {
        SNAPSHOT, "__cluster_metadata-0/quorum-state", "t-0/partition.metadata", "old-0/partition.metadata",
        "metadata.sqlite.retired",
    }  # fmt: skip
    assert [name for name in before if after.get(name) != before[name]] == ["meta.properties", "metadata.sqlite"]
    folder = node_folders.read_folder(data)
    assert (folder.version, folder.node_id, folder.cluster_id) == (1, 1, CLUSTER_ID)
    log = node_folders.read_metadata_log(data)
    assert log is not None
    assert log.end == (7, 6)
    (partition,) = kraft_copy.replayed(log.records).topics["t"].partitions.values()
    assert partition.directories == (folder.directory_id,)
    assert f"topic_id: {'pSEGtdSkRXmCBClYmmabVw'}" in after["t-0/partition.metadata"].decode()


def test_check_changes_nothing_and_says_what_would_be_done(to_kraft: Callable[..., Outcome], data: Path) -> None:
    before = contents(data)
    done = to_kraft("--check")
    assert done.status == 0, done
    assert done.stdout.endswith(
        "Difference after a way there and back: /brokers/topics/old changes\n"
        "2 partition.metadata and 1 meta.properties would be written\n"
    )
    assert contents(data) == before


def test_a_rehearsal_links_closed_segments_and_copies_what_changes(
    to_kraft: Callable[..., Outcome], data: Path, tmp_path: Path
) -> None:
    before = contents(data)
    done = to_kraft("--rehearse", str(tmp_path / "rehearsal"))
    assert done.status == 0, done
    assert contents(data) == before
    copy = tmp_path / "rehearsal" / "0-data"
    assert node_folders.read_folder(copy).version == 1
    shared = {
        str(path.relative_to(data)) for path in data.rglob("*")
        if path.is_file() and (copy / path.relative_to(data)).exists() and path.samefile(copy / path.relative_to(data))
    }  # fmt: skip
    assert shared == {f"{name}/{segment}.log" for name in ("t-0", "old-0") for segment in SEGMENTS[:2]}
    again = to_kraft("--rehearse", str(tmp_path / "rehearsal"))
    assert again.stderr == f"Error: {tmp_path / 'rehearsal'} exists, expected a new folder for the rehearsal\n"


def test_a_rehearsal_within_the_directory_is_refused(to_kraft: Callable[..., Outcome], data: Path) -> None:
    before = contents(data)
    refused = to_kraft("--rehearse", str(data / "rehearsal"))
    assert refused.stderr == (
        f"Error: {data / 'rehearsal'} is in {data}, expected a new folder elsewhere on its file system\n"
    )
    assert contents(data) == before


def test_a_rehearsal_on_another_file_system_is_refused(
    to_kraft: Callable[..., Outcome], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", fail)
    refused = to_kraft("--rehearse", str(tmp_path / "rehearsal"))
    assert refused.stderr.endswith("Invalid cross-device link; expected a folder on the same file system\n")
    assert not (tmp_path / "rehearsal").exists()


def test_a_segment_above_the_recovery_point_is_copied(
    to_kraft: Callable[..., Outcome], data: Path, tmp_path: Path
) -> None:
    """After kill -9 a start truncates in place."""
    checkpoints.write_offsets(OsFiles(), str(data / "recovery-point-offset-checkpoint"), {("t", 0): 15})
    assert to_kraft("--rehearse", str(tmp_path / "rehearsal")).status == 0
    links = {path.name: path.stat().st_nlink for path in (data / "t-0").glob("*.log")}
    assert links == {f"{SEGMENTS[0]}.log": 2, f"{SEGMENTS[1]}.log": 1, f"{SEGMENTS[2]}.log": 1}
    assert {path.stat().st_nlink for path in (data / "old-0").iterdir()} == {1}


@pytest.mark.parametrize("writes", range(6))
def test_an_interrupted_conversion_can_be_repeated(
    to_kraft: Callable[..., Outcome], data: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """It fails at each write in turn: the broker's own files are unchanged until the last step."""
    made = 0

    def counted(name: str) -> None:
        original = getattr(OsFiles, name)

        def call(*arguments: object, **options: object) -> object:
            nonlocal made
            made += 1
            if made > writes:
                raise OSError(28, "No space left on device")
            return original(*arguments, **options)

        monkeypatch.setattr(OsFiles, name, call)

    with monkeypatch.context():
        counted("rename")
        failed = to_kraft()
    monkeypatch.undo()
    is_done = writes >= 5
    assert (failed.status, "No space left" in failed.stderr) == ((0, False) if is_done else (1, True))
    assert node_folders.read_folder(data).version == int(is_done)
    if not is_done:
        assert (data / METADATA_FILE).exists()
        assert to_kraft().status == 0
    assert node_folders.read_folder(data).version == 1
    assert not list(data.rglob("*.part"))


def test_a_node_is_not_converted_twice(to_kraft: Callable[..., Outcome], run: RunTool, data: Path) -> None:
    assert to_kraft().status == 0
    (data / "metadata.sqlite.retired").rename(data / METADATA_FILE)
    assert to_kraft() == Outcome(1, "", f"Error: {data} belongs to a KRaft node already\n")


def test_a_folder_in_use_is_refused(
    to_kraft: Callable[..., Outcome], from_kraft: Callable[..., Outcome], data: Path
) -> None:
    with node_folders.locked([data]):
        for convert in (to_kraft, from_kraft):
            assert convert() == Outcome(1, "", f"Error: {data} is in use: stop its broker first\n")


def _remove_store(data: Path) -> None:
    (data / METADATA_FILE).unlink()


def _remove_partition(data: Path) -> None:
    (data / "t-0").rename(data.with_name("t-0"))


def _add_move(data: Path) -> None:
    (data / f"t-0.{'a' * 32}-future").mkdir()


def _add_foreign(data: Path) -> None:
    (data / "lost+found").mkdir()


def _add_earlier_topic(data: Path) -> None:
    (data / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAw")


def _damage_id(data: Path) -> None:
    (data / "t-0" / "partition.metadata").write_text("version: 0\n")


def _change_cluster(data: Path) -> None:
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=other\n")


def _change_broker(data: Path) -> None:
    (data / "meta.properties").write_text(f"version=0\nbroker.id=2\ncluster.id={CLUSTER_ID}\n")


def _remove_owner(data: Path) -> None:
    (data / "meta.properties").unlink()


def _change_version(data: Path) -> None:
    (data / "meta.properties").write_text("version=2\n")


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (_remove_store, "{data}/metadata.sqlite does not exist, expected a broker's log.dirs"),
        (_remove_partition, "the data of partition t-0 is in no folder of broker 1"),
        (_add_move, "{data}/t-0.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-future is a move between directories"),
        (_add_foreign, "{data}/lost+found is not a directory of a partition"),
        (_add_earlier_topic, "{data}/t-0 belongs to an earlier topic of this name"),
        (_damage_id, "remove the file, it is written again"),
        (_change_cluster, "{data} belongs to cluster other, expected 7ym0r3ycTc-XAnwnQmXzjg"),
        (_change_broker, "broker 1 has replicas of 2 partitions (old-0, t-0), and none of the folders belongs to it"),
        (_remove_owner, "{data}/meta.properties does not exist"),
        (_change_version, '{data}/meta.properties: version is "2", expected 0 or 1'),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(
    to_kraft: Callable[..., Outcome], data: Path, harm: Callable[[Path], None], problem: str
) -> None:
    harm(data)
    before = contents(data)
    for options in ((), ("--check",)):
        refused = to_kraft(*options)
        assert (refused.status, refused.stdout) == (1, "")
        assert problem.format(data=data) in refused.stderr
        assert all(line.startswith("Error: ") for line in refused.stderr.splitlines())
    assert contents(data) == before


def test_all_problems_are_named_at_once(to_kraft: Callable[..., Outcome], data: Path) -> None:
    _add_move(data)
    _remove_partition(data)
    assert len(to_kraft().stderr.splitlines()) == 2


def test_a_folder_without_a_topic_is_noted(to_kraft: Callable[..., Outcome], data: Path) -> None:
    (data / "unknown-3").mkdir()
    done = to_kraft("--check")
    assert done.status == 0
    assert f"Note: {data}/unknown-3 is no replica of broker 1: Kafka 4 renames it to *-stray" in done.stdout


def test_brokers_of_a_cluster_become_nodes(run: RunTool, tmp_path: Path) -> None:
    """The first one becomes the controller; the others only have to know the cluster."""
    a, b, c = (
        make_folder(tmp_path / name, *partitions, broker_id=broker_id)
        for name, partitions, broker_id in (("a", ["t-0"], 1), ("b", [], 1), ("c", ["t-0"], 2))
    )
    nodes = tree({"t": TOPIC.replace(b"[1]", b"[2,1]")})
    write_tree(a, {path: node.data for path, node in nodes.items()})
    folders = f"{a},{b},{c}"
    assert run(metadata_copy.main, "--from-log-dir", str(a), "--to-kraft", folders).status == 0
    found = [node_folders.read_folder(folder) for folder in (a, b, c)]
    assert [(folder.version, folder.node_id) for folder in found] == [(1, 1), (1, 1), (1, 2)]
    assert len({folder.directory_id for folder in found}) == 3
    assert [node_folders.read_metadata_log(folder) is not None for folder in (a, b, c)] == [True, False, False]
    log = node_folders.read_metadata_log(a)
    assert log is not None
    partition = kraft_copy.replayed(log.records).topics["t"].partitions[0]
    assert partition.directories == (found[2].directory_id, found[0].directory_id)
    back = run(metadata_copy.main, "--from-kraft", f"{a},{b}", "--to-log-dir", f"{a},{b}")
    assert back.status == 0, back
    assert "Note: node 2 has replicas: name its folders in the same command, before a broker starts" in back.stdout
    assert [node_folders.read_folder(folder).version for folder in (a, b, c)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/controller_epoch", b"7"),
        (STATE, b'{"controller_epoch":6,"leader":1,"version":1,"leader_epoch":9,"isr":[1]}'),
    ],
)
def test_a_tree_that_brokers_have_used_since_stays(
    run: RunTool, pair: tuple[Path, Path], path: str, data: bytes
) -> None:
    """Its ISRs and leader epochs decide which records are kept."""
    a, b = pair
    change_tree(a, [SetData(path, data), Create("/brokers/topics/new", TOPIC)])
    used = tree_of(a)
    done = run(metadata_copy.main, "--from-kraft", str(b), "--to-log-dir", str(a))
    assert done.status == 0, done
    assert "stays: brokers have run on it since the nodes of KRaft stopped" in done.stdout
    assert tree_of(a) == used
    assert node_folders.read_folder(b).version == 0


def test_a_tree_that_brokers_have_used_since_and_that_lacks_a_topic_is_refused(
    run: RunTool, pair: tuple[Path, Path]
) -> None:
    a, b = pair
    gone = [f"/brokers/topics/t{each}" for each in ("/partitions/0/state", "/partitions/0", "/partitions", "")]
    change_tree(a, [SetData("/controller_epoch", b"7"), *map(Delete, gone)])
    refused = run(metadata_copy.main, "--from-kraft", str(b), "--to-log-dir", str(a))
    assert refused.status == 1
    assert refused.stderr.startswith(
        "Error: brokers have run on the target since the nodes of KRaft stopped, but it lacks partitions of these "
        "nodes, or has a lower leader epoch of them: 1, such as t-0. Name the folders of all nodes"
    )
    assert node_folders.read_folder(b).version == 1


def test_a_topic_that_only_the_tree_has_is_deleted(run: RunTool, pair: tuple[Path, Path]) -> None:
    """Kafka 4 has deleted it: nobody has run on the tree."""
    a, b = pair
    before = tree_of(a)
    change_tree(a, [Create("/brokers/topics/gone", TOPIC)])
    assert run(metadata_copy.main, "--from-kraft", str(b), "--to-log-dir", str(a)).status == 0
    assert tree_of(a) == before


def test_the_metadata_of_a_cluster_on_one_machine_goes_to_a_node_and_comes_back(
    run: RunTool, data: Path, tmp_path: Path
) -> None:
    cluster = str(tmp_path / "cluster")
    assert run(metadata_copy.main, "--from-log-dir", str(data), "--to-cluster", cluster).status == 0
    there = run(metadata_copy.main, "--from-cluster", cluster, "--to-kraft", str(data))
    assert there.status == 0, there
    back = run(metadata_copy.main, "--from-kraft", str(data), "--to-cluster", cluster)
    assert back.status == 0, back
    assert back.stdout.splitlines()[0] == there.stdout.splitlines()[0]


def test_a_node_among_the_brokers_is_refused(to_kraft: Callable[..., Outcome], data: Path, tmp_path: Path) -> None:
    node = make_folder(tmp_path / "node", broker_id=2)
    (node / "__cluster_metadata-0").mkdir()
    (node / "__cluster_metadata-0" / "00000000000000000000.log").touch()
    assert to_kraft(folders=f"{data},{node}").stderr == f"Error: {node} belongs to a KRaft node already\n"


def test_the_directory_of_a_controller_alone_stays_as_it_is(run: RunTool, tmp_path: Path) -> None:
    broker, controller = (make_folder(tmp_path / name, broker_id=number) for name, number in (("b", 1), ("c", 100)))
    node_folders.write_snapshot(
        node_folders.read_folder(controller),
        snapshot([VersionedRecord(0, 3, _registration(1))], SnapshotId(1, 1), 0),
        SnapshotId(1, 1),
    )
    for folder in (broker, controller):
        node_folders.write_meta_properties(replace(node_folders.read_folder(folder), version=1))
    done = run(metadata_copy.main, "--from-kraft", f"{broker},{controller}", "--to-log-dir", str(broker))
    assert done.status == 0, done
    assert f"Note: {controller} stays as it is: node 100 is only a controller" in done.stdout
    assert [node_folders.read_folder(folder).version for folder in (broker, controller)] == [0, 1]


def test_a_broker_that_never_ran_as_a_node_goes_back_too(run: RunTool, tmp_path: Path) -> None:
    """Only the first node has registered when the way on is given up."""
    a, b = (make_folder(tmp_path / name, "t-0", broker_id=number) for name, number in (("a", 1), ("b", 2)))
    nodes = tree({"t": TOPIC.replace(b"[1]", b"[1,2]")})
    write_tree(a, {path: node.data for path, node in nodes.items()})
    assert run(metadata_copy.main, "--from-log-dir", str(a), "--to-kraft", f"{a},{b}").status == 0
    log = node_folders.read_metadata_log(a)
    assert log is not None
    image = kraft_copy.replayed(log.records)
    image.brokers.add(1)
    end = SnapshotId(log.end.offset + 1, log.end.epoch)
    records = [*kraft_copy.records_of(image), VersionedRecord(0, 3, _registration(1))]
    shutil.rmtree(a / KRAFT_METADATA)
    node_folders.write_snapshot(replace(node_folders.read_folder(a), version=0), snapshot(records, end, 0), end)
    back = run(metadata_copy.main, "--from-kraft", f"{a},{b}", "--to-log-dir", f"{a},{b}")
    assert back.status == 0, back
    assert "Note" not in back.stdout
    assert [node_folders.read_folder(folder).version for folder in (a, b)] == [0, 0]


def test_the_way_back_keeps_everything(
    run: RunTool, to_kraft: Callable[..., Outcome], from_kraft: Callable[..., Outcome], data: Path
) -> None:
    before = contents(data)
    assert to_kraft().status == 0
    directory_id = node_folders.read_folder(data).directory_id
    checked = run(metadata_copy.main, "--from-kraft", str(data), "--check")
    assert checked.status == 0, checked
    assert node_folders.read_folder(data).version == 1
    assert not (data / METADATA_FILE).exists()
    done = from_kraft()
    assert done.status == 0, done
    after = contents(data)
    assert [name for name in before if name.endswith((".log", ".index")) and after[name] != before[name]] == []
    assert node_folders.read_folder(data).directory_id == directory_id
    assert to_kraft("--check").stdout.startswith("2 topics with 2 partitions")


def test_a_log_of_before_the_way_back_is_not_used_again(
    to_kraft: Callable[..., Outcome], from_kraft: Callable[..., Outcome], data: Path
) -> None:
    """Kafka 4 would start on it, also with version 0 in meta.properties."""
    assert to_kraft().status == 0
    (data / "__cluster_metadata-0" / "00000000000000000007.log").write_bytes(b"")
    assert from_kraft().status == 0
    assert '"data_version":99' in (data / "__cluster_metadata-0" / "quorum-state").read_text()
    assert from_kraft().stderr == f"Error: {data} does not belong to a KRaft node\n"
    assert to_kraft().status == 0
    assert '"data_version":0' in (data / "__cluster_metadata-0" / "quorum-state").read_text()


def test_a_node_on_a_directory_of_version_0_is_recognized(
    to_kraft: Callable[..., Outcome], from_kraft: Callable[..., Outcome], data: Path
) -> None:
    """Kafka 4 starts on the directory of an interrupted conversion."""
    before = (data / "meta.properties").read_text()
    assert to_kraft().status == 0
    (data / "metadata.sqlite.retired").rename(data / METADATA_FILE)
    (data / "meta.properties").write_text(before)
    assert "does not belong to a KRaft node" in from_kraft().stderr
    (data / "__cluster_metadata-0" / "00000000000000000007.log").write_bytes(b"")
    assert "belongs to a KRaft node already" in to_kraft().stderr
    assert from_kraft().status == 0


def test_the_way_back_needs_a_node_and_its_metadata(
    to_kraft: Callable[..., Outcome], from_kraft: Callable[..., Outcome], data: Path
) -> None:
    assert from_kraft().stderr == f"Error: {data} does not belong to a KRaft node\n"
    assert to_kraft().status == 0
    snapshot = data / SNAPSHOT
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    assert from_kraft().stderr == f"Error: {data}/__cluster_metadata-0 holds no metadata\n"
    snapshot.unlink()
    snapshot.with_name("quorum-state").unlink()
    snapshot.parent.rmdir()
    assert "no folder holds __cluster_metadata-0" in from_kraft().stderr
    assert node_folders.read_folder(data).version == 1


def test_the_way_back_names_a_partition_without_data(
    to_kraft: Callable[..., Outcome], from_kraft: Callable[..., Outcome], data: Path
) -> None:
    assert to_kraft().status == 0
    _remove_partition(data)
    assert from_kraft().stderr == "Error: the data of partition t-0 is in no folder of node 1\n"
    assert not (data / METADATA_FILE).exists()


def test_the_metadata_of_another_cluster_is_not_replaced(
    to_kraft: Callable[..., Outcome], from_kraft: Callable[..., Outcome], tmp_path: Path
) -> None:
    assert to_kraft().status == 0
    other = tmp_path / "other"
    other.mkdir()
    write_tree(other, {"/cluster/id": b'{"version":"1","id":"other"}'})
    refused = from_kraft(to=str(other))
    assert "is the metadata of cluster other, expected 7ym0r3ycTc-XAnwnQmXzjg or none" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--from-log-dir", "a", "--to-kraft", "b", "--check", "--rehearse", "c"), "can't be used with option"),
        (("--from-kraft", "a", "--to-kraft", "b"), "can't be used with option"),
        (("--from-kraft", "a", "--from-log-dir", "b", "--to-log-dir", "c"), "can't be used with option"),
        (("--from-log-dir", "a", "--to-log-dir", "b", "--check"), "--check needs --to-kraft or --from-kraft"),
        (("--from-kraft", "a", "--to-log-dir", "b", "--rehearse", "c"), "--rehearse needs --to-kraft"),
        (("--from-kraft", "a"), "Please specify either --to-zookeeper, --to-log-dir, --to-cluster or --to-kraft"),
    ],
)
def test_options_that_do_not_belong_together_are_usage_errors(
    run: RunTool, arguments: tuple[str, ...], complaint: str
) -> None:
    outcome = run(metadata_copy.main, *arguments)
    assert outcome.status == 1
    assert complaint in outcome.stderr


def test_a_folder_that_is_named_twice_is_refused(to_kraft: Callable[..., Outcome], data: Path) -> None:
    assert to_kraft(folders=f"{data},{data}/.").stderr == f"Error: {data} is named twice\n"


def test_a_rehearsal_copies_everything_without_a_valid_checkpoint(
    to_kraft: Callable[..., Outcome], data: Path, tmp_path: Path
) -> None:
    (data / "replication-offset-checkpoint").write_text("damaged")
    assert to_kraft("--rehearse", str(tmp_path / "rehearsal")).status == 0
    assert {path.stat().st_nlink for path in data.rglob("*") if path.is_file()} == {1}


def test_a_folder_that_does_not_exist_is_named(run: RunTool, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    outcome = run(metadata_copy.main, "--from-kraft", str(missing), "--to-log-dir", str(tmp_path))
    assert outcome.stderr == f"Error: {missing} is not a directory, expected log.dirs of a broker\n"
