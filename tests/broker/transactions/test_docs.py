"""docs/transactions.md agrees with the machine's tables, docs/formats/transaction-state.md with the writer.

`MILENA_REGENERATE=1` writes the generated parts anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from broker.transactions.machine import transaction as machine
from broker.transactions.machine.records import write_key, write_value
from broker.transactions.machine.states import RESTING, VALID_PREVIOUS, TransactionState
from broker.transactions.machine.transaction import ONGOING, Metadata
from protocol.errors import ErrorCode

DOCS = Path(__file__).parents[3] / "docs"
START_MS = 1_700_000_000_000

TABLES: dict[str, Mapping[TransactionState, object]] = {
    "InitProducerId": machine.ON_INIT_PRODUCER,
    "AddPartitionsToTxn, AddOffsetsToTxn": machine.ON_ADD_PARTITIONS,
    "Verification": machine.ON_VERIFY,
    "EndTxn, commit": machine.ON_COMMIT,
    "EndTxn, abort": machine.ON_ABORT,
    "EndTxn of version 2, commit": machine.ON_COMMIT_2,
    "EndTxn of version 2, abort": machine.ON_ABORT_2,
    "All markers are written": machine.AFTER_PREPARE,
}


def cell(reaction: object) -> str:
    if reaction is None:
        return "-"
    if isinstance(reaction, TransactionState):
        return f"{reaction.title} is stored"
    if isinstance(reaction, ErrorCode):
        return "each partition by itself" if reaction is ErrorCode.NONE else reaction.name
    return " ".join((reaction.__doc__ or "").split())


def table() -> str:
    rows = [["", *(state.title for state in RESTING)], ["---"] * (len(RESTING) + 1)]
    rows += [[f"**{name}**", *(cell(reactions.get(state)) for state in RESTING)] for name, reactions in TABLES.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def diagram() -> str:
    lines = [
        f"    {previous.title} --> {state.title}"
        for state in TransactionState
        for previous in TransactionState
        if previous in VALID_PREVIOUS[state] and previous is not state
    ]
    meanings = [f"- **{title}**: {meaning}" for title, meaning in meaning_of_states().items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", "", *meanings]) + "\n"


def meaning_of_states() -> dict[str, str]:
    """The text below each member in the source: Python does not keep it."""
    source = (DOCS.parent / "broker" / "transactions" / "machine" / "states.py").read_text()
    found = re.findall(r'    [A-Z_]+ = \(\d, "(\w+)"\)\n    """(.+?)"""', source, re.DOTALL)
    return {title: " ".join(text.split()) for title, text in found}


def test_documented_tables_of_transactions_are_current() -> None:
    path = DOCS / "transactions.md"
    text = path.read_text()
    expected = text
    for name, content in (("states", diagram()), ("table", table())):
        before, _, rest = expected.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        expected = f"{before}<!-- {name} -->\n{content}{end}{after}"
    if os.environ.get("MILENA_REGENERATE"):
        path.write_text(expected)
    assert text == expected


def test_every_table_of_the_machine_is_in_the_docs() -> None:
    tables = [value for name, value in vars(machine).items() if name.startswith(("ON_", "AFTER_"))]
    assert all(any(table is shown for shown in TABLES.values()) for table in tables)
    assert list(meaning_of_states()) == [state.title for state in TransactionState]


def test_documented_example_equals_the_written_records() -> None:
    text = (DOCS / "formats" / "transaction-state.md").read_text()
    (example,) = re.findall(r"```\n(key .+?)```", text, re.DOTALL)
    digits = re.findall(r"(?:^| )((?:[0-9a-f]{2} )*[0-9a-f]{2})(?= {2,}|$)", example, re.MULTILINE)
    metadata = Metadata(ONGOING, 7, 0, -1, -1, 60_000, {("t", 1): None}, START_MS, START_MS)
    assert bytes.fromhex("".join(digits)) == write_key("a") + write_value(metadata)
