"""A job on a Spark cluster: a standalone master with two workers, as processes of this machine."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.spark_jobs.conftest import Topics, last_values
from tests.spark_jobs.failure_cases import FAILURE_CASES
from tests.spark_jobs.quick_drivers import SHORT_LIVED_JVM, job_environment
from tests.support.java import java_executable, pyspark_jars
from tests.support.ports import free_port

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PROJECT = Path(__file__).parents[2]
START_TIMEOUT_S = 60
RECORDS = 1_000
BATCH = 200


def environment() -> dict[str, str]:
    return {
        **job_environment(),
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(pyspark_jars().parent),
        "SPARK_SCALA_VERSION": "2.13",  # the worker would search for a build of Spark
    }


@contextmanager
def spark_process(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(java_executable()), "-Xmx256m", "-cp", f"{pyspark_jars()}/*", f"org.apache.spark.deploy.{name}"]
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *arguments], cwd=folder, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers."""
    folder = tmp_path_factory.mktemp("spark-cluster")
    port, page = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as processes:
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        processes.enter_context(spark_process(folder, "master.Master", *master))
        for number in range(2):
            worker = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(free_port())]
            work = ["--work-dir", str(folder / f"work-{number}")]
            processes.enter_context(spark_process(folder, "worker.Worker", *worker, *work, url))
        deadline = time.monotonic() + START_TIMEOUT_S
        while (folder / "master.Master.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < deadline, (folder / "master.Master.log").read_text()
            time.sleep(0.1)
        yield url


def executors() -> list[int]:
    """Return the processes of executors on this machine that the workers of the test started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in content and b"spark://" in content:
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("job_name", FAILURE_CASES)
def test_a_job_on_a_cluster_survives_the_death_of_an_executor(
    job_name: str, master: str, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create("cluster-input", 4), topics.create("cluster-output", 1)
    case = FAILURE_CASES[job_name](RECORDS)
    topics.send(source, [replace(record, partition=number % 4) for number, record in enumerate(case.records)])
    before = set(executors())
    command = [
        sys.executable, "-P", "-m", "spark_jobs", job_name, "--bootstrap-servers", topics.bootstrap,
        "--input", source, "--output", target, "--checkpoint", str(tmp_path / "checkpoint"),
        "--master", master, "--trigger", "availableNow", "--max-offsets-per-trigger", str(BATCH),
        "--spark-conf", "spark.executor.memory=512m", "--spark-conf", "spark.driver.host=127.0.0.1",
        "--spark-conf", f"spark.executor.extraJavaOptions={SHORT_LIVED_JVM}",
    ]  # fmt: skip
    with subprocess.Popen(command, env=environment(), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        reported = []
        killed = Counter[str]()
        for line in job.stderr:
            reported.append(line)
            if f"{job_name}: batch 2: " in line and not killed:
                for pid in sorted(set(executors()) - before)[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed["executors"] += 1
    assert job.returncode == 0, "".join(reported)
    assert killed["executors"] == 1
    case.check(last_values(topics.read(target)))
