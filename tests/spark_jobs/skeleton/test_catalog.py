"""The launcher lists every job, and writes the module of a new one, which runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.__main__ import main
from spark_jobs.skeleton.catalog import jobs, write_template
from tests.spark_jobs.conftest import Topics, job_environment, lines, quick_flags, record_ids, records

PROJECT = Path(__file__).parents[3]


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
@pytest.mark.usefixtures("spark")  # which fetches the connector; in a new clone the job would report that it fetches it
def test_a_job_written_from_the_template_runs_by_its_path(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.new_name("mine-in"), topics.new_name("mine-out")
    topics.send(topics.create("unused"), lines("x"))
    command = [sys.executable, "-P", "-m", "spark_jobs"]
    environment = {**job_environment(), "PYTHONPATH": str(PROJECT)}
    written = subprocess.run(
        [*command, "--new", "shout"], cwd=tmp_path, env=environment, check=True, text=True, stdout=-1
    )
    assert written.stdout == "shout.py is written; run it: spark-job ./shout.py --help\n"
    topics.create_named(source, 1)
    topics.send(source, lines("hello"))
    # fmt: off
    flags = [
        "./shout.py", "--bootstrap-servers", topics.bootstrap, "--create-topics", "--checkpoint", "checkpoint",
        "--input", source, "--output", target, "--trigger", "availableNow", *quick_flags(),
    ]
    # fmt: on
    done = subprocess.run([*command, *flags], cwd=tmp_path, env=environment, check=False, text=True, stderr=-1)
    assert done.returncode == 0, done.stderr
    assert records(topics.read(target)) == [(None, "HELLO")]
    assert record_ids(topics.read(target)) == [f"{source}/0/0"]
    reported = [line for line in done.stderr.splitlines() if " INFO shout" in line or "ivy" in line.lower()]
    assert len(reported) == 2, done.stderr
    assert "shout: batch 0: 1 records in" in reported[0]
    assert "shout: 1 records in 1 batches" in reported[1]
