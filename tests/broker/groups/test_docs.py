"""docs/groups.md agrees with the machine's tables, and docs/formats/consumer-offsets.md with the writer.

`MILENA_REGENERATE=1` writes the generated parts anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from broker.groups.machine import group, joins, rebalance
from broker.groups.machine.records import OffsetAndMetadata, offset_key, offset_value
from broker.groups.machine.states import VALID_PREVIOUS, GroupState
from protocol.errors import ErrorCode

DOCS = Path(__file__).parents[3] / "docs"

TABLES: dict[str, Mapping[GroupState, object]] = {
    "Join of a new member": joins.ON_JOIN_OF_NEW_MEMBER,
    "Join of a member": joins.ON_JOIN_OF_KNOWN_MEMBER,
    "Join of a static member under a new id": joins.ON_JOIN_OF_RETURNING_STATIC_MEMBER,
    "Sync": group.ON_SYNC,
    "Heartbeat": group.ON_HEARTBEAT,
    "Commit of a member": group.ON_COMMIT,
    "Leave or expiry, after the member is gone": rebalance.AFTER_REMOVAL,
    "Delete": group.ON_DELETE,
}


def cell(reaction: object) -> str:
    if isinstance(reaction, ErrorCode):
        return "ok" if reaction is ErrorCode.NONE else reaction.name
    return " ".join((reaction.__doc__ or "").split())


def table() -> str:
    states = list(GroupState)
    rows = [["", *(state.value for state in states)], ["---"] * (len(states) + 1)]
    rows += [[f"**{name}**", *(cell(reactions[state]) for state in states)] for name, reactions in TABLES.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def diagram() -> str:
    lines = [
        f"    {previous.value} --> {state.value}"
        for state in GroupState
        for previous in GroupState
        if previous in VALID_PREVIOUS[state] and previous is not state
    ]
    meanings = [f"- **{state.value}**: {meaning}" for state, meaning in meaning_of_states().items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", "", *meanings]) + "\n"


def meaning_of_states() -> dict[GroupState, str]:
    """The text below each member in the source: Python does not keep it."""
    source = (DOCS.parent / "broker" / "groups" / "machine" / "states.py").read_text()
    found = re.findall(r'    [A-Z_]+ = "(\w+)"\n    """(.+?)"""', source, re.DOTALL)
    return {GroupState(value): " ".join(text.split()) for value, text in found}


def test_documented_tables_of_groups_are_current() -> None:
    path = DOCS / "groups.md"
    text = path.read_text()
    expected = text
    for name, content in (("states", diagram()), ("table", table())):
        expected = re.sub(
            rf"<!-- {name} -->\n.*?<!-- end -->",
            lambda _, name=name, content=content: f"<!-- {name} -->\n{content}<!-- end -->",
            expected,
            flags=re.DOTALL,
        )
    if os.environ.get("MILENA_REGENERATE"):
        path.write_text(expected)
    assert text == expected


def test_every_table_of_the_machine_is_in_the_docs() -> None:
    tables = [
        value
        for module in (group, joins, rebalance)
        for name, value in vars(module).items()
        if name.startswith(("ON_", "AFTER_"))
    ]
    assert all(any(table is shown for shown in TABLES.values()) for table in tables)
    assert len(meaning_of_states()) == len(GroupState)


def test_documented_example_equals_the_written_records() -> None:
    text = (DOCS / "formats" / "consumer-offsets.md").read_text()
    (example,) = re.findall(r"```\n(key .+?)```", text, re.DOTALL)
    digits = re.findall(r"(?:^| )((?:[0-9a-f]{2} )*[0-9a-f]{2})(?= {2,}|$)", example, re.MULTILINE)
    value = OffsetAndMetadata(offset=5, metadata="", commit_timestamp_ms=1_700_000_000_000)
    assert bytes.fromhex("".join(digits)) == offset_key("g", "t", 0) + offset_value(value)
