"""Whether the current batch waits for a cluster that does not respond.

A job that retries without end sets the event while it waits; then the runner does not wait for the end of the batch
after SIGTERM. One event for the process, as it runs one job.
"""

from threading import Event

BATCH_WAITS = Event()
