"""A job: its name, its command line, the topics it needs and the function that starts its queries.

A job's module defines `JOB`. `bin/spark-job NAME` calls `JOB.main`; tests call `JOB.parse` and `JOB.build`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path
from typing import Generic, TypeVar

from confluent_kafka import KafkaException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.clients import LARGEST_REQUEST_BYTES
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.parameters import JobParameters, check_together, job_parser
from spark_jobs.skeleton.pictures import Draw
from spark_jobs.skeleton.runner import run_job
from spark_jobs.skeleton.topics import TopicSpec

P = TypeVar("P", bound=JobParameters)

COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
DEAD_LETTER_CONFIG: Mapping[str, str] = {"retention.ms": "-1", "max.message.bytes": LARGEST_REQUEST_BYTES}


def no_flags(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: the job has the common flags alone."""


def no_topics(_parameters: P) -> list[TopicSpec]:
    """Return nothing: the job uses --input and --output alone."""
    return []


@dataclass(frozen=True, kw_only=True)
class Job(Generic[P]):
    """What the skeleton has to know about a job."""

    name: str
    doc: str  # the module's docstring; its first line is the one of `bin/spark-job --list`
    parameters: type[P]
    build: Callable[[SparkSession, P], list[StreamingQuery]]
    input: str  # the default topics
    output: str
    input_config: Mapping[str, str] = field(default_factory=dict)  # of topics that --create-topics makes
    output_config: Mapping[str, str] = field(default_factory=dict)
    watermark: str | None = None  # the default; None for a job without event time
    add_flags: Callable[[argparse.ArgumentParser], None] = no_flags
    further_topics: Callable[[P], list[TopicSpec]] = no_topics  # beside --input and --output
    draw: Draw | None = None  # how --plot shows the last values of --output; None for a job without --plot

    def parse(self, arguments: Sequence[str] | None = None) -> P:
        """Parse the command line; an invalid one ends the process with exit code 2."""
        parser = job_parser(
            self.name,
            cleandoc(self.doc),
            input_topic=self.input,
            output_topic=self.output,
            watermark=self.watermark,
        )
        self.add_flags(parser)
        if self.draw is not None:
            parser.add_argument("--plot", metavar="FILE.png", help="draw the result when the job ends")
        parameters = self.parameters(**vars(parser.parse_args(arguments)))
        check_together(parser, parameters, {topic.name for topic in self.topics(parameters)})
        return parameters

    def topics(self, parameters: P) -> list[TopicSpec]:
        """Return the topics that must exist before the queries start."""
        specs = [parameters.topic(topic, self.input_config) for topic in parameters.input_topics]
        if parameters.output:
            specs.append(parameters.topic(parameters.output, self.output_config))
        specs += self.further_topics(parameters)
        if parameters.dead_letter is not None:
            specs.append(parameters.topic(parameters.dead_letter, DEAD_LETTER_CONFIG))
        return specs

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the job as a process and return its exit code."""
        parameters = self.parse(arguments)
        exit_code = run_job(parameters, self.build, self.topics(parameters))
        if exit_code or self.draw is None or parameters.plot is None:
            return exit_code
        # Spark's Python workers import the job's module, and matplotlib would double the time of their start.
        from spark_jobs.skeleton.plots import plot

        try:
            plot(
                parameters.client,
                parameters.output,
                self.draw,
                Path(parameters.plot),
            )
        except (JobError, KafkaException, OSError) as error:
            print(f"spark-job {self.name}: {error}", file=sys.stderr)
            return 1
        return 0
