"""The sign that a job runs: a file in its checkpoint, which is written at an interval.

`reset` deletes checkpoints, but not those of running jobs. While a job has no input, Spark changes no file there.
"""

import logging
from contextlib import suppress
from datetime import UTC, datetime

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_jobs.skeleton.errors import cause_of
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.repeating import Repeater

_LOG = logging.getLogger(__name__)
_NAME = "running"
_INTERVAL_S = 20.0
_FAILURES = (OSError, Py4JError, PySparkException)
ACTIVE_MS = 60_000
"""A checkpoint without a change for this time belongs to a job that does not run."""


class RunningSign:
    """Writes the sign in a thread until it is closed, and removes it then; after a failure it tries again."""

    def __init__(self, checkpoint: Folder, interval_s: float = _INTERVAL_S) -> None:
        self._checkpoint = checkpoint
        self._is_failing = False
        self._repeater = Repeater("sign of a running job", interval_s, self._write)

    def close(self) -> None:
        self._repeater.close()
        with suppress(*_FAILURES):
            self._checkpoint.delete_file(_NAME)

    def _write(self) -> None:
        try:
            self._checkpoint.write_text(_NAME, datetime.now(UTC).isoformat())
            self._is_failing = False
        except _FAILURES as error:
            if not self._is_failing:  # the query reports what is wrong with its checkpoint
                _LOG.warning("%s has no sign that the job runs: %s", self._checkpoint, cause_of(error))
            self._is_failing = True
