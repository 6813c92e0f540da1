"""A job on a Spark cluster: a standalone master with two workers, as processes of this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from spark_jobs.samples import airport_lines
from tests.spark_jobs.conftest import SHORT_LIVED_JVM, Topics, job_environment, last_values, lines
from tests.spark_jobs.test_wordcount import plain_counts
from tests.support.java import java_executable, pyspark_jars

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PROJECT = Path(__file__).parents[2]
START_TIMEOUT_S = 60


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    port, page = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as processes:
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        processes.enter_context(spark_process(tmp_path, "master.Master", *master))
        for number in range(2):
            worker = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(free_port())]
            work = ["--work-dir", str(tmp_path / f"work-{number}")]
            processes.enter_context(spark_process(tmp_path, "worker.Worker", *worker, *work, url))
        deadline = time.monotonic() + START_TIMEOUT_S
        while (tmp_path / "master.Master.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < deadline, (tmp_path / "master.Master.log").read_text()
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


def test_a_job_on_a_cluster_survives_the_death_of_an_executor(master: str, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create("words", 4), topics.create("counts", 1)
    texts = list(airport_lines())
    for partition in range(4):
        topics.send(source, lines(*texts[partition::4], partition=partition))
    before = set(executors())
    command = [
        sys.executable, "-P", "-m", "spark_jobs", "wordcount", "--bootstrap-servers", topics.bootstrap,
        "--input", source, "--output", target, "--checkpoint", str(tmp_path / "checkpoint"),
        "--master", master, "--trigger", "availableNow", "--max-offsets-per-trigger", "400",
        "--spark-conf", "spark.executor.memory=512m", "--spark-conf", "spark.driver.host=127.0.0.1",
        "--spark-conf", f"spark.executor.extraJavaOptions={SHORT_LIVED_JVM}",
    ]  # fmt: skip
    with subprocess.Popen(command, env=environment(), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        reported = []
        killed = Counter[str]()
        for line in job.stderr:
            reported.append(line)
            if "wordcount: batch 2: " in line and not killed:
                for pid in sorted(set(executors()) - before)[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed["executors"] += 1
    assert job.returncode == 0, "".join(reported)
    assert killed["executors"] == 1
    assert last_values(topics.read(target)) == plain_counts(texts, {"the"})
