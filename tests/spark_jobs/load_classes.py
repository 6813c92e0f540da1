"""Loads the classes of a driver for their archive: `python -m tests.spark_jobs.load_classes SETTINGS`, as JSON.

The jobs use what most tests use: stateful queries, the sinks, Python workers, and Derby.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from spark_jobs import beacon, lake_load, mirror, split_errors, warehouse_cdc, wordcount
from spark_jobs.skeleton.database import Database
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.session import spark_session
from tests.spark_jobs.conftest import JobRunner, Topics, objects
from tests.support.broker import BrokerProcess

CHANGE = {"table": "hosts", "op": "c", "position": 1, "after": {"id": 1}}
PARTS = 2  # the second part loads the state of the first


def main() -> None:
    spark = spark_session("classes", json.loads(sys.argv[1]))
    with tempfile.TemporaryDirectory() as name, BrokerProcess(Path(name) / "broker") as broker:
        folder, topics = Path(name), Topics(broker.bootstrap)
        runner = JobRunner(spark, topics, folder)
        source = topics.create("source", 1)
        counts, alarms, errors, others = (topics.create(stem, 1) for stem in ("counts", "alarms", "errors", "others"))
        Database(spark, f"jdbc:derby:{folder}/db;create=true").execute(["CREATE TABLE hosts (id INT PRIMARY KEY)"])
        jobs: list[tuple[Job[Any], list[str]]] = [
            (wordcount.JOB, ["--input", source, "--output", counts]),
            (beacon.JOB, ["--input", source, "--output", alarms]),
            (split_errors.JOB, ["--input", source, "--output", others, "--error-topic", errors, "--pattern", "x"]),
            (lake_load.JOB, ["--input", source, "--path", str(folder / "lake")]),
            (mirror.JOB, ["--target-servers", topics.bootstrap, "--topics", source, "--prefix", "T."]),
            (warehouse_cdc.JOB, ["--input", source, "--jdbc-url", f"jdbc:derby:{folder}/db", "--tables", "hosts:id"]),
        ]
        for _ in range(PARTS):
            topics.send(source, objects({"host": "x", "address": "y", **CHANGE}))
            for job, flags in jobs:
                runner.run(job, *flags, "--checkpoint", str(folder / job.name))
    spark.stop()


if __name__ == "__main__":
    main()
