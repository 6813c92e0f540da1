"""Where plug-ins are found, and what happens to modules that cannot be used."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.connectors.file_stream import FileStreamSourceConnector
from spark_jobs.connect.worker.plugins import Plugins

GOOD = """
from spark_jobs.connect.base.api import SinkConnector, SinkTask, Transformation

class Task(SinkTask):
    def start(self, config): ...
    def put(self, records): ...

class OwnConnector(SinkConnector):
    version = "7"
    task = Task

class Half(Transformation):
    "An abstract class: it is no plug-in."
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules are forgotten after the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "FileStreamSourceConnector",
        "FileStreamSource",
    ],
)
def test_a_built_in_connector_has_three_names(name: str) -> None:
    assert Plugins().connector(name) is FileStreamSourceConnector


def test_an_unknown_connector_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"which name matches NoSuch, available connectors are: .*FileStreamSource"):
        Plugins().connector("NoSuch")


def test_a_connector_of_a_folder_is_found_by_module_and_class(folder: Path) -> None:
    (folder / "own_good.py").write_text(GOOD)
    plugins = Plugins([folder])
    for name in ("own_good.OwnConnector", "OwnConnector", "Own"):
        assert plugins.connector(name).version == "7"
    assert plugins.find("Half") is None
    assert [(each.name, each.kind) for each in plugins.all if each.name.startswith("own_good")] == [
        ("own_good.OwnConnector", "sink")
    ]


def test_a_package_of_a_folder_is_found(folder: Path) -> None:
    package = folder / "own_package"
    package.mkdir()
    (package / "part.py").write_text(GOOD)
    (package / "__init__.py").write_text("from own_package.part import OwnConnector\n")
    assert Plugins([folder]).connector("Own").__module__ == "own_package.part"


def test_a_relative_folder_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own_relative.py").write_text(GOOD)
    monkeypatch.chdir(folder.parent)
    assert Plugins([Path(f"./{folder.name}/../{folder.name}")]).find("own_relative.OwnConnector") is not None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("import no_such_library", "ModuleNotFoundError"),
        ("def", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
def test_a_broken_module_is_reported_and_others_are_found(
    content: str, reason: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "own_broken.py").write_text(content)
    (folder / "own_other.py").write_text(GOOD)
    with caplog.at_level(logging.ERROR):
        plugins = Plugins([folder])
    assert plugins.find("own_other.OwnConnector") is not None
    assert f"the module own_broken in {folder} cannot be imported: {reason}" in caplog.text


def test_a_module_with_the_name_of_another_is_reported_and_replaces_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "json.py").write_text(GOOD)
    (folder / "__main__.py").write_text(GOOD)
    with caplog.at_level(logging.ERROR):
        plugins = Plugins([folder])
    assert "the module json in" in caplog.text
    assert "has the name of another module" in caplog.text
    assert plugins.find("OwnConnector") is None
    assert str(folder) == sys.path[-1]


def test_a_connector_with_the_name_of_a_built_in_one_does_not_replace_it(folder: Path) -> None:
    (folder / "own_shadow.py").write_text(GOOD.replace("OwnConnector", "FileStreamSinkConnector"))
    plugins = Plugins([folder])
    assert plugins.connector("FileStreamSink").__module__ != "own_shadow"
    assert plugins.connector("own_shadow.FileStreamSinkConnector").__module__ == "own_shadow"


def test_a_folder_that_does_not_exist_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        Plugins([tmp_path / "missing"])
    assert f"plugin.path names {tmp_path / 'missing'}" in caplog.text
