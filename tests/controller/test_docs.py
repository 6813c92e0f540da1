"""The diagrams in docs/controller.md are generated from the tables. `MILENA_REGENERATE=1` generates them again."""

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

import pytest

from controller.machine import partition_states, replica_states

State = TypeVar("State", bound=Enum)

PAGE = Path(__file__).parents[2] / "docs" / "controller.md"


def _picture(valid_previous: Mapping[State, frozenset[State]], start: State) -> str:
    """The transitions as a Mermaid diagram, which GitHub draws."""
    order = list(type(start))
    arrows = [
        f"    {before.value} --> {target.value}"
        for before in order
        for target in order
        if before in valid_previous[target]
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {start.value}", *arrows, "```"])


PICTURES = {
    "partition states": _picture(partition_states.VALID_PREVIOUS, partition_states.PartitionState.NON_EXISTENT),
    "replica states": _picture(replica_states.VALID_PREVIOUS, replica_states.ReplicaState.NON_EXISTENT),
}


@pytest.mark.parametrize("name", PICTURES)
def test_documented_state_diagrams_match_the_tables(name: str) -> None:
    page = PAGE.read_text()
    begin = page.index("\n", page.index(f"<!-- picture of {name}:"))
    end = page.index("<!-- end -->", begin)
    drawn = page[:begin] + "\n" + PICTURES[name] + "\n" + page[end:]
    if os.environ.get("MILENA_REGENERATE"):
        PAGE.write_text(drawn)
    assert page == drawn
