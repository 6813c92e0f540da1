"""Generate the source of a scanner: a reader that builds flat tuples, not objects, for the most frequent requests.

Owns which values a tuple holds. `protocol.reader` owns how they are read and what is rejected: a scanner accepts and
rejects the same bytes as the reader of the same version.

The result of a scanner is declared beside the message, as a named tuple of the fields that are needed. A list of
structs becomes a list of rows, which are named tuples too:

    class ScannedProduce(NamedTuple):         # ProduceRequest
        acks: int
        topic_data: list[ProduceRow]

    class ProduceRow(NamedTuple):             # TopicProduceData, PartitionProduceData
        name: str
        index_: int
        records: Records | None

A trailing underscore of a name is dropped: `index` and `count` are methods of every tuple.

If a row has fields of a nested list of structs, the outer struct is flattened: each nested struct becomes one row with
the values of the outer one, and an outer struct with an empty list becomes none:

    wire:  topic "a" [partition 0, partition 1], topic "b" [], topic "c" [partition 4]
    rows:  ("a", 0), ("a", 1), ("c", 4)

Invariants, checked when a scanner is generated: every field of a row exists in one of the structs; the outer struct's
values precede the nested list on the wire, so they are known when its rows are built.
"""

from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from protocol.reader import SLICES, Reader
from protocol.schema import Field, MessageInfo, Struct
from protocol.source import Source, literal, plan


def scanner_source(cls: type[Struct], info: MessageInfo, version: int, scanned: type[Any]) -> Source:
    """Return a function like that of `protocol.reader.reader_source`, which returns a `scanned` instead of a `cls`.

    It accepts only a memoryview; record sets are slices of it.

    Raises:
        TypeError: `scanned` names a field that the message does not have, or that follows the nested list.
    """
    return _Scanner(cls, info, version, scanned).source


class _Rows(NamedTuple):
    """The rows being generated: the function that appends them, their class, and the locals of values, by field."""

    target: str
    row: type[Any]
    values: dict[str, str]


class _Scanner(Reader):
    slices = {**SLICES, "records": "buffer[position:{end}]"}

    def __init__(self, cls: type[Struct], info: MessageInfo, version: int, scanned: type[Any]) -> None:
        self._scanned = scanned
        self._rows: _Rows | None = None
        super().__init__(cls, info, version)

    def message(self, cls: type[Struct]) -> None:
        """Read all fields into locals and build the tuple from the wanted ones."""
        self._row_classes = _row_classes(self._scanned)
        names = {field.name for field in cls.__fields__}
        wanted = _names(self._scanned)
        if not names.issuperset(wanted):
            raise TypeError(f"{self._scanned.__name__}: {cls.__name__} has no {sorted({*wanted} - names)}")
        self.fields(cls, "f0_", 0, cls.__name__)
        self.source.add(f"o0 = {self._tuple(self._scanned, [f'f0_{name}' for name in wanted])}")

    def struct(self, cls: type[Struct], depth: int, path: str) -> None:
        """Read a struct that is not part of a row into an object."""
        outer, self._rows = self._rows, None
        super().struct(cls, depth, path)
        self._rows = outer

    def structs(self, cls: type[Struct], target: str, depth: int, path: str) -> None:
        """Read a list of structs into rows; into objects if no row is declared for it."""
        rows = self._rows
        if rows is None:
            row = self._row_classes.get(target.removeprefix("f0_"))
            if row is None:
                super().structs(cls, target, depth, path)
                return
            self.source.add(f"{target} = []", f"append{depth} = {target}.append")
            rows = _Rows(f"append{depth}", row, {})
        nested = self._nested(cls, rows.row)
        values = {**rows.values, **{field.name: f"f{depth}_{field.name}" for field in cls.__fields__}}
        if nested is not None:
            _require_before(cls, nested, rows.row, self.version)
        wanted = _names(rows.row)
        missing = {*wanted} - {*values}
        if nested is None and missing:
            raise TypeError(f"{rows.row.__name__}: {cls.__name__} has no {sorted(missing)}")
        with self.source.block(f"for _ in range(n{depth}):"):
            outer, self._rows = self._rows, rows._replace(values=values) if nested is not None else None
            absent = [field for field in plan(cls, self.version).absent if field.name in wanted]
            if nested is not None:
                # The nested rows are built before the struct ends, which is where a reader assigns defaults to absent
                # fields.
                self.source.add(*(f"f{depth}_{field.name} = {literal(field.default)}" for field in absent))
            self.fields(cls, f"f{depth}_", depth, path)
            self._rows = outer
            if nested is None:
                made = self._tuple(rows.row, [values[name] for name in wanted])
                self.source.add(f"{rows.target}({made})")

    def _nested(self, cls: type[Struct], row: type[Any]) -> Field | None:
        """Return the nested list of structs that is flattened into the row, or None."""
        lists = [field for field in cls.__fields__ if field.is_array and field.struct is not None]
        return lists[0] if len(lists) == 1 and lists[0].name not in _names(row) else None

    def _tuple(self, cls: type[Any], values: list[str]) -> str:
        self.source.names[cls.__name__] = cls
        self.source.names["new_tuple"] = tuple.__new__
        return f"new_tuple({cls.__name__}, ({', '.join(values)},))"


def _names(cls: type[Any]) -> list[str]:
    """Return the names of the message fields that a tuple holds."""
    return [name.removesuffix("_") for name in cls._fields]


def _row_classes(scanned: type[Any]) -> dict[str, type[Any]]:
    """Return the row classes by the name of the list field."""
    found = {}
    for name, hint in get_type_hints(scanned).items():
        for part in (hint, *get_args(hint)):  # the list, or the list or None
            if get_origin(part) is list and hasattr(get_args(part)[0], "_fields"):
                found[name.removesuffix("_")] = get_args(part)[0]
    return found


def _require_before(cls: type[Struct], nested: Field, row: type[Any], version: int) -> None:
    """Raise TypeError if a value of the row is read after the nested list."""
    fields = plan(cls, version)
    if nested not in fields.untagged:
        raise TypeError(f"{row.__name__}: {cls.__name__}.{nested.name} is tagged, or not in version {version}")
    late = [*fields.untagged[fields.untagged.index(nested) + 1 :], *fields.tagged]
    for field in late:
        if field.name in _names(row):
            raise TypeError(f"{row.__name__}: {cls.__name__}.{field.name} follows {nested.name} on the wire")
