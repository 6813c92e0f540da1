"""The commands of docs/pipelines.md have flags that their jobs accept."""

import shlex
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from spark_jobs.skeleton.catalog import jobs

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
LAUNCHER = "$ bin/spark-job "
OF_THE_GALLERY = ("--bootstrap-servers", "localhost:9092", "--create-topics")


def documented() -> Iterator[list[str]]:
    """Yield job and flags of each command; those of the gallery leave out the same flags at each."""
    text = PAGE.read_text(encoding="utf-8")
    start, end = text.index("## Gallery"), text.index("## Options of all jobs")
    position = 0
    while (position := text.find(LAUNCHER, position)) >= 0:
        position += len(LAUNCHER)
        line_end = text.index("\n", position)
        while text[:line_end].endswith("\\"):
            line_end = text.index("\n", line_end + 1)
        words = shlex.split(text[position:line_end].replace("\\\n", " "), comments=True)
        if words[0] in jobs():
            yield [*words, *(OF_THE_GALLERY if start < position < end else ())]


class AcceptedError(Exception):
    """The command line was parsed, and the program begins."""


def begin(*_arguments: object) -> None:
    raise AcceptedError


@pytest.mark.parametrize("command", list(documented()), ids=" ".join)
def test_a_documented_command_is_accepted(command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "var" / "flights" / "table" / "batch=0").mkdir(parents=True)
    (tmp_path / "secured").mkdir()
    (tmp_path / "secured" / "client.properties").touch()
    monkeypatch.chdir(tmp_path)
    assert_is_accepted(command, monkeypatch)


def assert_is_accepted(command: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The job, which is the first word of a command, accepts the flags after it."""
    name, *flags = command
    module = import_module(f"spark_jobs.{name}")
    if hasattr(module, "JOB"):
        module.JOB.parse(flags)
        return
    for step in ("run_program", "spark_session"):
        monkeypatch.setattr(module, step, begin, raising=False)
    with pytest.raises(AcceptedError):
        module.main(flags)


def test_every_job_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in jobs() if f"`{name}`" not in text] == []
