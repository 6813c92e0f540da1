"""Runs the cases against all servers, alternating, and reports.

    python -m bench.run                     everything: hours, with nothing else on the machine
    python -m bench.run --quick             one short round per case; its figures are rough
    python -m bench.run --case start --only milena
    python -m bench.run --case produce fetch --peers kafka-3.9,kafka-4.1,kfake
    python -m bench.run --case produce fetch --before ../milena-before

Exit code 1 when a case failed; a missed target is a result, not a failure.

Owns the order of rounds and servers. Must not know any case.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from base.compiled import form
from bench import machine, plot, report
from bench.case import Case
from bench.cases import CASES
from bench.cases.clusters import warm_up as warm_up_cluster
from bench.cases.consumers import IDLE_CONSUMERS
from bench.cases.requests import warm_up
from bench.cluster import SETTINGS, ClusterSubject
from bench.measures import Row, Values
from bench.names import KAFKA, MILENA, MILENA_BEFORE, OF_EVERY_CASE, PEERS, TITLES
from bench.scale import FULL, QUICK, Scale
from bench.servers import LAUNCHER, NEW_BROKERS, Contender, contenders, missing_programs, prepare_version
from bench.subject import Subject, running
from protocol.errors import KafkaError
from tests.support.apache_kafka import VERSION as KAFKA_VERSION
from tests.support.cluster import Cluster
from tools.launch import compiling

T = TypeVar("T")

CASE_GROUPS = ("application", "cluster", "connect", "fetch", "figures", "java", "produce", "threads")
DEFAULT_OUTPUT = Path("var/bench")


class Steps:
    """Shows the progress of the run: a bar on a terminal, otherwise one line per step.

    The bar moves only between measured sections: within them nothing else may use the processor.
    """

    def __init__(self, count: int) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal)
        self._console = console
        self._task = self.bar.add_task("", total=count)
        self._count = count
        self._done = 0

    def begin(self, what: str) -> None:
        if self._console.is_terminal:
            self.bar.update(self._task, description=what, refresh=True)
        else:
            self._console.out(f"{self._done + 1}/{self._count} {what}", highlight=False)

    def end(self) -> None:
        self._done += 1
        self.bar.update(self._task, completed=self._done, refresh=True)


class Run:
    """The values of every case, server and round of one run, in order."""

    def __init__(self, scale: Scale, steps: Steps) -> None:
        self.failures: list[str] = []
        self.left_out: list[str] = []
        """Which peers cannot run which case, and why."""
        self._scale = scale
        self._steps = steps
        self._values: defaultdict[tuple[str, str], list[Values]] = defaultdict(list)

    def on_new_servers(self, case: Case, players: Sequence[Contender]) -> None:
        assert case.on_new is not None
        for number in range(case.rounds(self._scale)):
            for player in _alternating(players, number):
                with self._step(case.title, player.name, f"round {number + 1}"):
                    server = player.new_server(case.settings)
                    self._values[case.name, player.name].append(case.on_new(server, self._scale))
                    shutil.rmtree(server.log_dir)

    def in_process(self, case: Case, folder: Path) -> None:
        assert case.in_process is not None
        for number in range(case.rounds(self._scale)):
            with (
                self._step(case.title, MILENA, f"round {number + 1}"),
                tempfile.TemporaryDirectory(prefix=f"{case.name}-", dir=folder) as data,
            ):
                self._values[case.name, MILENA].append(case.in_process(Path(data), self._scale))

    def of_workers(self, case: Case, names: Sequence[str], folder: Path) -> None:
        assert case.of_worker is not None
        for number in range(case.rounds(self._scale)):
            for name in _alternating(names, number):
                with (
                    self._step(case.title, name, f"round {number + 1}"),
                    tempfile.TemporaryDirectory(prefix=f"{case.name}-", dir=folder) as data,
                ):
                    self._values[case.name, name].append(case.of_worker(name, Path(data), self._scale))

    def warm_up(self, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with self._step("mixed load", subject.name, f"warming up for {self._scale.warm_up_s:g} s"):
                warm_up(subject, self._scale)

    def warm_up_clusters(self, subjects: Sequence[ClusterSubject]) -> None:
        for subject in subjects:
            with self._step("replicated load", subject.name, f"warming up for {self._scale.warm_up_s:g} s"):
                warm_up_cluster(subject, self._scale)

    def on_running_servers(self, case: Case, subjects: Sequence[Subject]) -> None:
        """Run a case once uncounted, and then its rounds, which a server that has failed does not run."""
        assert case.on_running is not None
        able = []
        for subject in subjects:
            is_peer = subject.name not in OF_EVERY_CASE
            with self._step(case.title, subject.name, "not counted", self.left_out if is_peer else self.failures):
                case.on_running(subject, self._scale)
                able.append(subject)
        for number in range(case.rounds(self._scale)):
            for subject in _alternating(able, number):
                with self._step(case.title, subject.name, f"round {number + 1}"):
                    self._values[case.name, subject.name].append(case.on_running(subject, self._scale))

    def on_cluster(self, case: Case, subjects: Sequence[ClusterSubject]) -> None:
        assert case.on_cluster is not None
        for number in range(case.rounds(self._scale)):
            for subject in _alternating(subjects, number):
                with self._step(case.title, subject.name, f"round {number + 1}"):
                    subject.cluster.heal()
                    self._values[case.name, subject.name].append(case.on_cluster(subject, self._scale))

    def rows(self, cases: Sequence[Case], names: Sequence[str]) -> list[Row]:
        return [
            Row(
                case.name,
                case.title,
                measure,
                {name: self._taken(case, name, measure.name) for name in names},
                max((0.0, *(share for name in names for share in self._taken(case, name, "client")))),
            )
            for case in cases
            for measure in case.measures
        ]

    def _taken(self, case: Case, server: str, measure: str) -> list[float]:
        return [values[measure] for values in self._values[case.name, server] if measure in values]

    @contextmanager
    def _step(self, title: str, server: str, what: str, failures: list[str] | None = None) -> Iterator[None]:
        """Run one step. Reports a case that fails on one server; the others continue."""
        self._steps.begin(f"{title}: {TITLES[server]}, {what}")
        try:
            yield
        except (KafkaError, OSError, RuntimeError) as error:
            failures = self.failures if failures is None else failures
            failures.append(f"{title}: {TITLES[server]}, {what}: {error}")
        self._steps.end()


def _alternating(players: Sequence[T], number: int) -> Sequence[T]:
    """Return the servers in the order of a round: the first of one round is the last of the next."""
    return players if number % 2 == 0 else players[::-1]


def measure(
    cases: Sequence[Case], names: Sequence[str], scale: Scale, folder: Path | None, before: Path | None = None
) -> Run:
    """Run the cases; those without a running server come first, so that no server uses memory or time during them.

    All data are in one temporary folder (below `folder`), which is deleted at the end. `MILENA_BEFORE` is in `before`.
    """
    of_every_case = [name for name in names if name in OF_EVERY_CASE]
    in_process = [case for case in cases if case.in_process is not None and MILENA in names]
    of_workers = [case for case in cases if case.of_worker is not None]
    on_new = [case for case in cases if case.on_new is not None]
    on_running = [case for case in cases if case.on_running is not None]
    on_cluster = [case for case in cases if case.on_cluster is not None]
    steps_on_new = sum(case.rounds(scale) for case in (*on_new, *of_workers))
    steps_on_running = bool(on_running) + sum(case.rounds(scale) + 1 for case in on_running)
    steps_on_cluster = bool(on_cluster) + sum(case.rounds(scale) for case in on_cluster)
    steps_of_every_case = len(of_every_case) * (steps_on_new + steps_on_cluster)
    steps_in_process = sum(case.rounds(scale) for case in in_process)
    steps = Steps(steps_of_every_case + len(names) * steps_on_running + steps_in_process)
    run = Run(scale, steps)
    with ExitStack() as started:
        data = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="milena-bench-", dir=folder)))
        started.enter_context(steps.bar)
        for case in in_process:
            run.in_process(case, data)
        for case in of_workers:
            run.of_workers(case, of_every_case, data)
        players = started.enter_context(contenders(names, data, before)) if on_new or on_running else []
        for case in on_new:
            run.on_new_servers(case, [player for player in players if player.name in OF_EVERY_CASE])
        if on_running:
            subjects = [_started(player, started) for player in players]
            run.warm_up(subjects)
            for case in on_running:
                run.on_running_servers(case, subjects)
    if on_cluster:
        with ExitStack() as started:
            data = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="milena-bench-", dir=folder)))
            clusters = [_started_cluster(name, data, started) for name in of_every_case]
            run.warm_up_clusters(clusters)
            for case in on_cluster:
                run.on_cluster(case, clusters)
    return run


def _started_cluster(name: str, data: Path, started: ExitStack) -> ClusterSubject:
    cluster = Cluster(data / name, settings=SETTINGS, new_broker=NEW_BROKERS[name], one_by_one=True)
    return started.enter_context(ClusterSubject(name, started.enter_context(cluster)))


def _started(player: Contender, started: ExitStack) -> Subject:
    server = player.new_server({})
    started.enter_context(running(server))
    return Subject(player.name, server)


def _write(rows: Sequence[Row], facts: dict[str, object], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    report.write_json(rows, facts, folder / "results.json")
    (folder / "results.md").write_text(report.markdown_table(rows))
    plot.draw(rows, folder / "results.png")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round per case")
    names = [*CASE_GROUPS, *(case.name for case in CASES)]
    only = f"only these; {', '.join(CASE_GROUPS)} stand for all whose names begin so"
    parser.add_argument("--case", nargs="+", action="extend", metavar="NAME", choices=names, help=only)
    parser.add_argument("--only", choices=[MILENA, *PEERS], help="one server alone; no ratios then")
    peers = f"what Milena is measured beside, with commas between: {', '.join(PEERS)} (default: {KAFKA})"
    parser.add_argument("--peers", type=_peers, metavar="NAMES", help=peers)
    before = "the root of an older version, which is measured beside; without Kafka then, unless --peers names it"
    parser.add_argument("--before", type=_version_folder, metavar="FOLDER", help=before)
    parser.add_argument("--rounds", type=int, help=f"rounds per case (default: {FULL.rounds}, quick: {QUICK.rounds})")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help=f"folder (default: {DEFAULT_OUTPUT})")
    parser.add_argument("--data", type=Path, help="where the servers keep their data (default: a temporary folder)")
    options = parser.parse_args()
    if options.only and (options.peers or options.before):
        parser.error("--only measures one server alone, expected neither --peers nor --before with it")
    return options


def _version_folder(text: str) -> Path:
    folder = Path(text).resolve()
    if not (folder / LAUNCHER).exists():
        raise argparse.ArgumentTypeError(f"{text!r} has no {LAUNCHER}, expected the root of a version of Milena")
    return folder


def _peers(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"{name!r} is not a peer, expected some of {', '.join(PEERS)}")
    return [name for name in PEERS if name in names]


def _names(options: argparse.Namespace) -> list[str]:
    if options.only:
        return [options.only]
    if options.before:
        return [MILENA, *(options.peers or ()), MILENA_BEFORE]
    return [MILENA, *(options.peers or (KAFKA,))]


def _is_chosen(case: Case, names: Sequence[str]) -> bool:
    return case.name in names or any(name in CASE_GROUPS and case.name.startswith(f"{name}-") for name in names)


def main() -> int:
    options = _parse()
    compiling.main()
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    names = _names(options)
    before = prepare_version(options.before) if options.before else None
    missing = missing_programs(names)
    names = [name for name in names if name not in missing]
    cases = [case for case in CASES if not options.case or _is_chosen(case, options.case)]
    machine.allow_open_files(IDLE_CONSUMERS)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the servers are stopped
    when = datetime.now(UTC).isoformat(timespec="seconds")
    run = measure(cases, names, scale, options.data, options.before)
    rows = run.rows(cases, names)
    left_out = [*(f"{TITLES[name]}: {reason}" for name, reason in missing.items()), *run.left_out]
    facts: dict[str, object] = {
        "when": when,
        "machine": machine.describe(),
        "kafka": KAFKA_VERSION,
        "scale": asdict(scale),
    }
    facts |= {"before": before, "hot_loops": form(), "left_out": left_out, "failures": run.failures}
    _write(rows, facts, options.output)
    report.show(rows, Console())
    for what in left_out:
        print(f"left out: {what}", file=sys.stderr)
    for failure in run.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
