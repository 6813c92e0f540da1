"""connect-distributed: one worker of a group, whose connectors are created over its REST interface."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from spark_jobs.connect.cli.running import WorkerProcess, command_line, load, run_worker
from spark_jobs.connect.worker.settings import WorkerSettings
from tools.base.command_line import CommandLine, UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    line = command_line(
        "connect-distributed",
        "Runs a worker of a group, which shares the connectors that are created over its REST interface.",
        "connect-distributed.properties",
    )
    return run_worker(line, _run, arguments)


def _run(_line: CommandLine, options: argparse.Namespace) -> None:
    if len(options.files) > 1:
        raise UsageError(f"{options.files[1]} is one file too many: connectors are created over the REST interface")
    WorkerProcess(WorkerSettings(load(options.files[0]), is_distributed=True)).run()


if __name__ == "__main__":
    raise SystemExit(main())
