"""The Spark session that every job runs in.

Owns the settings that make Spark small, local and reproducible, and how it fetches its Kafka
connector. Must not know jobs or topics. Each default can be overridden; a job passes the values of `--spark-conf`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from spark_jobs.pinned_jars import WrongHashError, verify

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"

EXCLUDED = ("org.apache.hadoop:hadoop-client-runtime", "org.apache.hadoop:hadoop-client-api")
"""Jars that pyspark ships already."""

_HERE = Path(__file__).resolve().parent
_LOOPBACK = "127.0.0.1"

DEFAULTS: Mapping[str, str] = {
    # One small machine. The address keeps Spark's own ports (driver, block manager) off the network.
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The connector, from Maven Central only and into our own cache: Spark's default searches the user's
    # Maven and Ivy folders first and fails if one is incomplete.
    "spark.jars.packages": CONNECTOR,
    "spark.jars.excludes": ",".join(EXCLUDED),
    "spark.jars.ivySettings": str(_HERE / "ivysettings.xml"),
    "spark.jars.ivy": str(_HERE.parent / ".cache" / "ivy"),
    # Timestamps are in UTC everywhere; a job that needs local days converts by name of the zone.
    "spark.sql.session.timeZone": "UTC",
    # Each shuffle partition is a state store: two are enough for two cores. A checkpoint keeps its first number.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # streaming cannot use it, and warns at every start
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def spark_session(app_id: str, overrides: Mapping[str, str]) -> SparkSession:
    """Start Spark, or return the session that already runs in this process.

    The first start on a machine downloads the connector (14 MB) and needs Java 17 or newer.
    Raises WrongHashError if a jar of the connector is not the one that this project was tested with.
    """
    settings = {**DEFAULTS, **overrides}
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)  # read by the JVM before any setting is
    builder = SparkSession.builder.appName(app_id)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    jars = session.conf.get("spark.jars", "") or ""
    has_own_jars = "spark.jars" in settings or settings["spark.jars.packages"] != CONNECTOR
    try:
        verify(filter(None, jars.split(",")), is_complete=not has_own_jars)
    except WrongHashError:
        session.stop()
        raise
    return session
