"""Runs several jobs in one driver process, for a test that kills it: `python -m tests.spark_jobs.several_jobs JSON`.

The argument is a list of command lines without the program: the name of a job and its flags.
"""

import json
import sys
from importlib import import_module

from py4j.java_gateway import JavaPackage, JVMView

from spark_jobs.skeleton import runner
from spark_jobs.skeleton.session import spark_session
from tests.spark_jobs.conftest import remember_java_names


def main() -> int:
    commands: list[list[str]] = json.loads(sys.argv[1])
    jobs = [import_module(f"spark_jobs.{name}").JOB for name, *_ in commands]
    parameters = [job.parse(flags) for job, (_, *flags) in zip(jobs, commands, strict=True)]
    for kind in (JVMView, JavaPackage):
        remember_java_names(kind)
    spark = spark_session("several jobs", parameters[0].session_settings())
    queries = [query for job, each in zip(jobs, parameters, strict=True) for query in job.build(spark, each)]
    return runner.supervise(queries, [])


if __name__ == "__main__":
    sys.exit(main())
