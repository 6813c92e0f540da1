"""Files of a folder are sent once, in order, across restarts, and then kept, moved or deleted."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.connect.base.api import SourceTask
from spark_jobs.connect.base.errors import ConfigError, ConnectError, DataError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.connectors.drop_folder import DropFolderSourceConnector, DropFolderSourceTask
from tests.spark_jobs.connect.connectors.ftp_server import PASSWORD, USER, FtpServer
from tests.spark_jobs.connect.contexts import FakeOffsets, acknowledge, poll_until, start_connector, start_source


@contextmanager
def started(folder: object, offsets: FakeOffsets | None = None, **others: str) -> Iterator[SourceTask]:
    config = {"folder": str(folder), "topic": "rows", "poll.interval.ms": "1"}
    settings = {name.replace("_", "."): each for name, each in others.items()}
    task = start_source(DropFolderSourceTask, config | settings, offsets)
    try:
        yield task
    finally:
        task.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def write(path: Path, text: str, mtime_s: int = 1_700_000_000) -> None:
    path.write_text(text)
    os.utime(path, (mtime_s, mtime_s))


def values(records: Sequence[SourceRecord]) -> list[Any]:
    return [record.value for record in records]


def poll_nothing(task: SourceTask) -> None:
    """Poll a few listings, in which nothing new is found."""
    for _ in range(4):
        assert task.poll() == []


def test_files_are_read_in_the_order_of_their_times(folder: Path) -> None:
    write(folder / "b.txt", "1\n2\n", 1_700_000_000)
    write(folder / "a.txt", "3\n", 1_700_000_001)
    with started(folder) as task:
        records = poll_until(task, 3)
        acknowledge(task, records)
        poll_nothing(task)
    assert values(records) == ["1", "2", "3"]
    first, second, third = records
    state = {"size": 4, "mtime": 1_700_000_000_000}
    assert first.source_partition == second.source_partition == {"file": str(folder / "b.txt")}
    assert (first.source_offset, second.source_offset) == (
        {"record": 1, **state},
        {"record": 2, **state, "finished": True},
    )
    assert third.source_partition == {"file": str(folder / "a.txt")}


def test_only_files_of_the_pattern_count(folder: Path, tmp_path: Path) -> None:
    for name in ("a.csv", ".b.csv", "c.txt"):
        write(folder / name, f"{name}\n")
    write(tmp_path / "secret", "secret\n")
    (folder / "link.csv").symlink_to(tmp_path / "secret")
    (folder / "folder.csv").mkdir()
    with started(folder, file_pattern="*.csv") as task:
        assert values(poll_until(task, 1)) == ["a.csv"]
        poll_nothing(task)


def test_a_file_that_grows_is_read_when_it_does_not(folder: Path) -> None:
    with started(folder) as task:
        task.poll()
        for number in range(3):
            write(folder / "a.txt", "line\n" * (number + 1), 1_700_000_000 + number)
            assert task.poll() == []
        assert len(poll_until(task, 3)) == 3


def test_a_restart_resumes_within_a_file(folder: Path) -> None:
    offsets = FakeOffsets()
    write(folder / "a.txt", "1\n2\n3\n4\n5\n")
    with started(folder, offsets, batch_size="3") as task:
        acknowledge(task, task.poll() or poll_until(task, 3)[:2], offsets)
    with started(folder, offsets) as task:
        assert values(poll_until(task, 3)) == ["3", "4", "5"]


def test_a_finished_file_is_not_read_again_after_a_restart_unless_it_has_changed(folder: Path) -> None:
    offsets = FakeOffsets()
    write(folder / "a.txt", "1\n")
    with started(folder, offsets) as task:
        acknowledge(task, poll_until(task, 1), offsets)
    with started(folder, offsets) as task:
        poll_nothing(task)
        write(folder / "a.txt", "1\n", 1_700_000_001)
        assert values(poll_until(task, 1)) == ["1"]


@pytest.mark.parametrize("after_file", ["move", "delete"])
def test_a_finished_file_goes_when_its_records_are_stored(after_file: str, folder: Path, tmp_path: Path) -> None:
    finished = tmp_path / "finished"
    settings: dict[str, Any] = {"after_file": after_file} | (
        {"finished_folder": str(finished)} if after_file == "move" else {}
    )
    with started(folder, **settings) as task:
        for number in range(2):
            write(folder / "a.txt", f"{number}\n", 1_700_000_000 + number)
            records = poll_until(task, 1)
            task.commit()
            assert (folder / "a.txt").exists()
            acknowledge(task, records)
            assert not (folder / "a.txt").exists()
        write(folder / "empty.txt", "")
        while (folder / "empty.txt").exists():
            task.poll()
            task.commit()
    if after_file == "move":
        assert {each.name: each.read_text() for each in finished.iterdir()} == {
            "a.txt": "0\n",
            "a.txt.1": "1\n",
            "empty.txt": "",
        }


def test_a_file_goes_after_a_restart_if_only_its_end_was_not_reached(folder: Path) -> None:
    offsets = FakeOffsets()
    write(folder / "a.txt", "1\n")
    with started(folder, offsets, after_file="delete") as task:
        offsets.store(poll_until(task, 1))  # and the worker is killed
    with started(folder, offsets, after_file="delete") as task:
        poll_nothing(task)
    assert list(folder.iterdir()) == []


def test_a_file_that_has_changed_since_it_was_read_is_not_deleted(folder: Path) -> None:
    with started(folder, after_file="delete") as task:
        write(folder / "a.txt", "1\n")
        records = poll_until(task, 1)
        write(folder / "a.txt", "1\n2\n", 1_700_000_001)
        poll_nothing(task)
        acknowledge(task, records)
        assert values(poll_until(task, 2)) == ["1", "2"]


def test_a_file_that_was_replaced_since_it_was_read_is_not_deleted(folder: Path) -> None:
    """The new file has size and time of the one that was read."""
    with started(folder, after_file="delete") as task:
        write(folder / "a.txt", "1\n")
        records = poll_until(task, 1)
        write(folder / ".new", "2\n")
        (folder / ".new").rename(folder / "a.txt")
        acknowledge(task, records)
        assert (folder / "a.txt").read_text() == "2\n"


def test_records_that_are_acknowledged_during_the_end_finish_their_file(folder: Path) -> None:
    write(folder / "a.txt", "1\n")
    with started(folder, after_file="delete") as task:
        records = poll_until(task, 1)
        task.stop()
        acknowledge(task, records)
    assert list(folder.iterdir()) == []


def test_a_malformed_record_ends_the_task_after_those_before_it(folder: Path) -> None:
    offsets = FakeOffsets()
    write(folder / "a.csv", "n\n1\n2\nx\n3\n")
    with started(folder, offsets, format="csv", csv_types="n:int") as task:
        records = poll_until(task, 2)
        acknowledge(task, records, offsets)
        with pytest.raises(DataError, match=r"a\.csv, line 4: column n is 'x': expected int"):
            task.poll()
    with started(folder, offsets, format="csv", csv_types="n:int") as task, pytest.raises(DataError, match="line 4"):
        poll_until(task, 1)


def test_malformed_records_are_skipped_and_counted_if_wanted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder / "a.csv", "n\nx\n1\ny\n2\n")
    with started(folder, format="csv", csv_types="n:int", malformed_rows="skip") as task:
        records = poll_until(task, 2)
    assert [record.value["n"] for record in records] == [1, 2]
    messages = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert messages[-1].endswith("a.csv: 2 malformed records were skipped")


def test_a_whole_file_has_its_name_as_key(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"\0\xff")
    with started(folder, format="whole") as task:
        (record,) = poll_until(task, 1)
    assert (record.key, record.value) == ("a.bin", b"\0\xff")


def test_tasks_share_the_files(folder: Path) -> None:
    names = {f"{number}.txt" for number in range(20)}
    for name in names:
        write(folder / name, f"{name}\n")
    config = {"folder": str(folder), "topic": "rows", "poll.interval.ms": "1"}
    found: list[set[str]] = []
    for each in start_connector(DropFolderSourceConnector, config).task_configs(2):
        task = start_source(DropFolderSourceTask, each)
        records: list[SourceRecord] = []
        for _ in range(40):
            records += task.poll()
        task.stop()
        found.append(set(values(records)))
    assert found[0]
    assert found[1] == names - found[0]


def test_a_folder_that_is_missing_is_waited_for(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.rmdir()
    with started(folder) as task:
        assert task.poll() == []
        assert "No such file" in caplog.text
        folder.mkdir()
        write(folder / "a.txt", "1\n")
        assert values(poll_until(task, 1)) == ["1"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FtpServer]:
    server = FtpServer(tmp_path)
    yield server
    server.close()


LOGIN: Mapping[str, Any] = {"folder_user": USER, "folder_password": PASSWORD}


def test_files_of_an_ftp_server_are_read_and_moved(server: FtpServer, folder: Path, tmp_path: Path) -> None:
    write(folder / "a.txt", "1\n2\n")
    (tmp_path / "done").mkdir()
    write(tmp_path / "done" / "a.txt", "earlier\n")
    with started(f"{server.url}/in", after_file="move", finished_folder="/done", **LOGIN) as task:
        records = poll_until(task, 2)
        acknowledge(task, records)
    assert values(records) == ["1", "2"]
    assert records[0].source_partition == {"file": f"{server.url}/in/a.txt"}
    assert (tmp_path / "done" / "a.txt.1").read_text() == "1\n2\n"
    assert server.logins == 1


def test_files_of_an_ftp_server_are_deleted(server: FtpServer, folder: Path) -> None:
    write(folder / "a.txt", "1\n")
    with started(f"{server.url}/in", after_file="delete", **LOGIN) as task:
        acknowledge(task, poll_until(task, 1))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", ["MLSD", "RETR"])
def test_an_ftp_server_that_fails_is_asked_again(
    command: str, server: FtpServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder / "a.txt", "1\n")
    server.refuses.add(command)
    with started(f"{server.url}/in", **LOGIN) as task:
        while "451 not now: tried again later" not in caplog.text:
            assert task.poll() == []
        server.refuses.clear()
        assert values(poll_until(task, 1)) == ["1"]
    assert server.logins > 1


def test_a_wrong_password_ends_the_task_and_is_not_shown(server: FtpServer, folder: Path) -> None:
    with started(f"{server.url}/in", folder_user=USER, folder_password="another") as task:
        with pytest.raises(ConnectError, match="530 no") as caught:
            task.poll()
        assert "another" not in str(caught.value)


class FakeSftp:
    """What paramiko has, on files of a local folder."""

    class AuthenticationException(Exception): ...  # noqa: N818

    class SSHException(Exception): ...  # noqa: N818

    class RejectPolicy: ...

    def __init__(self, root: Path) -> None:
        self.root = root
        self.policy: object = None

    def SSHClient(self) -> "FakeSftp":  # noqa: N802
        return self

    def load_system_host_keys(self) -> None: ...

    def set_missing_host_key_policy(self, policy: object) -> None:
        self.policy = policy

    def connect(self, host: str, port: int, **login: Any) -> None:
        assert (host, port, login["username"]) == ("host", 22, USER)
        if login["password"] != PASSWORD:
            raise self.AuthenticationException("Authentication failed.")

    def open_sftp(self) -> "FakeSftp":
        return self

    def close(self) -> None: ...

    def _path(self, name: str) -> Path:
        return self.root / name.strip("/")

    def listdir_attr(self, folder: str) -> list[SimpleNamespace]:
        found = [(each.name, each.stat()) for each in self._path(folder).iterdir()]
        return [
            SimpleNamespace(filename=name, st_mode=at.st_mode, st_size=at.st_size, st_mtime=int(at.st_mtime))
            for name, at in found
        ]

    def lstat(self, name: str) -> os.stat_result:
        return self._path(name).lstat()

    def listdir(self, folder: str) -> list[str]:
        return [each.name for each in self._path(folder).iterdir()]

    def getfo(self, name: str, copy: Any) -> None:
        copy.write(self._path(name).read_bytes())

    def mkdir(self, name: str) -> None:
        self._path(name).mkdir()

    def rename(self, name: str, target: str) -> None:
        self._path(name).rename(self._path(target))

    def remove(self, name: str) -> None:
        self._path(name).unlink()


@pytest.mark.parametrize("after_file", ["move", "delete"])
def test_files_of_an_sftp_server_are_read(
    after_file: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeSftp(tmp_path)
    monkeypatch.setitem(sys.modules, "paramiko", fake)
    write(folder / "a.txt", "1\n")
    settings: dict[str, Any] = {"after_file": after_file} | (
        {"finished_folder": "/done"} if after_file == "move" else {}
    )
    with started("sftp://host/in", **settings, **LOGIN) as task:
        records = poll_until(task, 1)
        acknowledge(task, records)
    assert values(records) == ["1"]
    assert isinstance(fake.policy, FakeSftp.RejectPolicy)
    assert not (folder / "a.txt").exists()
    assert (tmp_path / "done" / "a.txt").exists() == (after_file == "move")


def test_sftp_without_its_package_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(ConfigError, match=r"folder is sftp://.*pip install paramiko"), started("sftp://host/in"):
        pass


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        ("folder", {"folder": ""}),
        ("folder", {"folder": "s3://bucket/in"}),
        ("folder", {"folder": "ftp://me:hidden-word@host/in"}),
        ("folder", {"folder": "ftp:///in"}),
        ("topic", {"topic": ""}),
        ("finished.folder", {"after.file": "move"}),
        ("finished.folder", {"finished.folder": "/done"}),
        ("xml.record.path", {"format": "xml"}),
        ("after.file", {"after.file": "burn"}),
    ],
)
def test_a_wrong_setting_is_named(setting: str, changes: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=setting.replace(".", r"\.")) as caught:
        start_connector(DropFolderSourceConnector, {"folder": "/in", "topic": "rows"} | changes)
    assert "hidden-word" not in str(caught.value)


FILE, STATE = {"file": "/in/a.txt"}, {"size": 1, "mtime": 2}


@pytest.mark.parametrize(
    ("source_partition", "source_offset", "error"),
    [
        (FILE, {"record": 0, **STATE}, None),
        (FILE, None, None),
        ({"garbage": 1}, None, None),
        ({"garbage": 1}, {"record": 0, **STATE}, "'file'"),
        (FILE, {"record": -1, **STATE}, "'record'"),
        (FILE, {"record": 1}, "'mtime'"),
    ],
)
def test_offsets_that_a_user_sets_are_checked(
    source_partition: dict[str, Any], source_offset: dict[str, Any] | None, error: str | None
) -> None:
    connector = DropFolderSourceConnector()
    if error is None:
        assert connector.alter_offsets({}, [(source_partition, source_offset)])
    else:
        with pytest.raises(ConnectError, match=error):
            connector.alter_offsets({}, [(source_partition, source_offset)])
