"""What a Spark session gives to executors."""

import os
import subprocess
import sys
from pathlib import Path

from spark_jobs.skeleton.catalog import jobs
from spark_jobs.skeleton.session import archive_package, with_defaults


def test_the_archive_for_executors_needs_nothing_else_of_the_project(tmp_path: Path) -> None:
    """Executors unpickle functions of the jobs' modules, so they import these."""
    modules = ", ".join(f"spark_jobs.{name}" for name in jobs())
    environment = {**os.environ, "PYTHONPATH": str(archive_package(tmp_path))}
    command = [sys.executable, "-P", "-c", f"import {modules}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_executors_keep_their_time_zone_with_further_options() -> None:
    key = "spark.executor.extraJavaOptions"
    assert with_defaults({})[key] == "-Duser.timezone=UTC"
    assert with_defaults({key: "-Xss4m", "spark.master": "yarn"})[key] == "-Duser.timezone=UTC -Xss4m"
    assert with_defaults({"spark.master": "yarn"})["spark.master"] == "yarn"
