"""The launcher lists every job, and writes the module of a new one, which runs."""

import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.__main__ import main
from spark_jobs.skeleton import session
from spark_jobs.skeleton.catalog import jobs, write_template
from tests.spark_jobs.conftest import Topics, lines, record_ids, records
from tests.spark_jobs.test_documentation import PAGE


def test_every_job_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(jobs())
    assert {"wordcount", "flights_daily", "flights_produce"} <= jobs().keys()
    assert all(len(line) > 30 and line.endswith(".") for line in listed)


@pytest.mark.parametrize("name", jobs())
def test_every_job_describes_its_flags_with_defaults(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([name, "--help"])
    assert exit_.value.code == 0
    assert f"usage: spark-job {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["no_such_job"], ["skeleton"], ["missing.py"], ["--new", "a-b"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err
    assert not captured.out


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("kept")
    with pytest.raises(FileExistsError):
        write_template("mine", tmp_path)
    assert (tmp_path / "mine.py").read_text() == "kept"


@pytest.mark.spark
def test_the_page_shows_how_to_use_the_session_alone(
    topics: Topics, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("flights", 1)
    topics.send(topic, lines("a", "b"))
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (snippet,) = (each for each in snippets if "spark_session" in each)
    for documented, own in (("localhost:9092", topics.bootstrap), ('"flights"', f'"{topic}"')):
        assert documented in snippet
        snippet = snippet.replace(documented, own)
    monkeypatch.setattr(session, "spark_session", lambda _app_id, _settings: spark)
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert names["records"].count() == 2


@pytest.mark.spark
@pytest.mark.usefixtures("shared_session")
def test_a_job_written_from_the_template_runs_by_its_path(
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "spark_jobs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["--new", "shout"]) == 0
    assert capsys.readouterr().out == "shout.py is written; run it: spark-job ./shout.py --help\n"
    source, target = topics.create("mine-in"), topics.new_name("mine-out")
    topics.send(source, lines("hello"))
    flags = ["--bootstrap-servers", topics.bootstrap, "--create-topics", "--checkpoint", str(tmp_path / "checkpoint")]
    flags += ["--input", source, "--output", target, "--trigger", "availableNow"]
    assert main(["./shout.py", *flags]) == 0
    assert records(topics.read(target)) == [(None, "HELLO")]
    assert record_ids(topics.read(target)) == [f"{source}/0/0"]
    reported = [message for message in caplog.messages if message.startswith("shout")]
    assert len(reported) == 2, caplog.messages
    assert "shout: batch 0: 1 records in" in reported[0]
    assert "shout: 1 records in 1 batch," in reported[1]
