"""A task whose work is a Spark job in a process of its own, and the connectors that have such tasks.

Owns the path from a command to its process, and what all these connectors do. Must not know their settings.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from spark_jobs.connect.base.api import Connector, JobTask, SinkConnector
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.connectors.spark_process import JobProcess
from spark_jobs.connect.connectors.spark_settings import Command

_ALTERED = (
    "The offsets of {0} are in the checkpoint of its Spark job, and cannot be changed here. To begin again, stop the "
    "connector, delete its folder in spark.checkpoint.folder, and delete the group connect-{0} if it is a sink"
)


class SparkTask(JobTask):
    """Runs the job of `command`."""

    module = "spark_jobs"
    _process: JobProcess | None = None

    @abstractmethod
    def command(self, config: Mapping[str, str]) -> Command:
        """Return the command line of the job. Raises ConfigError."""

    def start(self, config: Mapping[str, str]) -> None:
        job, flags, secrets = self.command(config)
        name = f"the job {job} of task {self.context.task_id}"
        self._process = JobProcess(name, self.module, [job, *flags], secrets)
        self._process.start()

    def check(self) -> None:
        assert self._process is not None
        self._process.check()

    def stop(self, timeout_s: float) -> None:
        if self._process is not None:
            self._process.stop(timeout_s)
            self._process = None


class SparkConnector(Connector):
    """Keeps its offsets in the checkpoint of its job."""

    def alter_offsets(self, config: Mapping[str, str], offsets: object) -> bool:
        """Raise ConfigError: a job begins where its checkpoint ends, whatever the group or the worker has."""
        raise ConfigError(_ALTERED.format(config["name"]))


class SparkSinkConnector(SparkConnector, SinkConnector):
    """Has one task: the tasks of Spark share the partitions."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self.config]
