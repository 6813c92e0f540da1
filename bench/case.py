"""The definition of a case of the benchmark.

Owns: the row of the table of cases. Must not know any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import ClusterSubject
from bench.measures import Better, Measure, Values
from bench.scale import Scale
from bench.servers import Server
from bench.subject import Subject

LOWER, HIGHER = Better.LOWER, Better.HIGHER


@dataclass(frozen=True)
class Case:
    """One row, with the one function that runs the case and returns the value of each measure, by name.

    `on_running` gets a warm server that other cases share. `on_new` gets a new server, not started yet, with `settings`
    in addition to those of all servers. `on_cluster` gets a running cluster of three brokers that other cases share.
    `of_worker` gets the name of a server and an empty folder, and measures that server's programs of Connect at brokers
    of Milena.
    `in_process` calls Milena's code without a server, in an empty folder, without a figure for Kafka. `rounds_max` is
    for cases that take long and vary little.
    """

    name: str
    title: str
    measures: tuple[Measure, ...]
    on_running: Callable[[Subject, Scale], Values] | None = None
    on_new: Callable[[Server, Scale], Values] | None = None
    on_cluster: Callable[[ClusterSubject, Scale], Values] | None = None
    of_worker: Callable[[str, Path, Scale], Values] | None = None
    in_process: Callable[[Path, Scale], Values] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    rounds_max: int | None = None

    def rounds(self, scale: Scale) -> int:
        return scale.rounds if self.rounds_max is None else min(scale.rounds, self.rounds_max)
