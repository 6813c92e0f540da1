"""The Spark session that every job runs in.

Owns the settings that make Spark small, local and reproducible, and the connectors' jars. Must not know jobs or
topics. Each default can be overridden; a job passes the values of `--master` and `--spark-conf`.
"""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from spark_jobs.skeleton.java_runtime.java_command import java_command
from spark_jobs.skeleton.java_runtime.pinned_jars import pinned_jars

CONNECTORS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}",
)

EXCLUDED = (
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.spark:spark-tags_2.13",
    "org.scala-lang:scala-library",
)
"""Jars that pyspark ships already."""

_PACKAGE = Path(__file__).resolve().parents[1]
_JARS = _PACKAGE.parent / ".cache" / "ivy" / "jars"
_LOOPBACK = "127.0.0.1"

_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"

DEFAULTS: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Timestamps are in UTC everywhere; a job that needs local days converts by name of the zone.
    "spark.sql.session.timeZone": "UTC",
    _EXECUTOR_OPTIONS: "-Duser.timezone=UTC",  # of a cluster, see _use_utc
    # Each shuffle partition is a state store: two are enough for two cores. A checkpoint keeps its first number.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # an object in a record may have a field twice
    "spark.sql.adaptive.enabled": "false",  # streaming cannot use it, and warns at every start
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

# Keeps Spark's own ports (driver, block manager) off the network, where no executor has to reach them.
_LOCAL_ONLY: Mapping[str, str] = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}


def spark_session(app_id: str, overrides: Mapping[str, str]) -> SparkSession:
    """Start Spark, or return the session that already runs in this process.

    The first start on a machine downloads the connectors (14 MB) and needs Java 17 or newer.
    Raises JobError without Java, and PinnedJarError if a jar cannot be fetched, or is not the one that this project was
    tested with.
    """
    java_command()
    settings = with_defaults(overrides)
    is_local = settings["spark.master"].startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)  # read by the JVM before any setting is
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the interpreter that has the packages
        settings = {**_LOCAL_ONLY, **settings}
    if "spark.jars.packages" not in settings:
        own_jars = filter(None, settings.get("spark.jars", "").split(","))
        settings["spark.jars"] = ",".join([*map(str, pinned_jars(_JARS)), *own_jars])
    builder = SparkSession.builder.appName(app_id)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _ignore_sigterm(session)
    _use_utc(session)
    if not is_local:
        _send_package(session)
    return session


def with_defaults(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session. Options of the executors' JVM are added to the default, the time zone."""
    options = [each[_EXECUTOR_OPTIONS] for each in (DEFAULTS, overrides) if _EXECUTOR_OPTIONS in each]
    return {**DEFAULTS, **overrides, _EXECUTOR_OPTIONS: " ".join(options)}


def _ignore_sigterm(session: SparkSession) -> None:
    """Let the JVM outlive SIGTERM, which timeout(1) and systemd send to all processes of a job.

    This process finishes the current batch first. The JVM ends with it, because its standard input is closed then.
    """
    jvm: Any = session.sparkContext._jvm
    jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)


def _use_utc(session: SparkSession) -> None:
    """Set the time zone of the JVM: JDBC drivers take times without a zone for times of that zone."""
    zones: Any = session.sparkContext._jvm.java.util.TimeZone
    zones.setDefault(zones.getTimeZone("UTC"))


def _send_package(session: SparkSession) -> None:
    """Give the executors of a cluster the modules that the jobs' functions import, until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="spark-jobs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    session.sparkContext.addPyFile(str(archive_package(folder)))


def archive_package(folder: Path) -> Path:
    """Write an archive with this package and `base`, all that executors get of the project; return its path."""
    path = folder / "spark_jobs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (_PACKAGE.parent / "base", _PACKAGE):
            for module in sorted(package.rglob("*.py")):
                archive.write(module, module.relative_to(_PACKAGE.parent))
    return path
