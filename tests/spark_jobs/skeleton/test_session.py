"""What a Spark session gives to executors."""

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.skeleton.catalog import jobs
from spark_jobs.skeleton.session import _send_package, with_defaults


def test_the_archive_for_executors_needs_nothing_else_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors unpickle functions of the jobs' modules, so they import these. It is removed at the end."""
    at_exit: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", lambda *work, **named: at_exit.append(partial(*work, **named)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modules = ", ".join(f"spark_jobs.{name}" for name in jobs())
    sent: list[str] = []
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(addPyFile=sent.append))
    _send_package(session)
    (archive,) = sent
    environment = {**os.environ, "PYTHONPATH": archive}
    command = [sys.executable, "-P", "-c", f"import {modules}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for work in at_exit:
        work()
    assert list(tmp_path.iterdir()) == []


def test_executors_keep_their_time_zone_with_further_options() -> None:
    key = "spark.executor.extraJavaOptions"
    assert with_defaults({})[key] == "-Duser.timezone=UTC"
    assert with_defaults({key: "-Xss4m", "spark.master": "yarn"})[key] == "-Duser.timezone=UTC -Xss4m"
    assert with_defaults({"spark.master": "yarn"})["spark.master"] == "yarn"
