"""The tables of kafka-consumer-groups and kafka-share-groups: formats rows of text with Kafka's columns and widths.

Pure; the caller computes the cells. Columns are left-justified and grow with their content if Kafka's do. The blank
after the last column of some tables is part of Kafka's output.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MISSING = "-"


class Column(NamedTuple):
    """A heading, the minimum width, and whether longer cells widen the column. Width 0 means no padding."""

    heading: str
    width: int
    grows: bool = False


OFFSETS = (
    Column("GROUP", 15, grows=True),
    Column("TOPIC", 15, grows=True),
    Column("PARTITION", 10),
    Column("CURRENT-OFFSET", 15),
    Column("LOG-END-OFFSET", 15),
    Column("LAG", 15),
    Column("CONSUMER-ID", 15, grows=True),
    Column("HOST", 15, grows=True),
    Column("CLIENT-ID", 0),
)
MEMBERS = (
    Column("GROUP", 15, grows=True),
    Column("CONSUMER-ID", 15, grows=True),
    Column("HOST", 15, grows=True),
    Column("CLIENT-ID", 15, grows=True),
    Column("#PARTITIONS", 15),
    Column("", 0),
)
STATES = (
    Column("GROUP", 25),
    Column("COORDINATOR (ID)", 25, grows=True),
    Column("ASSIGNMENT-STRATEGY", 20),
    Column("STATE", 15),
    Column("#MEMBERS", 0),
)
NEW_OFFSETS = (Column("GROUP", 30), Column("TOPIC", 30), Column("PARTITION", 10), Column("NEW-OFFSET", 15))
DELETED_OFFSETS = (Column("TOPIC", 30), Column("PARTITION", 15), Column("STATUS", 15))
SHARE_STATE_LIST = (Column("GROUP", 15, grows=True), Column("STATE", 0))
SHARE_NEW_OFFSETS = (
    Column("GROUP", 15, grows=True),
    Column("TOPIC", 15, grows=True),
    Column("PARTITION", 10),
    Column("NEW-OFFSET", 0),
)
SHARE_DELETED_OFFSETS = (Column("TOPIC", 15, grows=True), Column("STATUS", 0))

_STATIC_MEMBER = Column("GROUP-INSTANCE-ID", 17, grows=True)
_LISTED_GROUP_MARGIN = 10


def member_columns(*, with_instance_id: bool, with_assignment: bool) -> tuple[Column, ...]:
    """Return the columns of a table of members."""
    columns = [*MEMBERS]
    if with_assignment:
        columns[-1] = Column("ASSIGNMENT", 0)
    if with_instance_id:
        columns.insert(2, _STATIC_MEMBER)
    return tuple(columns)


def listed_columns(groups: Iterable[str], headings: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of a list of groups with states or types."""
    width = max([15, *map(len, groups)]) + _LISTED_GROUP_MARGIN
    return (Column("GROUP", width), *(Column(heading, 20) for heading in headings))


def share_offset_columns(*, is_verbose: bool) -> tuple[Column, ...]:
    """Return the columns of the start offsets of a share group."""
    place = (Column("GROUP", 15, grows=True), Column("TOPIC", 15, grows=True), Column("PARTITION", 10))
    return (*place, *([Column("LEADER-EPOCH", 13)] if is_verbose else []), Column("START-OFFSET", 0))


def share_member_columns(*, is_verbose: bool) -> tuple[Column, ...]:
    """Return the columns of the members of a share group."""
    named = (Column(heading, 15, grows=True) for heading in ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID"))
    epoch = [Column("MEMBER-EPOCH", 13)] if is_verbose else []
    return (*named, Column("#PARTITIONS", 12), *epoch, Column("ASSIGNMENT", 0))


def share_state_columns(*, is_verbose: bool) -> tuple[Column, ...]:
    """Return the columns of the state of a share group."""
    group = (Column("GROUP", 15, grows=True), Column("COORDINATOR (ID)", 25, grows=True), Column("STATE", 15))
    epochs = [Column("GROUP-EPOCH", 12), Column("ASSIGNMENT-EPOCH", 17)] if is_verbose else []
    return (*group, *epochs, Column("#MEMBERS", 0))


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the heading and the rows as lines."""
    cells = [[column.heading for column in columns], *rows]
    widths = [
        max([column.width, *(len(row[index]) for row in cells)]) if column.grows else column.width
        for index, column in enumerate(columns)
    ]
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
