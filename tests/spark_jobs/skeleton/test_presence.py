"""The sign that a job runs is written at an interval, and removed at its end."""

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import split_errors
from spark_jobs.skeleton import runner
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.presence import RunningSign
from tests.spark_jobs.conftest import Topics
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

TIMEOUT_S = 30

until = partial(wait_until, timeout_s=TIMEOUT_S)


def test_the_sign_is_written_again_and_removed_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    sign = RunningSign(folder, interval_s=0.05)
    until((tmp_path / "running").exists)
    first_ms = folder.newest_change_ms()
    until(lambda: folder.newest_change_ms() > first_ms)
    assert folder.is_new_checkpoint()
    sign.close()
    assert not (tmp_path / "running").exists()


def test_the_sign_returns_after_a_failure_of_the_file_system(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, write = Folder(spark, str(tmp_path)), Folder.write_text
    failures = [OSError("away")] * 3

    class Failing(Folder):
        def write_text(self, name: str, text: str) -> None:
            if failures:
                raise failures.pop()
            write(self, name, text)

    sign = RunningSign(Failing(spark, str(tmp_path)), interval_s=0.01)
    until((tmp_path / "running").exists)
    sign.close()
    assert folder.names() == []
    assert caplog.text.count("has no sign that the job runs: away") == 1


@pytest.mark.usefixtures("shared_session")
def test_a_job_has_the_sign_while_it_runs(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "checkpoint"
    supervise = runner.supervise

    def supervise_with_sign(*arguments: object) -> int:
        until((checkpoint / "running").exists)
        return supervise(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "supervise", supervise_with_sign)
    source, errors, others = (topics.create(stem) for stem in ("lines", "errors", "others"))
    flags = ["--bootstrap-servers", topics.bootstrap, "--checkpoint", str(checkpoint), "--trigger", "availableNow"]
    assert split_errors.JOB.main([*flags, "--input", source, "--output", others, "--error-topic", errors]) == 0
    assert not (checkpoint / "running").exists()
