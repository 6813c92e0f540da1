"""Milena's dump tool and Kafka's print the same for the same files: those of the fixtures and those of a new broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.interop.dumped import TOPIC
from tests.support.apache_kafka import JavaPrograms
from tests.support.parts import skip_when_unavailable
from tests.support.program_host import Outcome
from tests.tools.conftest import RunTool
from tests.tools.conftest import run as run  # a fixture
from tests.tools.files.test_dump_log import CASES, FIXTURES, as_of_kafka_4
from tools.files import dump_log

SUFFIXES = frozenset({".log", ".index", ".timeindex", ".txnindex", ".snapshot"})
TIMEOUT_S = 60


Print = Callable[[Path, Sequence[str]], Outcome]


@pytest.fixture
def kafkas(java_programs: JavaPrograms) -> Print:
    """Kafka's tool in a folder with some arguments."""

    def run(folder: Path, arguments: Sequence[str]) -> Outcome:
        with skip_when_unavailable():
            return java_programs.run_tool("kafka.tools.DumpLogSegments", *arguments, timeout_s=TIMEOUT_S, folder=folder)

    return run


@pytest.fixture
def ours(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> Print:
    """Our tool in a folder with some arguments."""

    def run_in(folder: Path, arguments: Sequence[str]) -> Outcome:
        monkeypatch.chdir(folder)
        return Outcome(*run(dump_log.main, *arguments))

    return run_in


@pytest.mark.parametrize("name", CASES)
def test_expected_dumps_are_those_of_kafka(kafkas: Print, ours: Print, name: str) -> None:
    folder, arguments = FIXTURES / "partitions", CASES[name]
    expected = kafkas(folder, arguments)
    assert expected.stdout == (FIXTURES / "expected" / f"{name}.txt").read_text()
    assert ours(folder, arguments) == expected._replace(stdout=as_of_kafka_4(expected.stdout))


def test_dump_of_a_brokers_files_equals_kafkas(kafkas: Print, ours: Print, dumped_folder: Path) -> None:
    for partition, option in (
        (f"{TOPIC}-0", "--print-data-log"),
        (f"{TOPIC}-0", "--index-sanity-check"),
        ("__consumer_offsets-0", "--offsets-decoder"),
    ):
        files = sorted(path for path in (dumped_folder / partition).iterdir() if path.suffix in SUFFIXES)
        names = ",".join(str(path.relative_to(dumped_folder)) for path in files)
        expected = kafkas(dumped_folder, ["--files", names, option])
        assert ours(dumped_folder, ["--files", names, option]) == expected
        assert expected.status == 0
