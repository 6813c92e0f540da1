"""Paths to fields: a name (V1), or names with dots between them (V2, KIP-821).

    order.customer.id      `order.v2`.id      `a\\`.b`

A name with dots stands between backticks. A backtick before a dot is part of the name if a backslash precedes it.

Owns the syntax and the lookup. Must not know transforms.
"""

from __future__ import annotations

from typing import Any, Final

from spark_jobs.connect.base.data import Field, Schema, Struct
from spark_jobs.connect.base.definitions import Importance, Kind, Setting, one_of_ignoring_case
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.transforms.sides import field_value, require_map, require_struct

SYNTAX: Final = "field.syntax.version"
SYNTAX_SETTING: Final = Setting(
    SYNTAX,
    Kind.STRING,
    "V1",
    Importance.HIGH,
    "How fields are named: V1, by the name of a field of the outermost struct or map; or V2, by a path with dots."
    " A name that itself has dots then stands between backticks.",
    one_of_ignoring_case("V1", "V2"),
)
_PURPOSE: Final = "nested field access"


class FieldPath:
    """A parsed path."""

    def __init__(self, text: str, syntax: str) -> None:
        """Raises ConfigError for a path with an open backtick."""
        steps = [text] if syntax.upper() == "V1" else _steps(text)
        self._parents, self._last = steps[:-1], steps[-1]

    def field_of(self, schema: Schema) -> Field | None:
        """Return the field of a schema; None if there is none."""
        for step in self._parents:
            field = schema.field(step)
            if field is None:
                return None
            schema = field.schema
        return schema.field(self._last)

    def value_of_struct(self, struct: Struct, *, replaces_null: bool) -> Any:
        """Return the value of the field; None if a struct on the way is null."""
        for step in self._parents:
            field = struct.schema.field(step)
            inner = None if field is None else field_value(struct, field, replaces_null=True)
            if inner is None:
                return None
            struct = require_struct(inner, _PURPOSE)
        field = struct.schema.field(self._last)
        return None if field is None else field_value(struct, field, replaces_null=replaces_null)

    def value_of_map(self, value: dict[str, Any]) -> Any:
        """Return what a map of maps has at the path; None if it has nothing there."""
        for step in self._parents:
            inner = value.get(step)
            if inner is None:
                return None
            value = require_map(inner, _PURPOSE)
        return value.get(self._last)


def _steps(text: str) -> list[str]:
    steps = []
    position = 0
    while position < len(text):
        if text[position] == "`":
            step, position = _quoted_step(text, position)
        else:
            end = text.find(".", position)
            end = len(text) if end < 0 else end
            step, position = text[position:end], end + 1
        steps.append(step)
    return [*steps, ""] if text.endswith(".") or not text else steps


def _quoted_step(text: str, opening: int) -> tuple[str, int]:
    """Return the name between backticks that begins at `opening`, and the position behind its dot."""
    pieces: list[str] = []
    start = position = opening + 1
    while True:
        position = text.find("`", position)
        is_escaped = position > 0 and text[position - 1] == "\\"
        if position < 0 or (position == len(text) - 1 and is_escaped):
            raise ConfigError(
                f"Incomplete backtick pair in path: [{text}], consider adding a backslash before backtick at position"
                f" {opening} to escape it"
            )
        if position == len(text) - 1 or (text[position + 1] == "." and not is_escaped):
            return "".join([*pieces, text[start:position]]), position + 2
        if text[position + 1] == ".":
            pieces.append(text[start : position - 1] + "`")
            start = position + 1
        position += 1
