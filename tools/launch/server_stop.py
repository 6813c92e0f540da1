"""kafka-server-stop: stops the brokers that were started from this installation."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.base.command_line import CommandLine, WithoutArguments, run_tool
from tools.launch.running_servers import running_brokers, wait_for_end

_BROKER_ROLE = "broker"
WAIT_DEFAULT_S = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Send SIGTERM, or the signal in the environment variable SIGNAL, and return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-server-stop",
        "This tool stops the brokers that were started from this installation.",
        ("--node-id 2 --wait",),
        without_arguments=WithoutArguments.RUN,
    )
    line.add_option(
        "--process-role", value="role", help_text="Only processes of this role; every process here is a broker."
    )
    line.add_option("--node-id", value="id", parse=int, help_text="Only the broker with this id.")
    line.add_option(
        "--wait",
        value="seconds",
        parse=float,
        value_is_optional=True,
        value_if_absent=WAIT_DEFAULT_S,
        help_text=f"Return when they have ended, or with status 1 after so many seconds ({WAIT_DEFAULT_S:g}).",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    brokers = [
        broker
        for broker in running_brokers()
        if options.process_role in (None, _BROKER_ROLE) and options.node_id in (None, broker.broker_id)
    ]
    if not brokers:
        print("No kafka server to stop")
        return 1
    pids = [broker.pid for broker in brokers]
    status = send_signal(pids)
    if status or options.wait is None:
        return status
    return _wait(set(pids), options.wait)


def _wait(pids: set[int], seconds: float) -> int:
    """Wait until the brokers have ended; return the exit status of the tool."""
    begin_s = time.monotonic()
    if left := wait_for_end(pids, seconds):
        print(f"Still running after {seconds:g} s: process {', '.join(map(str, sorted(left)))}", file=sys.stderr)
        return 1
    print(f"Stopped {len(pids)} broker{'s' if len(pids) > 1 else ''} in {time.monotonic() - begin_s:.1f} s")
    return 0


def send_signal(pids: Sequence[int]) -> int:
    """Send SIGTERM, or the signal in the environment variable SIGNAL; return the exit status of the tool."""
    number = _signal(os.environ.get("SIGNAL") or "TERM")
    if number is None:
        print(f"SIGNAL={os.environ['SIGNAL']} is not the name of a signal", file=sys.stderr)
        return 1
    for pid in pids:
        try:
            os.kill(pid, number)
        except PermissionError:
            print(
                f"Cannot stop process {pid}: it belongs to {_owner(pid)}. Run this tool as that user", file=sys.stderr
            )
            return 1
    return 0


def _owner(pid: int) -> str:
    """Return the user of a process, by number if the user has no name; "another user" without /proc."""
    try:
        return f"user {Path(f'/proc/{pid}').owner()}"
    except KeyError:
        return f"user {Path(f'/proc/{pid}').stat().st_uid}"
    except OSError:
        return "another user"


def _signal(name: str) -> signal.Signals | None:
    """Parse a signal: TERM, SIGTERM and 15 are equal."""
    if name.isdecimal():
        return next((number for number in signal.Signals if number == int(name)), None)
    return getattr(signal.Signals, f"SIG{name.upper().removeprefix('SIG')}", None)


if __name__ == "__main__":
    raise SystemExit(main())
