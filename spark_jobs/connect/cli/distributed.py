"""connect-distributed: one worker of a group, whose connectors are created over its REST interface."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.connect.cli.running import WorkerProcess, load, run_command
from spark_jobs.connect.worker.settings import WorkerSettings

USAGE = "connect-distributed [-daemon] connect-distributed.properties"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(USAGE, arguments, _run, 1)


def _run(arguments: Sequence[str]) -> None:
    WorkerProcess(WorkerSettings(load(arguments[0]), is_distributed=True)).run()


if __name__ == "__main__":
    raise SystemExit(main())
