"""The settings of Spark for drivers of tests, which run short queries over few records.

Owns: these settings, and an archive of the classes that a driver loads. Must not know the tests.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from spark_jobs.skeleton.java_runtime.pinned_jars import pinned_jars
from spark_jobs.skeleton.session import _JARS
from tests.support.class_archive import archive_options
from tests.support.ivy import CACHE, locked
from tests.support.java import UNVERIFIED, compiled, pyspark_jars

PROJECT = Path(__file__).parents[2]
# The optimizing compiler would use half of the CPU time of a driver that runs for a minute.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# With one compiler, 48 MB are reserved for compiled code. The jobs of all tests in one driver compile more than that:
# the JVM would search for code to discard, and compile it again.
_FOR_ALL_JOBS = "-XX:ReservedCodeCacheSize=256m -Xmn300m"
_QUICK_DERBY = "-Dderby.system.durability=test -Dderby.stream.error.file=/dev/null"
_WORKER_PYTHON = Path(__file__).with_name("worker_python")
_OF_THE_RUN = ("SPARK_LOCAL_DIRS", "SPARK_SUBMIT_OPTS")
_FILE_SYSTEM = Path(__file__).parent / "java" / "QuickLocalFileSystem.java"
# The jars that most classes come from: the JVM searches its three hundred jars in order.
_FIRST_JARS = (
    "spark-catalyst_",
    "spark-sql_",
    "spark-core_",
    "scala-library-",
    "spark-sql-api_",
    "spark-common-utils_",
)


@cache
def quick_settings() -> dict[str, str]:
    """Return settings for drivers of tests. Raises UnavailableError.

    The first call on a machine makes the archive of classes, which takes about a minute. In CI, where each run begins
    without one, that is more than it saves.
    """
    first = first_jars()
    if os.environ.get("CI"):
        return _settings(first, " ".join(UNVERIFIED))

    def run(option: str) -> None:
        command = [sys.executable, "-P", "-m", "tests.spark_jobs.load_classes", json.dumps(_settings(first, option))]
        environment = {**job_environment(), "PYTHONPATH": str(PROJECT)}
        # The JVM has the pipe too: this waits until it has ended, after the program.
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"a driver cannot load its classes:\n{done.stderr}")

    jars = [*first, *sorted(pyspark_jars().glob("*.jar"))]
    return _settings(first, " ".join(archive_options("spark", jars, CACHE / "archives", run)))


def quick_flags() -> list[str]:
    """Return `quick_settings` as flags of a job's process."""
    return [part for key, value in quick_settings().items() for part in ("--spark-conf", f"{key}={value}")]


def job_environment() -> dict[str, str]:
    """Return the environment of a job in a process of its own: pyspark's variables would connect it to this JVM.

    Those that name the folder of the test run stay: what a job that is killed leaves there goes with the run.
    """
    own = {
        key: value
        for key, value in os.environ.items()
        if key in _OF_THE_RUN or not key.startswith(("PYSPARK_", "SPARK_"))
    }
    return own | worker_environment()


def worker_environment() -> dict[str, str]:
    """Return the variables that choose the Python of Spark's workers."""
    return {"PYSPARK_PYTHON": str(_WORKER_PYTHON), "WORKER_PYTHON": sys.executable}


def first_jars() -> list[Path]:
    """Return the jars that a driver's JVM searches first; makes and fetches the missing ones.

    Raises UnavailableError, PinnedJarError, and JobError without Java.
    """
    jars = pyspark_jars()
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(CACHE / "drivers.lock"):  # each worker with a driver would start a compiler, and Ivy
        return [
            _jar_of(compiled(_FILE_SYSTEM, jars, CACHE / "classes")),
            *(next(jars.glob(f"{name}*.jar")) for name in _FIRST_JARS),
            *pinned_jars(_JARS),  # an archive has no classes that a later class loader loads
        ]


def _jar_of(classes: Path) -> Path:
    """Return a jar with the classes of a folder: a class path with a folder cannot have an archive."""
    jar = classes.with_suffix(".jar")
    if not jar.exists():
        partial = Path(tempfile.mkstemp(dir=classes.parent)[1])
        with zipfile.ZipFile(partial, "w") as content:
            for file in sorted(classes.iterdir()):
                content.write(file, file.name)
        partial.replace(jar)
    return jar


def _settings(first_jars: list[Path], more_options: str) -> dict[str, str]:
    file_system = _FILE_SYSTEM.stem
    return {
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED_JVM} {_FOR_ALL_JOBS} {_QUICK_DERBY} {more_options}".strip(),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, first_jars)),
        "spark.hadoop.fs.file.impl": file_system,
        "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{file_system}$ForContexts",
        "spark.python.daemon.module": "tests.spark_jobs.warm_daemon",
        # Workers of functions would have another environment than those of state, and so a daemon of their own.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # One state store per query: each costs a batch a fixed time.
        "spark.sql.shuffle.partitions": "1",
        # Hundreds of plans, few records each: compiling a plan takes longer than interpreting it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # A description of each plan for the page of Spark that no test reads.
        "spark.sql.ui.explainMode": "simple",
        # For errors, the line of the program that has made each column: three calls of the JVM, and its stack.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        # The first use of ICU computes the title case of every character.
        "spark.sql.icu.caseMappings.enabled": "false",
    }
