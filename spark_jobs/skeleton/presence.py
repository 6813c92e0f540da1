"""The sign that a job runs: a file in its checkpoint, which is written at an interval.

`reset` deletes checkpoints, but not those of running jobs. While a job has no input, Spark changes no file there.
"""

import logging
from datetime import UTC, datetime
from threading import Event, Thread

from py4j.protocol import Py4JError

from spark_jobs.skeleton.folders import Folder

_LOG = logging.getLogger(__name__)
_NAME = "running"
_INTERVAL_S = 20.0
ACTIVE_MS = 60_000
"""A checkpoint without a change for this time belongs to a job that does not run."""


class RunningSign:
    """Writes the sign in a thread until it is closed, and removes it then."""

    def __init__(self, checkpoint: Folder, interval_s: float = _INTERVAL_S) -> None:
        self._checkpoint = checkpoint
        self._interval_s = interval_s
        self._ended = Event()
        self._thread = Thread(target=self._run, name="sign of a running job", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._checkpoint.write_text(_NAME, datetime.now(UTC).isoformat())
                if self._ended.wait(self._interval_s):
                    self._checkpoint.delete_file(_NAME)
                    return
        except (OSError, Py4JError) as error:  # the query reports what is wrong with its checkpoint
            _LOG.warning("%s has no sign that the job runs: %s", self._checkpoint, str(error).partition("\n")[0])
