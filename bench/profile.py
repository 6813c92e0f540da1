"""Runs one case against Milena under cProfile and prints the profile.

    python -m bench.profile produce-1-in-flight

Calls cost more under the profiler, so the figures show shares and counts, not speed. Times inside built-in functions
(receiving, writing, checksums) are close to the real ones.

Owns the run under the profiler. Must not know any case.
"""

from __future__ import annotations

import argparse
import pstats
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.cases import CASES
from bench.names import MILENA
from bench.scale import QUICK
from bench.subject import Subject, running
from tests.support.broker import BrokerProcess, server_command

LINES = 40


class ProfiledBroker(BrokerProcess):
    """Milena's broker, which writes its profile to `profile` at its stop."""

    def __init__(self, folder: Path) -> None:
        self.profile = folder / "profile"
        super().__init__(folder, command=self._profiled)

    def _profiled(self, settings: Path) -> Sequence[str]:
        interpreter, *arguments = server_command(settings)
        without_safe_path = [argument for argument in arguments if argument != "-P"]
        return [interpreter, "-m", "cProfile", "-o", str(self.profile), *without_safe_path]


def main() -> None:
    cases = {case.name: case for case in CASES if case.on_running is not None}
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=cases)
    parser.add_argument("--seconds", type=float, default=5, help="length of the case, where it has one (default: 5)")
    parser.add_argument("--sort", default="tottime", help="tottime (default) or cumtime")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="milena-profile-") as folder:
        server = ProfiledBroker(Path(folder))
        with running(server):
            on_running = cases[options.case].on_running
            assert on_running is not None
            print(dict(on_running(Subject(MILENA, server), replace(QUICK, section_s=options.seconds))))
        pstats.Stats(str(server.profile), stream=sys.stdout).sort_stats(options.sort).print_stats(LINES)


if __name__ == "__main__":
    main()
