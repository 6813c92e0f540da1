"""The tools of Kafka 3.9 that Milena does not have: each launcher prints why, and what to use instead.

Owns their names and reasons; docs/not-yet.md has the same text. Must not know the tools that exist.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Missing(NamedTuple):
    """Why a tool is missing, and what to use instead."""

    reason: str
    instead: str


_NEEDS_RAFT = "it needs KRaft, and Milena keeps metadata as Kafka in ZooKeeper mode"

TOOLS: Mapping[str, Missing] = {
    "kafka-metadata-shell": Missing(_NEEDS_RAFT, "`zookeeper-shell` reads the metadata, also of an embedded store"),
    "trogdor": Missing(
        "Milena has no agents that inject faults", "the simulation runs clusters with faults (docs/simulation.md)"
    ),
}
"""By the name of the launcher. The reason completes "NAME is missing:", and `instead` completes "Use instead:"."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line on stderr about the tool in the first argument; return 1."""
    name, *_ = sys.argv[1:] if arguments is None else arguments
    missing = TOOLS[name]
    print(f"{name} is missing: {missing.reason}. Use instead: {missing.instead}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
