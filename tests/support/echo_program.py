"""A program that prints how it was started, and ends as its first argument says; for tests of starts."""

import atexit
import os
import signal
import sys
import time


def main() -> None:
    atexit.register(print, "at exit")
    name = os.environ.get("ECHO_NAME")
    print(__name__, sys.argv[1:], os.getcwd(), name, os.getpgrp() == os.getpid(), sys.stdin.read())
    print("an error", file=sys.stderr)
    match sys.argv[1]:
        case "return":
            return
        case "raise":
            raise ValueError("an exception")
        case "interrupt":
            signal.raise_signal(signal.SIGINT)  # in this thread: another one would take it a moment later
        case "hang":
            sys.stdout.flush()
            time.sleep(600)
        case status:
            sys.exit(int(status) if status.isdecimal() else status)


if __name__ == "__main__":
    main()
