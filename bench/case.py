"""What a case of the benchmark is, and how much of it is done.

Owns: the row of the table of cases, and the scales at which they run. Must not know any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.measures import Better, Measure, Values
from bench.scale import Scale
from bench.servers import Server
from bench.subject import Subject

LOWER, HIGHER = Better.LOWER, Better.HIGHER


@dataclass(frozen=True)
class Case:
    """One row, with the one function that runs it; it returns a value for each of the measures, by name.

    `on_running` gets a warm server that other cases use too. `on_new` gets a fresh server, not started yet, which has
    `settings` beside what all servers get. `in_process` calls Milena's code without a server, in an empty folder:
    Kafka has no figure there. `rounds_max` is for cases that take long and vary little.
    """

    name: str
    title: str
    measures: tuple[Measure, ...]
    on_running: Callable[[Subject, Scale], Values] | None = None
    on_new: Callable[[Server, Scale], Values] | None = None
    in_process: Callable[[Path, Scale], Values] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    rounds_max: int | None = None

    def rounds(self, scale: Scale) -> int:
        return scale.rounds if self.rounds_max is None else min(scale.rounds, self.rounds_max)
