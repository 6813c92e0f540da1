"""kafka-storage: what it prints and writes, and that a broker starts on what it wrote."""

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tools.files import storage_tool

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"broker.id=7\nlog.dirs={tmp_path}/a,{tmp_path}/b\n")
    return path


def test_random_uuids_are_cluster_ids(run: RunTool) -> None:
    texts = {run(storage_tool.main, "random-uuid").stdout for _ in range(20)}
    assert len(texts) == 20
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", text) for text in texts)


def test_directories_are_described_and_formatted(run: RunTool, config: Path, tmp_path: Path) -> None:
    before = run(storage_tool.main, "info", "--config", str(config))
    assert before == Outcome(
        1, f"Found problems:\n  {tmp_path}/a does not exist\n  {tmp_path}/b does not exist\n\n", ""
    )
    formatted = run(storage_tool.main, "format", "-c", str(config), "-t", CLUSTER_ID)
    lines = [f"Formatting {tmp_path}/{name} for broker 7 of cluster {CLUSTER_ID}.\n" for name in "ab"]
    assert formatted == Outcome(0, "".join(lines), "")
    assert (tmp_path / "a" / "meta.properties").read_text() == f"version=0\nbroker.id=7\ncluster.id={CLUSTER_ID}\n"
    after = run(storage_tool.main, "info", "-c", str(config))
    assert after.status == 0
    assert after.stdout == (
        f"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n\n"
        f"Found metadata: {{broker.id=7, cluster.id={CLUSTER_ID}, version=0}}\n\n"
    )
    again = run(storage_tool.main, "format", "-c", str(config), "-t", CLUSTER_ID)
    assert (again.status, again.stdout) == (1, "")
    assert again.stderr == (
        f"Log directory {tmp_path}/a is already formatted. Use --ignore-formatted to ignore this directory and format "
        "the others.\n"
    )
    ignored = run(storage_tool.main, "format", "-c", str(config), "-t", CLUSTER_ID, "-g")
    assert ignored == Outcome(0, "All of the log directories are already formatted.\n", "")
    foreign = run(storage_tool.main, "format", "-c", str(config), "-t", "x" * 22, "-g")
    assert foreign.status == 1
    assert foreign.stderr == f'{tmp_path}/a/meta.properties: cluster.id is "{CLUSTER_ID}", expected "{"x" * 22}"\n'


def test_a_broker_starts_with_the_chosen_id_and_its_store_is_backed_up(run: RunTool, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    config = tmp_path / "server.properties"
    config.write_text(f"broker.id=0\nlog.dirs={broker.log_dir}\n")
    password = "very-secret"
    scram = f"SCRAM-SHA-256=[name=alice,iterations=4096,password={password}]"
    formatted = run(storage_tool.main, "format", "-c", str(config), "-t", CLUSTER_ID, "--add-scram", scram)
    assert formatted.status == 0, formatted.stderr
    assert formatted.stdout.endswith("Added user alice with SCRAM-SHA-256.\n")
    assert password not in formatted.stdout
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert admin.list_topics(timeout=20).cluster_id == CLUSTER_ID
        users = admin.describe_user_scram_credentials(["alice"])["alice"].result(20)
        assert users.scram_credential_infos[0].iterations == 4096
        del admin  # it would print that its broker has stopped
        running = run(storage_tool.main, "backup", "-c", str(config), str(tmp_path / "running"))
        assert running.status == 0, running.stderr
    stopped = run(storage_tool.main, "backup", "-c", str(config), str(tmp_path / "stopped"))
    assert stopped.status == 0, stopped.stderr
    assert re.fullmatch(
        rf"Copied {broker.log_dir}/metadata\.sqlite up to transaction \d+ to {tmp_path}/stopped\.\n", stopped.stdout
    )
    assert (tmp_path / "stopped").stat().st_mode & 0o777 == 0o600
    again = run(storage_tool.main, "backup", "-c", str(config), str(tmp_path / "stopped"))
    assert again == Outcome(1, "", f"{tmp_path}/stopped exists, expected the name of a new file\n")
    assert sorted(path.name for path in tmp_path.glob("*ing*")) == ["running"]
    # Restored from the backup of the running broker: the copy replaces the files of the store.
    for path in broker.log_dir.glob("metadata.sqlite*"):
        path.unlink()
    (tmp_path / "running").rename(broker.log_dir / "metadata.sqlite")
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert admin.list_topics(timeout=20).cluster_id == CLUSTER_ID
        users = admin.describe_user_scram_credentials(["alice"])["alice"].result(20)
        assert users.scram_credential_infos[0].iterations == 4096


def test_damaged_and_different_directories_are_problems(run: RunTool, config: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    (tmp_path / "b").mkdir()
    outcome = run(storage_tool.main, "info", "-c", str(config))
    assert outcome.status == 1
    assert f"Found problems:\n  {tmp_path}/b is not formatted.\n" in outcome.stdout
    (tmp_path / "b" / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=c\n")
    outcome = run(storage_tool.main, "info", "-c", str(config))
    assert f"  {tmp_path}/b/meta.properties names broker 2 of cluster c\n" in outcome.stdout
    (tmp_path / "b" / "meta.properties").write_text("version=7\n")
    outcome = run(storage_tool.main, "info", "-c", str(config))
    assert f'  {tmp_path}/b/meta.properties: version is "7", expected 0\n' in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "This tool prepares"),
        (["info"], "kafka-storage: error: the following arguments are required: --config/-c"),
        (["info", "-c", "/nowhere"], "Cannot read /nowhere: No such file or directory"),
        (["format", "-c", "CONFIG"], "kafka-storage: error: the following arguments are required: --cluster-id/-t"),
        (["format", "-c", "CONFIG", "-t", "a b"], "Cluster ID string a b is invalid"),
        (["format", "-c", "CONFIG", "-t", "x", "--no-initial-controllers"], "--no-initial-controllers needs KRaft"),
        (["format", "-c", "CONFIG", "-t", "x", "-S", "SCRAM-SHA-1=[name=a,password=hush]"], "Invalid --add-scram"),
        (["backup", "-c", "CONFIG", "FILE"], "no embedded store of this broker was found"),
        (["backup", "-c", "CONFIG"], "kafka-storage: error: the following arguments are required: FILE"),
        (["migrate", "-c", "CONFIG"], "kafka-storage: error: expected one of --to and --from"),
        (["migrate", "-c", "CONFIG", "--to", "127.0.0.1:1"], "does not exist, expected a broker's log.dirs"),
    ],
)
def test_bad_command_lines_name_what_is_wrong(
    run: RunTool, config: Path, tmp_path: Path, arguments: list[str], error: str
) -> None:
    paths = {"CONFIG": str(config), "FILE": str(tmp_path / "backup.sqlite")}
    outcome = run(storage_tool.main, *(paths.get(part, part) for part in arguments))
    assert outcome.status == 1
    assert error in outcome.stderr.splitlines()[0]
    assert "hush" not in outcome.stderr.splitlines()[0]
