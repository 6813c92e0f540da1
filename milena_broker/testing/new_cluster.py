"""The type of the pytest fixture `kafka_cluster`.

Owns the type alone: `milena_broker.pytest_plugin` has the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, overload

from milena_broker.testing.broker import Cluster
from milena_broker.testing.process_cluster import ProcessCluster


class NewCluster(Protocol):
    """Starts a cluster that ends with the test."""

    @overload
    def __call__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        in_process: Literal[False] = False,
        racks: Sequence[str] = (),
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        folder: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> ProcessCluster: ...

    @overload
    def __call__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        in_process: Literal[True],
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        folder: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> Cluster: ...
